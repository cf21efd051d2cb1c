"""The pages of docs/science show what their committed rows say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from linnet.labs.claims import claims
from linnet.labs.claims.document import table_document
from linnet.labs.cli import recall_show
from linnet.labs.cli.icl_table_show import markdown
from linnet.labs.core.licence import CEILING, FEW, SEEDS
from linnet.labs.core.verdicts import ERROR, OUTCOMES
from linnet.labs.recall.sweep import summarise
from linnet.labs.report.outcomes import SHOWN, slug
from linnet.labs.report.picture import picture
from linnet.labs.report.recall import bytes_chart

ROOT = Path(__file__).resolve().parents[2]
DIAGRAM = ROOT / "docs" / "science" / "attention.svg"


def test_the_scoreboard_is_explained_and_coloured() -> None:
    page = (ROOT / "docs" / "science" / "index.md").read_text(encoding="utf-8").partition("## The scoreboard")[0]
    sheet = (ROOT / "docs" / "stylesheets" / "extra.css").read_text(encoding="utf-8")
    for outcome in OUTCOMES:
        assert f'<span class="outcome {slug(outcome)} meaning">{SHOWN[outcome].mark} {outcome}</span>' in page
    assert all(f".{slug(outcome)}" in sheet for outcome in (*OUTCOMES, ERROR) if outcome != "not tested here")
    for rule in (f"at least {SEEDS} repeats", f"at least {FEW} repeats", f"{CEILING} or more", "factor of two"):
        assert rule in page


def test_the_numbers_of_the_diagram_follow_from_its_sizes() -> None:
    drawn = re.findall(r'class="[ab]t"[^>]*>([^<]+)<', DIAGRAM.read_text(encoding="utf-8"))
    tokens, heads, width = 10_000, 8, 64
    softmax = heads * tokens * (tokens + 1) // 2 * 2 * width
    linear = heads * tokens * (2 * width * width + width)
    kept = 4 * heads * tokens * 2 * width, 4 * heads * (width * width + width)
    assert drawn[:2] == [f"{softmax / 1e9:.1f} billion", f"{linear / 1e9:.2f} billion"]
    assert drawn[2:4] == [f"{kept[0] / 1e6:.1f} MB", f"{kept[1] / 1e6:.3f} MB"]
    page = (ROOT / "docs" / "science" / "transformers-are-rnns.md").read_text(encoding="utf-8")
    assert f"({softmax:_}, {linear:_})" in page
    assert f"({kept[0]:_}, {kept[1]:_})" in page
    assert all(f"{seconds} for\n" in page or f"{seconds} for `" in page for seconds in drawn[4:])
    assert len(drawn) == 6


@pytest.mark.parametrize("file", sorted((ROOT / "docs").rglob("*.svg")), ids=lambda file: file.name)
def test_pictures_say_what_they_show_and_fetch_nothing(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert "<title>" in text or "aria-label" in text
    assert not re.search(r"<script|(?:href|src)=|@import|url\((?!#)", text)


def test_the_science_page_shows_the_committed_table() -> None:
    """Between its markers stands what `linnet icl table --markdown` makes of docs/science/icl-table.json."""
    folder = ROOT / "docs" / "science"
    document = json.loads((folder / "icl-table.json").read_text(encoding="utf-8"))
    page = (folder / "in-context-learning.md").read_text(encoding="utf-8")
    shown = page.split("<!-- table -->\n")[1].split("<!-- end of table -->")[0]
    assert shown.strip() == markdown(document).strip()
    assert len(document["cells"]) == 210
    assert document["minutes"] > 0


def test_the_recall_page_shows_the_committed_rows() -> None:
    """Between its markers stand the tables of docs/science/recall.json, and those of the sweep follow from its rows."""
    folder = ROOT / "docs" / "science"
    committed = json.loads((folder / "recall.json").read_text(encoding="utf-8"))
    page = (folder / "recall.md").read_text(encoding="utf-8")

    def shown(name: str) -> str:
        return page.split(f"<!-- {name} -->\n")[1].split("<!-- end -->")[0].strip()

    sweep = committed["sweep"]
    assert shown("sweep") == recall_show.markdown(sweep).strip()
    again = [summary.to_dict() | {"curve": None} for summary in summarise(sweep["rows"])]
    assert json.loads(json.dumps(again)) == [cell | {"curve": None} for cell in sweep["cells"]]
    assert sweep["minutes"] < 15
    for name, study in committed["studies"].items():
        tables = map(table_document, claims()[name].read(study["rows"]).tables)
        assert shown(f"rows {name}") == "\n\n".join(map(recall_show.table_markdown, tables))


def test_the_recall_page_has_every_statement_and_the_picture_of_its_sweep() -> None:
    folder = ROOT / "docs" / "science"
    words = " ".join((folder / "recall.md").read_text(encoding="utf-8").split())
    for claim in claims().values():
        if claim.paper == "rebased":
            assert claim.statement in words
            assert f"<!-- outcome {claim.name} -->" in words
    cells = json.loads((folder / "recall.json").read_text(encoding="utf-8"))["sweep"]["cells"]
    drawn = picture(bytes_chart("Recall of 16 pairs in 64 tokens", cells).to_dict())
    assert (folder / "recall.svg").read_text(encoding="utf-8") == drawn
