"""`linnet icl table` and `linnet icl train`: what they print, what they keep, what they refuse."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from linnet.labs.cli import icl_table, icl_table_show
from linnet.labs.core import read_rows
from linnet.labs.core.results import ROWS
from linnet.labs.icl.table import run_table
from linnet.labs.icl.table_units import Plan
from linnet.regress.model import ICLTransformer
from tests.cli.command import help_without_torch, linnet, refused
from tests.labs.core.stand_in import train

SMALL = Plan(kinds=("diag", "gd++"), layers=(3,), noise=("U5", "{1,3}"), sequences=300)
TINY = ("--models", "diag", "--layers", "1", "--noise", "U5", "--sequences", "2000", "--workers", "1")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with rows of models that learned nothing."""
    out = tmp_path_factory.mktemp("done")
    assert run_table(SMALL, out, train=train) == []
    return out


@pytest.mark.parametrize("command", [("icl",), ("icl", "table"), ("icl", "train")])
def test_help_comes_without_torch(command: tuple[str, ...]) -> None:
    assert "linnet icl" in help_without_torch(*command)


def test_the_whole_way_one_layer_is_the_closed_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One layer of any kind has the least loss 0.895 on U5, and the paper prints 0.906."""
    out = tmp_path / "out"
    ended = linnet(capsys, "icl", "table", *TINY, "--out", out, "--json")
    assert ended.status == 0, ended.err
    result = json.loads(ended.out)
    (cell,) = result["cells"]
    assert (cell["model"], cell["layers"], cell["noise"], cell["paper"]) == ("diag", 1, "U5", 0.906)
    assert abs(cell["sharp"] - 0.895) < 5 * cell["sharp_se"]
    assert cell["mark"] == "equal"
    assert len(result["baselines"]) == 6
    assert result["minutes"] > 0
    assert {"machine", "versions", "commit", "counts"} <= result.keys()
    before = (out / ROWS).read_bytes()
    assert linnet(capsys, "icl", "table", *TINY, "--out", out).status == 0
    assert (out / ROWS).read_bytes() == before  # nothing was missing


def test_show_prints_every_cell_with_the_papers_value(done: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ended = linnet(capsys, "icl", "table", "--show", done)
    assert ended.status == 0
    assert "300 sequences" in ended.out
    lines = [line.split() for line in ended.out.splitlines()]
    (head,) = [line for line in lines if line[:2] == ["layers", "model"]]
    assert head[2:] == ["U5", "{1,3}"]
    starts = [line[:2] for line in lines if "ours" in line[2:3]]
    assert starts[:2] == [["1", "gd++"], ["1", "diag"]]
    assert len(starts) == 3 * 2 + 6
    where = lines.index(next(line for line in lines if line[:3] == ["3", "diag", "ours"]))
    row = next(
        row for row in read_rows(done / ROWS) if (row["config"].get("layers"), row["config"]["kind"]) == (3, "diag")
    )
    assert lines[where][3:5] == [f"{row['metrics']['sharp']:.4f}", ">"]
    assert lines[where + 2] == ["paper", "0.118", "0.098"]
    assert any(line[:3] == ["-", "tuned_rr", "ours"] for line in lines)
    assert "median" not in ended.out


def test_details_and_json(done: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = linnet(capsys, "icl", "table", "--show", done, "--details").out
    assert "median" in text
    assert "diverged" in text
    result = json.loads(linnet(capsys, "icl", "table", "--show", done, "--json").out)
    assert len(result["cells"]) == 12
    assert result["counts"]["worse"] + result["counts"]["impossible"] > 0


def document(**cell: Any) -> dict[str, Any]:
    values = {"sharp": 0.0391, "sharp_se": 0.0003, "paper": 0.047, "mark": "better", "reason": None, "z": -3.0}
    one = {"model": "gd++", "layers": 3, "noise": "U5", **values, **cell}
    about = {"machine": {"name": "cpu", "cores": 2}, "versions": {"torch": "2", "linnet": "0"}, "recipe": "fast"}
    counts = {"better": 1, "equal": 0}
    return {**about, "sequences": 100_000, "minutes": 1.0, "cells": [one], "baselines": [], "counts": counts}


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ({}, "0.0391 <"),
        ({"mark": "equal"}, "0.0391 ="),
        ({"mark": "worse"}, "0.0391 >"),
        ({"mark": "unclear"}, "0.0391 ?"),
        ({"mark": "impossible", "reason": "no filter can"}, "* gd++ L3 U5: no filter can"),
        ({"mark": None, "paper": None}, "0.0391"),
        ({"sharp": 2.51e-12, "mark": "equal", "paper": 2.5e-12}, "2.50e-12"),
        ({"sharp": None, "mark": "worse"}, "inf >"),
    ],
)
def test_a_cell_is_marked(cell: dict[str, Any], expected: str) -> None:
    text = io.StringIO()
    icl_table_show.show(document(**cell), Console(file=text, width=120), details=False)
    assert expected in text.getvalue()
    assert "cells: 1 better\n" in text.getvalue()


@pytest.mark.parametrize(
    ("text", "layers"), [(["1-7"], (1, 2, 3, 4, 5, 6, 7)), (["4"], (4,)), (["5", "1-2", "2"], (1, 2, 5))]
)
def test_layers_are_numbers_and_ranges(text: list[str], layers: tuple[int, ...]) -> None:
    assert icl_table.parse_layers(text) == layers


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("--models", "digg"), "unknown model 'digg'; did you mean 'diag'?"),
        (("--noise", "V5"), "noise is 'V5'; accepted: 'U5' for uniform"),
        (("--noise", "U-1"), "sigma is -1.0; accepted: a finite standard deviation of 0 or more"),
        (("--recipe", "slow"), "unknown recipe 'slow'"),
        (("--layers", "9"), "layers is 9; accepted: 1 to 8"),
        (("--layers", "0-2"), "layers is 0; accepted: 1 to 8"),
        (("--layers", "3-1"), "--layers is '3-1'; accepted: numbers or ranges"),
        (("--layers", "two"), "--layers is 'two'; accepted: numbers or ranges"),
        (("--workers", "many"), "workers is 'many'; accepted: a number of processes of 1 or more, or ray"),
        (("--seeds", "0"), "seeds is 0; accepted: 1 or more"),
        (("--sequences", "1"), "sequences is 1; accepted: 2 or more"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], args: tuple[str, ...], expected: str
) -> None:
    assert expected in refused(capsys, "icl", "table", *TINY, *args, "--out", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_folders_that_do_not_belong_are_refused(done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (done / ROWS).read_bytes()
    assert "holds rows of sequences 300" in refused(capsys, "icl", "table", *TINY, "--out", done)
    assert (done / ROWS).read_bytes() == before
    (tmp_path / "file").touch()
    assert "is a file; accepted: a folder" in refused(capsys, "icl", "table", *TINY, "--out", tmp_path / "file")
    assert "cannot be read" in refused(capsys, "icl", "table", "--show", tmp_path / "nowhere")
    (tmp_path / ROWS).touch()
    assert "has no rows yet" in refused(capsys, "icl", "table", "--show", tmp_path)
    assert "leave --models out" in refused(capsys, "icl", "table", "--show", done, "--models", "diag")
    assert "leave --quick out" in refused(capsys, "icl", "table", "--show", done, "--quick")


def test_a_unit_that_fails_is_told_and_the_status_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    (out / "models").mkdir(parents=True)
    (out / "models" / "diag-U5-L1-s0.safetensors").mkdir()  # where the model is to be saved
    ended = linnet(capsys, "icl", "table", *TINY, "--out", out, "--json")
    assert ended.status == 1
    assert "failed: diag on U5, seed 0: " in ended.err
    result = json.loads(ended.out)
    assert result["cells"] == []
    assert len(result["baselines"]) == 6


def test_ctrl_c_shows_what_there_is(
    done: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("linnet.labs.icl.table.run_table", interrupted)
    ended = linnet(capsys, "icl", "table", *TINY, "--out", done, "--json")
    assert ended.status == 130
    assert len(json.loads(ended.out)["cells"]) == 12


def test_train_saves_one_model_and_says_how_good_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "model.safetensors"
    args = ("icl", "train", "--model", "gd++", "--layers", "1", "--noise", "U5", "--sequences", "2000", "--out", out)
    ended = linnet(capsys, *args)
    assert ended.status == 0, ended.err
    assert "gd++, 1 layer on U5: 3 weights" in ended.out
    assert "the paper has 0.907: ours is equal" in ended.out
    assert "linnet icl explain" in ended.out
    assert ICLTransformer.load(out).config.kind == "gd++"
    result = json.loads(linnet(capsys, *args, "--json").out)
    assert (result["kind"], result["paper"], result["mark"], result["count"]) == ("gd++", 0.907, "equal", 2000)


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("--model", "digg"), "unknown model 'digg'; did you mean 'diag'?"),
        (("--layers", "0"), "layers is 0; accepted: 1 to 8"),
        (("--noise", "V5"), "noise is 'V5'"),
        (("--recipe", "slow"), "unknown recipe 'slow'"),
        (("--heads", "0"), "heads is 0; accepted: a whole number, 1 or more"),
        (("--sequences", "1"), "sequences is 1; accepted: 2 or more"),
        (
            ("--out", "nowhere/model.safetensors"),
            "--out is nowhere/model.safetensors; accepted: a file name in an",
        ),
    ],
)
def test_train_refuses_what_cannot_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], args: tuple[str, ...], expected: str
) -> None:
    assert expected in refused(capsys, "icl", "train", "--out", tmp_path / "model.safetensors", *args)
    assert list(tmp_path.iterdir()) == []
