"""`linnet eval MODEL MODEL --fewshot`: a column for each model, chance beside it, the same in JSON, refusals."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from linnet.data import ByteTokenizer, Tokenizer
from linnet.labs.cli import eval_fewshot
from tests.cli.command import help_without_torch, linnet, refused
from tests.labs.fewshot.tiny import WORDS, language_model, write_sets

Capsys = pytest.CaptureFixture[str]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sets where data are looked for, and the models `linear` and `softmax`."""
    write_sets(tmp_path)
    monkeypatch.setenv("LINNET_DATA", str(tmp_path))
    coders: dict[str, tuple[str, Tokenizer]] = {"linear": ("elu", ByteTokenizer()), "soft": ("softmax", WORDS)}
    for name, (mixer, coder) in coders.items():
        language_model(mixer, coder, max_length=150).save_pretrained(tmp_path / name)
        coder.save(tmp_path / name)
    return tmp_path


def document(**fields: Any) -> dict[str, Any]:
    row = {"task": "piqa", "shots": 5, "items": 1000, "chance": 0.5, "accuracy": 0.541, "stderr": 0.05}
    row |= {"accuracy_norm": 0.55, "stderr_norm": 0.05, "perplexity": None, "cut": 3}
    models = [
        {"name": name, "mixer": "elu", "parameters": 1234, "tokenizer": "byte", "context": 150} for name in ("a", "b")
    ]
    return {"models": models, "rows": [{"model": name} | row | fields for name in ("a", "b")]}


def shown(result: dict[str, Any]) -> list[str]:
    out = io.StringIO()
    eval_fewshot.show(result, Console(file=out, width=200))
    return [" ".join(line.split()) for line in out.getvalue().splitlines()]


def test_the_table_has_a_column_for_each_model_and_chance_beside_them() -> None:
    lines = shown(document())
    assert lines[0] == "set shots items chance a b"
    assert lines[1] == "piqa 5 1,000 50.0 54.1 ±5.0 (55.0) 54.1 ±5.0 (55.0)"
    assert lines[3] == "a: elu, 1,234 parameters, byte tokens; reads 150 tokens: 3 of 1,000 prompts were longer and " \
        "lost their start"  # fmt: skip
    word = shown(document(chance=0.0, accuracy_norm=None, perplexity=1234.5, stderr=None, cut=0))
    assert word[1] == "piqa 5 1,000 - 54.1 ppl 1.23e+03 54.1 ppl 1.23e+03"
    assert word[3].endswith("all prompts fit")


def test_help_names_the_options_without_torch() -> None:
    said = help_without_torch("eval")
    for option in ("--fewshot", "--shots", "--limit", "--seed", "--context"):
        assert option in said


def test_options_that_do_not_go_together_are_refused(capsys: Capsys, tmp_path: Path) -> None:
    assert "2 folders are given without --fewshot" in refused(capsys, "eval", tmp_path / "a", tmp_path / "b")
    assert "is given without --fewshot" in refused(capsys, "eval", tmp_path, "--shots", 1)
    for option, value in {"rows": 3, "split": "valid", "checkpoint": "x", "weights": "int8", "batch-size": 3}.items():
        said = refused(capsys, "eval", tmp_path, "--fewshot", "piqa", f"--{option}", value)
        assert f"--{option} is {value}, which --fewshot does not use" in said
    assert "--limit is -1; accepted: a whole number, 0 or more" in refused(
        capsys, "eval", tmp_path, "--fewshot", "--limit", -1
    )
    assert "is given twice" in refused(capsys, "eval", tmp_path, tmp_path, "--fewshot")


def test_models_of_one_name_are_told_apart() -> None:
    assert eval_fewshot._labels([Path("x/a"), Path("x/b")]) == ["a", "b"]
    assert eval_fewshot._labels([Path("x/a"), Path("y/a")]) == ["x/a", "y/a"]


@pytest.mark.slow
def test_models_are_asked_side_by_side(capsys: Capsys, place: Path) -> None:
    models = [place / "linear", place / "soft"]
    done = linnet(capsys, "eval", *models, "--fewshot", "piqa", "lambada", "--limit", 4, "--json")
    assert (done.status, done.err) == (0, "")
    result = json.loads(done.out)
    assert [(model["name"], model["mixer"]) for model in result["models"]] == [("linear", "elu"), ("soft", "softmax")]
    keys = [(row["model"], row["task"], row["shots"], row["items"]) for row in result["rows"]]
    names = ["linear", "soft"]
    assert keys == [(name, task, n, 4) for name in names for task in ("piqa", "lambada") for n in (0, 1, 5)]
    assert any(row["cut"] for row in result["rows"])
    table = linnet(capsys, "eval", *models, "--fewshot", "piqa", "--shots", 0, "--limit", 4)
    assert table.status == 0
    assert table.out.splitlines()[0].split() == ["set", "shots", "items", "chance", "linear", "soft"]
    first = table.out.splitlines()[1].split()
    assert first[:4] == ["piqa", "0", "4", "50.0"]
    assert first[4] == f"{100 * result['rows'][0]['accuracy']:.1f}"


@pytest.mark.slow
def test_all_sets_are_asked_where_none_is_named(capsys: Capsys, place: Path) -> None:
    from linnet.labs.fewshot import SETS

    done = linnet(capsys, "eval", place / "linear", "--shots", 0, "--limit", 1, "--json", "--fewshot")
    assert done.status == 0, done.err
    assert [row["task"] for row in json.loads(done.out)["rows"]] == list(SETS)


@pytest.mark.slow
def test_what_is_missing_is_named(capsys: Capsys, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = refused(capsys, "eval", place / "linear", "--fewshot", "pica")
    assert "unknown few-shot set 'pica'; did you mean 'piqa'" in said
    assert "shots is 40" in refused(capsys, "eval", place / "linear", "--fewshot", "piqa", "--shots", 0, 40)
    assert "context is 0" in refused(capsys, "eval", place / "linear", "--fewshot", "piqa", "--context", 0)
    monkeypatch.setenv("LINNET_DATA", str(place / "none"))
    monkeypatch.setattr("linnet.data.folders.REPOSITORY", place / "a" / "b")
    assert "set LINNET_DATA" in refused(capsys, "eval", place / "linear", "--fewshot", "piqa")
