"""The committed run: the page, the figures and the numbers of README and docs are what its rows say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from linnet.labs.claims import claims
from linnet.labs.claims.document import document
from linnet.labs.cli.report import pictures
from linnet.labs.core.folder import read_run
from linnet.labs.report.blocks import has_blocks, with_blocks
from linnet.labs.report.reproduce import html, markdown

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "results"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHOWN = [path for path in PAGES if has_blocks(path.read_text(encoding="utf-8"))]
AGAIN = f"linnet report docs/results --into {' '.join(str(path.relative_to(ROOT)) for path in SHOWN)} brings it in step"


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    return document(RESULTS)


def test_it_is_a_whole_run_of_an_hour_without_an_error(result: dict[str, Any]) -> None:
    assert result["budget"] == "hour"
    assert result["minutes"] > 0
    assert [claim["name"] for claim in result["claims"]] == list(claims())
    assert result["counts"]["error"] == 0
    assert all(claim["missing"] == 0 for claim in result["claims"] if claim["name"] in read_run(RESULTS).claims)


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_marked_block_is_that_of_the_rows(result: dict[str, Any], path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text == with_blocks(path, text, result, RESULTS), AGAIN


def test_readme_and_science_page_have_their_blocks() -> None:
    assert "<!-- evidence -->" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert "<!-- scoreboard -->" in (ROOT / "docs" / "science" / "index.md").read_text(encoding="utf-8")


def test_the_page_is_made_from_the_rows(result: dict[str, Any]) -> None:
    assert (RESULTS / "report.html").read_text(encoding="utf-8") == html(result), "linnet report docs/results makes it"
    assert (RESULTS / "report.md").read_text(encoding="utf-8") == markdown(result)


def test_figures_are_drawn_from_the_rows(result: dict[str, Any]) -> None:
    drawn = pictures(result)
    files = sorted((RESULTS / "figures").glob("*.svg"))
    assert files
    for file in files:
        assert file.read_text(encoding="utf-8") == drawn[file.name], f"{file.name}: {AGAIN} with --figures"


def test_every_figure_of_the_run_that_readme_shows_exists() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    figures = re.findall(r"\]\((docs/results/figures/[\w-]+\.svg)\)", text)
    assert all((ROOT / figure).is_file() for figure in figures)


def test_a_number_that_differs_is_noticed(result: dict[str, Any]) -> None:
    """The comparison above is of every character: one other digit in one number is another block."""
    claim = next(one for one in result["claims"] if one["numbers"])
    first = claim["numbers"][0] | {"shown": "0.123456"}
    changed = [one | {"numbers": [first]} if one is claim else one for one in result["claims"]]
    for text in (f"<!-- number {claim['name']} 0 --><!-- end -->", "<!-- scoreboard --><!-- end -->"):
        right = with_blocks(ROOT / "README.md", text, result, RESULTS)
        assert with_blocks(ROOT / "README.md", right, result | {"claims": changed}, RESULTS) != right
