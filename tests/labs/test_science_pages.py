"""The pages of docs/science show what their committed rows say."""

from __future__ import annotations

import json
from pathlib import Path

from linnet.labs.cli import recall_show
from linnet.labs.cli.icl_table_show import markdown
from linnet.labs.recall.sweep import summarise

ROOT = Path(__file__).resolve().parents[2]


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
    for name, document in committed["studies"].items():
        assert shown(name) == recall_show.study_markdown(document).strip()
    assert shown("text") == recall_show.study_markdown(committed["text"]).strip()
