"""`linnet icl train`: what it says of the paper's value, and where it will not write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from linnet.labs.cli.icl_train import compare, show
from linnet.labs.icl.recipes import Cell
from tests.cli.command import refused

SCORE: dict[str, Any] = {"sharp": 0.361, "sharp_se": 0.001, "query_se": 0.005, "count": 100_000}
SCORE |= {"oracle": 1.56, "median": 0.2, "diverged": 0.0}


@pytest.mark.parametrize(
    ("cell", "change", "expected"),
    [
        (Cell("gd++", "U5", 3), {}, "the paper has 0.344: ours is above it, as it must be (printed 0.344, below the"),
        (Cell("diag", "U5", 3), {}, "the paper has 0.118: ours is worse\n"),
        (Cell("diag", "U5", 3), {"query_se": 0.2}, "the paper has 0.118: ours is above it, but the error is too large"),
        (Cell("diag", "U5", 2), {"sharp": 0.242}, "the paper has 0.242: ours is equal\n"),
    ],
)
def test_the_papers_value_is_judged_as_in_the_table(
    cell: Cell, change: dict[str, Any], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    score = SCORE | change
    show(cell, compare(cell, score) | {"file": "model.safetensors", "parameters": 9}, score)
    assert expected in capsys.readouterr().out


def test_another_problem_is_not_compared(capsys: pytest.CaptureFixture[str]) -> None:
    cell = Cell("diag", "U5", 3, n=40)
    show(cell, compare(cell, SCORE) | {"file": "model.safetensors", "parameters": 9}, SCORE)
    assert "the paper" not in capsys.readouterr().out


def test_a_folder_that_cannot_be_written_is_refused_before_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("linnet.labs.cli.icl_train.os.access", lambda *_: False)  # root may write anywhere
    out = tmp_path / "model.safetensors"
    assert "an existing, writable folder" in refused(capsys, "icl", "train", "--out", out)
    assert list(tmp_path.iterdir()) == []
