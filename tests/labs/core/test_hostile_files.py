"""JSON of the laboratory that no parser can follow, or that is something else: one sentence each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from linnet.labs.core.clock import read_runs
from linnet.labs.core.folder import read_failures, read_run
from linnet.labs.core.results import read_rows
from tests.test_hostile_files import DEEP, NOT_WHAT_IT_SHOULD_BE, check_refused


@pytest.mark.parametrize(
    ("file", "read"),
    [
        ("run.json", read_run),
        ("failures.json", read_failures),
        ("clock.json", lambda folder: read_runs(folder / "clock.json")),
        ("rows.jsonl", lambda folder: read_rows(folder / "rows.jsonl")),
    ],
)
@pytest.mark.parametrize("text", NOT_WHAT_IT_SHOULD_BE)
def test_json_that_is_not_what_it_should_be(file: str, read: Any, text: str, tmp_path: Path) -> None:
    check_refused(read, tmp_path, file, text)


def test_the_rows_around_a_damaged_one_are_read(tmp_path: Path) -> None:
    row = json.dumps({"format": 1, "config": {}, "metrics": {}})
    (tmp_path / "rows.jsonl").write_text(f"{row}\n{DEEP}\n{row}\n")
    damaged: list[str] = []
    assert len(read_rows(tmp_path / "rows.jsonl", damaged=damaged)) == 2
    assert "line 2" in damaged[0]
