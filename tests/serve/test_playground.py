"""The page at `/`: its routes and headers, and that its files refer to nothing that is not there."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the extra `serve` is not installed")

from starlette.requests import Request
from starlette.responses import Response

import linnet
from linnet.serve.playground import routes

FOLDER = Path(linnet.__file__).parent / "serve" / "page"
FILES = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir() if path.is_file()}
HTML = FILES["index.html"]
SCRIPTS = "".join(text for name, text in FILES.items() if name.endswith(".js"))


def fetch(path: str, **headers: str) -> Response:
    (route,) = [route for route in routes() if route.path == path]
    sent = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return asyncio.run(route.endpoint(Request({"type": "http", "method": "GET", "headers": sent})))


def test_every_file_has_a_route_and_is_not_sent_twice() -> None:
    assert {route.path for route in routes()} == {"/", *(f"/page/{name}" for name in FILES if name != "index.html")}
    first = fetch("/")
    assert (first.status_code, first.body.decode()) == (200, HTML)
    again = fetch("/", if_none_match=first.headers["etag"])
    assert (again.status_code, again.body) == (304, b"")


def test_the_policy_allows_nothing_from_elsewhere_and_nothing_inline() -> None:
    for route in routes():
        policy = fetch(route.path).headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert not re.search(r"unsafe|\*|http|data:|blob:", policy)
    assert not re.search(r"\sstyle=|\son\w+=|<style|<script>|javascript:", HTML)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", SCRIPTS)


def test_no_file_names_another_host() -> None:
    for name, text in FILES.items():
        addresses = set(re.findall(r"https?://[\w./]+", text)) - {"http://www.w3.org/2000/svg"}
        assert not addresses, name


def test_what_the_files_refer_to_exists() -> None:
    paths = {route.path.lstrip("/") for route in routes()}
    assert set(re.findall(r'(?:href|src)="(page/[^"]+)"', HTML)) <= paths
    for module in re.findall(r'from "\./([^"]+)"', SCRIPTS):
        assert module in FILES
    ids = set(re.findall(r'\bid="([^"]+)"', HTML))
    assert set(re.findall(r'\bat\("([^"]+)"\)', SCRIPTS)) <= ids
    for attribute in ("for", "aria-labelledby", "aria-describedby"):
        assert set(re.findall(rf'\s{attribute}="([^"]+)"', HTML)) <= ids
