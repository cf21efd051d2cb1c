"""Folders of results that linnet wrote at the last commit before linnet/labs still read, to the same numbers.

See tests/test_files_before.py. Sentences may be reworded and outcomes have other words since then (decision 0036);
numbers and the values of tables may not change.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from linnet.regress import ICLTransformer
from tests.cli.command import linnet

FILES = Path(__file__).parents[1] / "files_before"
EXPECTED = json.loads((FILES / "expected.json").read_text(encoding="utf-8"))["labs"]
ABOUT = ("commit", "versions", "minutes")
OUTCOMES = {"confirmed": "holds", "not testable": "not tested here"}


@pytest.fixture
def labs(tmp_path: Path) -> Path:
    """A copy: some commands write their page next to the rows."""
    return shutil.copytree(FILES / "labs", tmp_path / "labs")


def shown(capsys: pytest.CaptureFixture[str], *words: str | Path) -> dict[str, Any]:
    """The JSON document that a command prints."""
    done = linnet(capsys, *words, "--json")
    assert done.status == 0, done.err
    return json.loads(done.out)


def test_a_folder_of_reproduce(labs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result, expected = shown(capsys, "report", labs / "reproduce"), EXPECTED["reproduce"]
    for name in (*ABOUT, "budget", "started", "commits", "rows", "damaged"):
        assert result[name] == expected[name]
    assert result["machine"] == expected["machine"] | {"rows": expected["rows"]}
    assert [one["name"] for one in result["claims"]] == [one["name"] for one in expected["claims"]]
    for now, then in zip(result["claims"], expected["claims"], strict=True):
        for name in ("number", "paper", "rows", "missing", "seconds", "errors", "command"):
            assert now[name] == then[name]
        assert now["outcome"] == OUTCOMES[then["outcome"]]
        before = {one["what"]: (one["ours"], one["shown"]) for one in then["numbers"]}
        after = {one["what"]: (one["ours"], one["shown"]) for one in now["numbers"]}
        assert {what: after[what] for what in before.keys() & after.keys()}.items() <= before.items()
        assert len(before.keys() & after.keys()) >= len(before) - 1
        assert [len(table["rows"]) for table in now["tables"]] == [len(table["rows"]) for table in then["tables"]]


def test_a_folder_of_recall(labs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, "recall", "--show", labs / "recall") == EXPECTED["recall"] | {"format": 2}


def test_a_folder_of_a_study(labs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result, expected = shown(capsys, "recall", "study", "ablation", "--show", labs / "study"), EXPECTED["study"]
    for name in (*ABOUT, "machine", "name", "rows", "runs"):
        assert result[name] == expected[name]
    assert result["outcome"] == OUTCOMES[expected["outcome"]]
    for table in expected["tables"]:  # a study also has the tables of its claim now
        assert table in result["tables"]


def test_a_folder_of_the_table(labs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, "icl", "table", "--show", labs / "icl") == EXPECTED["icl"]
    model = ICLTransformer.load(labs / "icl" / "models" / "diag-U5-L1-s0.safetensors")
    assert (model.config.kind, model.config.layers) == ("diag", 1)
