"""The page at `/`: its files, served with headers that let it load nothing from elsewhere and run no other script."""

from __future__ import annotations

from hashlib import blake2b
from importlib.resources import files
from pathlib import PurePath

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


def routes() -> list[Route]:
    """Return the routes of the page; its files are read once."""
    folder = files(__package__) / "page"
    shipped = [(file.name, file.read_bytes()) for file in folder.iterdir() if PurePath(file.name).suffix in TYPES]
    paths = [("/" if name == "index.html" else f"/page/{name}", name, data) for name, data in shipped]
    return [_route(path, data, TYPES[PurePath(name).suffix]) for path, name, data in paths]


def _route(path: str, data: bytes, kind: str) -> Route:
    headers = {**HEADERS, "ETag": f'"{blake2b(data, digest_size=12).hexdigest()}"'}

    async def endpoint(request: Request) -> Response:
        known = request.headers.get("if-none-match") == headers["ETag"]
        return Response(b"" if known else data, 304 if known else 200, headers, kind)

    return Route(path, endpoint, methods=["GET"])
