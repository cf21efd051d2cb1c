"""The committed run: the page, the figures and the numbers of README and docs are what its rows say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from linnet.labs.claims import claims
from linnet.labs.claims.document import document
from linnet.labs.cli.report import BEGIN, END, pictures
from linnet.labs.report.reproduce import html, markdown, scoreboard

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "results"
SHOWN = [ROOT / "README.md", ROOT / "docs" / "science" / "index.md"]
AGAIN = "linnet report docs/results --into README.md docs/science/index.md brings it in step"


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    return document(RESULTS)


def test_it_is_a_whole_run_of_an_hour_without_an_error(result: dict[str, Any]) -> None:
    assert result["budget"] == "hour"
    assert result["minutes"] > 0
    assert [claim["name"] for claim in result["claims"]] == list(claims())
    assert result["counts"]["error"] == 0
    assert all(claim["missing"] == 0 for claim in result["claims"])


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: path.name)
def test_the_scoreboard_shown_is_that_of_the_rows(result: dict[str, Any], path: Path) -> None:
    shown = path.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0]
    assert shown.strip() == scoreboard(result).strip(), AGAIN


def test_the_page_is_made_from_the_rows(result: dict[str, Any]) -> None:
    assert (RESULTS / "report.html").read_text(encoding="utf-8") == html(result), "linnet report docs/results makes it"
    assert (RESULTS / "report.md").read_text(encoding="utf-8") == markdown(result)


def test_figures_are_drawn_from_the_rows(result: dict[str, Any]) -> None:
    drawn = pictures(result)
    files = sorted((RESULTS / "figures").glob("*.svg"))
    assert files
    for file in files:
        assert file.read_text(encoding="utf-8") == drawn[file.name], f"{file.name}: {AGAIN} with --figures"


def test_readme_shows_three_figures_of_the_run() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    figures = re.findall(r"\]\((docs/results/figures/[\w-]+\.svg)\)", text)
    assert len(figures) == 3
    assert all((ROOT / figure).is_file() for figure in figures)


def test_a_number_that_differs_is_noticed(result: dict[str, Any]) -> None:
    """The comparison above is of every character: one other digit in one number is another scoreboard."""
    claim = next(one for one in result["claims"] if one["numbers"])
    changed = [
        one | {"numbers": [claim["numbers"][0] | {"shown": "0.123456"}]} if one is claim else one
        for one in result["claims"]
    ]
    assert scoreboard(result | {"claims": changed}) != scoreboard(result)
