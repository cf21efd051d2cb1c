"""The page in a real browser against a real server process: streaming, going back, forks, files, keys, a restart.

Screenshots go to the folder named by LINNET_SCREENSHOTS too, to be looked at.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.browser import chromium

for needed in ("starlette", "uvicorn", "msgspec", "prometheus_client"):
    pytest.importorskip(needed, reason="the extra `serve` is not installed")
pytestmark = pytest.mark.slow

TEXT = "document.querySelector('#text').textContent"
TOKENS = "#text [data-position]"
PROMPT = "Call me Ishmael. Some years ago"
KEY = "sk-a-key-of-this-test"


class Server:
    """A process of `linnet serve` that can be killed and started again on the same port and store."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.options, self.store, self.port = options, f"sqlite:{folder / 'sessions.db'}", 0
        self.log = folder / "log"
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "linnet", "serve", "--port", str(self.port), "--store", self.store]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([*command, *self.options], stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if address := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                self.port = int(address[1])
                break
        else:
            raise AssertionError(self.log.read_text())
        for _ in range(200):
            try:
                urlopen(f"{self.url}health", timeout=5).close()
                return
            except OSError:
                self.process.poll()
                assert self.process.returncode is None, self.log.read_text()
        raise AssertionError("the server does not answer")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def get(self, path: str) -> Any:
        with urlopen(Request(f"{self.url}v1/{path}", headers={"Authorization": f"Bearer {KEY}"}), timeout=10) as answer:
            return json.load(answer)

    def text(self, id: str) -> str:
        return "".join(token["text"] for token in self.get(f"sessions/{id}/tokens")["data"])


@contextmanager
def started(folder: Path, *options: str) -> Iterator[Server]:
    server = Server(folder, *options)
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as launched:
        yield launched


@pytest.fixture(scope="module")
def server(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with started(tmp_path_factory.mktemp("serve")) as running:
        yield running


def opened(browser: Any, server: Server, width: int = 1280, height: int = 900, **how: Any) -> tuple[Any, list[str]]:
    """The page, and a list that takes every error and every request that leaves the server."""
    page = browser.new_context(viewport={"width": width, "height": height}, **how).new_page()
    page.set_default_timeout(20_000)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
    page.on("request", lambda asked: None if asked.url.startswith((server.url, "blob:")) else wrong.append(asked.url))
    page.goto(server.url)
    page.locator("#app, #key-form").locator("visible=true").first.wait_for()
    return page, wrong


def until(page: Any, condition: str, value: Any = None) -> None:
    """Wait for a condition on `value`; page.wait_for_function would need `eval`, which the page forbids."""
    for _ in range(400):
        if page.evaluate(f"value => {condition}", value):
            return
        page.wait_for_timeout(50)
    raise AssertionError(condition)


def finish(page: Any) -> None:
    """Wait until the text is complete."""
    page.locator("body:not(.busy) #title", has_text="Session of").wait_for()


def write(page: Any, prompt: str = PROMPT, **settings: str) -> str:
    """Generate from a prompt; return the id of the session."""
    for name, value in ({"max-tokens": "40"} | settings).items():
        page.locator(f"#{name}").fill(value)
    page.locator("#prompt").fill(prompt)
    page.locator("#go").click()
    page.locator("#status", has_text="per second").wait_for()
    finish(page)
    return shown(page)


def shown(page: Any) -> str:
    return str(page.evaluate("location.hash.slice(1)"))


def text(page: Any) -> str:
    return str(page.evaluate(TEXT))


def choose(page: Any, position: int) -> None:
    page.locator(f"#text [data-position='{position}']").click()
    page.locator("#panel").wait_for()


def new_id(page: Any, old: str) -> str:
    until(page, "location.hash.slice(1) !== value", old)
    page.locator("#status", has_text="per second").wait_for()
    finish(page)
    return shown(page)


def test_text_streams_in_and_is_what_the_server_has(browser: Any, server: Server) -> None:
    page, wrong = opened(browser, server)
    page.evaluate(
        "() => { window.lengths = new Set(); new MutationObserver(() => lengths.add("
        "document.querySelectorAll('#text > *').length)).observe(document.querySelector('#text'), {childList: true}); }"
    )
    id = write(page, **{"max-tokens": "1000"})
    assert text(page) == server.text(id)
    assert text(page).startswith(PROMPT)
    assert page.evaluate("lengths.size") > 3  # it came in parts
    session = server.get(f"sessions/{id}")
    assert page.locator(TOKENS).count() == session["tokens"]
    assert f"{session['tokens']:,} tokens" in page.locator("#memory-note").inner_text()
    assert page.locator("#state-bytes").inner_text() == f"{session['state_bytes'] / 1000:.1f}\u00a0kB"
    assert page.locator("#list a[aria-current]").inner_text().startswith(PROMPT[:10])
    write(page, "")  # continue
    assert server.get(f"sessions/{id}")["tokens"] == session["tokens"] + 40
    assert page.locator("#memory-note").inner_text().startswith(f"{session['tokens'] + 40:,} tokens")
    page.reload()
    page.locator(TOKENS).first.wait_for()
    finish(page)
    assert text(page) == server.text(id)
    assert wrong == []


def test_a_click_on_a_token_goes_back_and_tries_again(browser: Any, server: Server) -> None:
    page, wrong = opened(browser, server)
    first = write(page, seed="7")
    old = text(page)
    choose(page, 50)
    page.locator("#again").click()
    second = new_id(page, first)
    assert server.get(f"sessions/{second}")["parent"] == {"session": first, "at": 50}
    assert text(page) == server.text(second) != old
    assert text(page)[:50] == old[:50] == server.text(first)[:50]  # a token of the shipped model is a character
    assert page.locator("#seed").input_value() == "8"  # with the same seed it would be the same text
    choose(page, 55)
    page.locator("#others button").first.click()
    third = new_id(page, second)
    taken = server.get(f"sessions/{third}/tokens?start=55&end=57")["data"]
    assert [token["sampled"] for token in taken] == [False, True]
    assert taken[0]["text"] != server.text(second)[55]
    choose(page, 20)
    page.locator("#fork").click()
    until(page, "location.hash.slice(1) !== value", third)
    assert text(page) == old[:20]
    links = page.locator("#forks a")
    assert links.count() == 4
    page.locator(f"#forks a[href='#{first}']").click()
    until(page, f"{TEXT} === value", old)
    page.go_back()
    until(page, f"{TEXT} === value", old[:20])
    assert wrong == []


def test_everything_works_with_the_keyboard(browser: Any, server: Server) -> None:
    page, wrong = opened(browser, server)
    page.locator("#max-tokens").fill("40")
    page.locator("#prompt").focus()
    page.keyboard.type("It was")
    page.keyboard.press("Control+Enter")
    page.locator("#status", has_text="per second").wait_for()
    finish(page)
    first = shown(page)
    page.locator("#text [tabindex='0']").focus()
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Home")
    for _ in range(9):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    assert "Token 9" in page.locator("#panel-title").inner_text()
    page.keyboard.press("Escape")
    assert not page.locator("#panel").is_visible()
    assert page.evaluate("document.activeElement.dataset.position") == "9"
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")  # the first button: try again
    second = new_id(page, first)
    assert server.get(f"sessions/{second}")["parent"]["at"] == 9
    page.locator(f"#forks a[href='#{first}']").press("Enter")
    until(page, "location.hash.slice(1) === value", first)
    assert wrong == []


def test_rolling_back_gives_the_same_text_again_and_stop_texts_stop(browser: Any, server: Server) -> None:
    page, wrong = opened(browser, server)
    id = write(page, seed="5")
    old = text(page)
    choose(page, 40)
    page.locator("#back").click()
    page.locator("#status", has_text="Back to 40").wait_for()
    assert text(page) == old[:40] == server.text(id)
    write(page, "")
    assert text(page)[: len(old)] == old  # the same seed and positions
    choose(page, 40)
    page.locator("#back").click()
    page.locator("#status", has_text="Back to 40").wait_for()
    write(page, "", stops=old[45:47].replace("\n", "\\n"))
    assert "stop" in page.locator("#status").inner_text()
    assert text(page) == old[: old.index(old[45:47], 40) + 2] == server.text(id)
    assert wrong == []


def test_a_stopped_text_is_what_the_server_has(browser: Any, server: Server) -> None:
    page, wrong = opened(browser, server)
    page.locator("#max-tokens").fill("4000")
    page.locator("#prompt").fill("The whale")
    page.locator("#go").click()
    page.locator("#text [data-position='12']").wait_for(state="attached")
    page.locator("#stop").click()
    page.locator("#status", has_text="Stopped after").wait_for()
    finish(page)
    id = shown(page)
    page.locator("#title", has_text=f"{server.get(f'sessions/{id}')['tokens']:,}").wait_for()
    assert text(page) == server.text(id)
    assert server.get(f"sessions/{id}")["tokens"] < 4009
    assert wrong == []


def test_a_state_is_downloaded_uploaded_and_deleted(browser: Any, server: Server, tmp_path: Path) -> None:
    page, wrong = opened(browser, server)
    id, before = write(page), len(server.get("sessions?limit=1000")["data"])
    with page.expect_download() as download:
        page.locator("#download").click()
    file = tmp_path / "my.state"
    download.value.save_as(file)
    assert download.value.suggested_filename == f"{id}.state"
    page.locator("#file").set_input_files(file)
    until(page, "location.hash.slice(1) !== value", id)
    page.locator("#delete").wait_for()
    copy = shown(page)
    until(page, f"{TEXT} === value", server.text(id))
    assert server.text(copy) == server.text(id)
    page.locator("#delete").click()
    page.locator("#sure button[value=keep]").click()
    page.locator("#delete").click()
    page.locator("#sure button[value=delete]").click()
    page.locator("#title", has_text="New session").wait_for()
    assert {one["id"] for one in server.get("sessions?limit=1000")["data"]} & {copy, id} == {id}
    assert len(server.get("sessions?limit=1000")["data"]) == before
    file.write_bytes(file.read_bytes()[:-100])
    assert wrong == []
    page.locator("#file").set_input_files(file)
    page.locator("#error").wait_for()
    assert page.locator("#error span").inner_text().endswith(".")


@pytest.mark.parametrize(
    ("setting", "value", "sentence"),
    [
        ("max-tokens", "many", "Max tokens is “many”; it must be a whole number."),
        ("seed", "1.5", "Seed is “1.5”; it must be a whole number."),
        ("max-tokens", "0", "Max_tokens is 0"),
        ("prompt", "", "Write something first"),
    ],
)
def test_an_error_is_one_sentence(browser: Any, server: Server, setting: str, value: str, sentence: str) -> None:
    page, _ = opened(browser, server)
    page.locator("#prompt").fill("A")
    page.locator(f"#{setting}").fill(value)
    page.locator("#go").click()
    page.locator("#error", has_text=sentence).wait_for()
    page.locator("#error button").click()
    assert not page.locator("#error").is_visible()


def test_a_link_to_a_deleted_session_says_so(browser: Any, server: Server) -> None:
    page, _ = opened(browser, server)
    page.goto(f"{server.url}#sess_gone")
    page.locator("#error", has_text="sess_gone").wait_for()
    assert page.locator("#title").inner_text() == "New session"


def test_a_server_with_keys_gets_one(browser: Any, tmp_path: Path) -> None:
    from linnet.serve.keys import hash_key

    (tmp_path / "keys").write_text(hash_key(KEY) + "\n")
    with started(tmp_path, "--api-keys", str(tmp_path / "keys")) as server:
        page, _ = opened(browser, server)
        assert not page.locator("#app").is_visible()
        assert not page.locator("#error").is_visible()
        page.locator("#key").fill("sk-wrong")
        page.locator("#key-form button").click()
        page.locator("#error").wait_for()
        page.locator("#key").fill(KEY)
        page.locator("#key").press("Enter")
        page.locator("#app").wait_for()
        id = write(page)
        page.reload()
        page.locator(TOKENS).first.wait_for()
        assert shown(page) == id


def test_a_killed_server_comes_back_and_the_page_continues(browser: Any, tmp_path: Path) -> None:
    with started(tmp_path) as server:
        page, _ = opened(browser, server)
        id = write(page)
        old = text(page)
        server.kill()
        page.locator("#go").click()
        page.locator("#error", has_text="does not answer").wait_for()
        server.start()
        page.locator("#error").wait_for(state="hidden")
        until(page, f"{TEXT} === value", old)
        assert write(page, "") == id
        assert text(page) == server.text(id)
        assert text(page).startswith(old)
        page.locator("#max-tokens").fill("4000")
        page.locator("#go").click()
        page.locator(f"#text [data-position='{len(old) + 45}']").wait_for(state="attached")
        server.kill()  # while it streams
        page.locator("#error").wait_for()
        seen = text(page)
        server.start()
        page.locator("#error").wait_for(state="hidden")
        until(page, f"{TEXT}.length >= value", len(seen))
        page.locator("#go").wait_for()
        assert server.text(id).startswith(seen)  # every token that was shown is kept
        assert text(page) == server.text(id)


NAMELESS = """() => [...document.querySelectorAll("button, input, textarea, a, [role=button], summary, dialog, form")]
  .filter(one => one.checkVisibility() && !["FORM", "DIALOG"].includes(one.tagName))
  .filter(one => !(one.labels?.length || one.textContent.trim() || one.getAttribute("aria-label")))
  .map(one => one.outerHTML)"""
SMALL = """() => [...document.querySelectorAll("button, input, textarea, summary")].filter(one => one.checkVisibility())
  .filter(one => { const box = one.getBoundingClientRect(); return box.height < 17 || box.right > innerWidth; })
  .map(one => one.outerHTML)"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(390, 844), (1280, 900)])
def test_it_fits_phones_and_large_screens(
    browser: Any, server: Server, tmp_path: Path, width: int, height: int, scheme: str
) -> None:
    page, wrong = opened(browser, server, width, height, color_scheme=scheme, has_touch=width < 500)
    if width < 500:
        page.locator("#sampling summary").click()
    first = write(page, f"{'Long' * 40} words, and <b>marks</b> &amp; more")
    choose(page, 100)
    page.locator("#again").click()
    new_id(page, first)
    choose(page, 90)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(NAMELESS) == []
    assert page.evaluate(SMALL) == []
    box = page.locator("#panel").bounding_box()
    assert 0 <= box["x"] <= box["x"] + box["width"] <= width
    back = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(255, 255, 255)") == (scheme == "light")
    for folder in filter(None, (str(tmp_path), os.environ.get("LINNET_SCREENSHOTS"))):
        Path(folder).mkdir(parents=True, exist_ok=True)
        shot = Path(folder) / f"serve-{width}-{scheme}.png"
        page.screenshot(path=str(shot), full_page=True)
        assert shot.stat().st_size > 10_000
    assert wrong == []
