"""The page of `linnet reproduce` in a real browser: no error, no request, no sideways scroll, filters, curves, print.

Screenshots go to the folder named by LINNET_SCREENSHOTS too, to be looked at.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from linnet.labs.core.verdicts import FAILS, HOLDS
from linnet.labs.report.reproduce import html
from tests.browser import chromium
from tests.labs.report.made_up import bars, chart, claim, control, document, heat, number, regime

WIDTH = "document.documentElement.scrollWidth"
pytestmark = pytest.mark.slow


def crowded() -> dict[str, Any]:
    """All that can be too wide: many curves, long names, long words, wide tables."""
    long = "softmax-that-computes-every-prefix-again-and-again-and-again-" * 2
    many = chart(
        series={f"model {i} {long[: 9 * i]}": [[j, i + j] for j in range(1, 9)] for i in range(12)}, log_y=True
    )
    wide = {"title": long, "head": [f"column {i}" for i in range(20)], "rows": [["1,234,567"] * 20]}
    numbers = [number(long, long, 1.0, shown="1,234,567.890 bits per dimension")]
    drawn = [many, bars(series={long: [[long, 2.0], ["b", 1.0]]}), heat(rows=[long, "b"])]
    kept = {"outcome": HOLDS, "answer": long, "shown": long, "spread": "-", "scope": long}
    said = {"statement": long, "answer": long, "command": long, "scope": long, "errors": [long], "committed": kept}
    said |= {"agreement": {"word": "differs", "reason": long}, "controls": [control(long, False, long)]}
    said |= {"regime": regime(long, long, long)}
    return claim("crowded", FAILS, **said, charts=drawn, tables=[wide], numbers=numbers)


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    plain = document()
    return document(claims=[*plain["claims"], crowded()])


@pytest.fixture(scope="module")
def file(result: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(html(result), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as launched:
        yield launched


def opened(browser: Any, file: Path, width: int = 1280, height: int = 900, **how: Any) -> tuple[Any, list[str]]:
    """The page, and a list that takes every error and every request for something else than the page."""
    page = browser.new_context(viewport={"width": width, "height": height}, **how).new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
    page.on("request", lambda asked: wrong.append(asked.url) if asked.url != file.as_uri() else None)
    page.goto(file.as_uri())
    return page, wrong


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(360, 740), (390, 844), (1280, 900)])
def test_it_opens_and_fits(
    browser: Any, file: Path, result: dict[str, Any], tmp_path: Path, width: int, height: int, scheme: str
) -> None:
    page, wrong = opened(browser, file, width, height, color_scheme=scheme)
    assert page.evaluate(WIDTH) <= width
    for one in result["claims"]:
        assert page.locator(f"#{one['name']}").is_visible()
        assert page.locator(f"#{one['name']} h3").inner_text().endswith(one["statement"])
    back = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(255, 255, 255)") == (scheme == "light")
    for folder in filter(None, (str(tmp_path), os.environ.get("LINNET_SCREENSHOTS"))):
        Path(folder).mkdir(parents=True, exist_ok=True)
        shot = Path(folder) / f"report-{width}-{scheme}.png"
        page.screenshot(path=str(shot), full_page=True)
        assert shot.stat().st_size > 10_000
    assert wrong == []


@pytest.mark.parametrize("scripts", [True, False])
def test_a_curve_is_switched_off_by_pointer_and_keyboard(browser: Any, file: Path, scripts: bool) -> None:
    page, _ = opened(browser, file, java_script_enabled=scripts)
    first, second = (page.locator(f"#copy svg[role=img] .s{i}") for i in (0, 1))
    assert first.is_visible()
    page.locator("#copy label.key").first.click()
    assert not first.is_visible()
    assert second.is_visible()
    assert page.locator("#speed svg[role=img] .s0").first.is_visible()  # another chart keeps its own
    page.locator("#copy-0-k0").press("Space")
    assert first.is_visible()


@pytest.mark.parametrize("scripts", [True, False])
def test_claims_are_filtered_by_outcome_and_paper(
    browser: Any, file: Path, result: dict[str, Any], scripts: bool
) -> None:
    page, _ = opened(browser, file, java_script_enabled=scripts)
    nothing, count = page.locator(".nothing"), len(result["claims"])

    def shown() -> tuple[int, ...]:
        """Sections, lines at a glance and entries of the contents: always as many."""
        return tuple(page.locator(f"{at}:visible").count() for at in (".claim", ".board li[data-outcome]", "nav li"))

    assert shown() == (count,) * 3
    page.locator("label[for=outcome-is-does-not-hold]").click()
    assert shown() == (2, 2, 2)
    assert page.locator("#speed").is_visible()
    page.locator("#paper-is-rnn").press("Space")
    assert shown() == (2, 2, 2)
    page.locator("label[for=outcome-is-error]").click()
    assert shown() == (0, 0, 0)
    assert nothing.is_visible()
    page.locator("label[for=paper-is-all]").click()
    assert shown() == (1, 1, 1)
    assert not nothing.is_visible()
    assert not page.locator("#paper-rnn").is_visible()
    page.emulate_media(media="print")
    assert page.locator(".claim:visible").count() == count  # paper leaves nothing out
    page.emulate_media(media="screen")
    page.locator("label[for=outcome-is-all]").click()
    assert shown() == (count,) * 3


def test_the_contents_are_folded_on_a_phone_and_stay_in_sight_on_a_wide_screen(browser: Any, file: Path) -> None:
    page, _ = opened(browser, file, 390, 844)
    entry = page.locator('nav a[href="#broken"]')
    assert not entry.is_visible()
    page.locator("label[for=contents-open]").click()
    assert entry.is_visible()
    page, _ = opened(browser, file)
    page.locator("#broken").scroll_into_view_if_needed()
    assert page.locator("aside").bounding_box()["y"] >= 0


def test_links_lead_to_the_claims(browser: Any, file: Path) -> None:
    page, _ = opened(browser, file)
    page.locator('nav a[href="#broken"]').press("Enter")
    assert page.url.endswith("#broken")
    assert 0 <= page.locator("#broken").bounding_box()["y"] < 900


def test_on_paper_everything_is_there_and_nothing_dark(browser: Any, file: Path) -> None:
    page, _ = opened(browser, file, 700, 1000, color_scheme="dark")
    table = page.locator("#copy > details table").first
    page.locator("#copy label.key").first.click()
    assert not table.is_visible()
    page.emulate_media(media="print")
    assert table.is_visible()
    assert page.locator("#copy svg[role=img] .s0").is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.pdf(format="A4").startswith(b"%PDF")
