"""`linnet recall text`: what it prints, what it keeps, what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from linnet.labs.cli import recall_text
from linnet.labs.core import read_rows
from linnet.labs.core.results import ROWS
from tests.cli.command import help_without_torch, linnet, refused

SMOKE = ("recall", "text", "--budget", "smoke", "--workers", "1")


@pytest.fixture(scope="module")
def done(book: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("done")
    status, folder = recall_text.run("smoke", {}, {"text": (str(book),)}, out, "1")
    assert (status, folder) == (0, out)
    return out


def test_help_comes_without_torch() -> None:
    assert "linnet recall text" in help_without_torch("recall", "text")


def test_the_whole_way(done: Path, book: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (done / ROWS).read_bytes()
    ended = linnet(capsys, *SMOKE, "--text", book, "--out", done, "--json")
    assert ended.status == 0, ended.err
    document = json.loads(ended.out)
    assert (done / ROWS).read_bytes() == before  # nothing was missing
    assert (document["claim"], document["runs"], document["outcome"]) == ("C12", 3, "not tested here")
    assert {"machine", "versions", "commit", "minutes", "statement", "rule"} <= document.keys()


def test_show(done: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ended = linnet(capsys, "recall", "text", "--show", done)
    assert ended.status == 0
    for row in read_rows(done / ROWS):
        assert f"{row['metrics']['hits']['loss']:.3f} [" in ended.out
    assert "book.txt:" in ended.out
    assert "outcome: – not tested here" in ended.out
    assert "softmax, based, rebased have 1 seed in common; 3 are needed" in ended.out


def test_one_line(done: Path) -> None:
    row = read_rows(done / ROWS)[0]
    losses = [row["metrics"][part]["loss"] for part in ("hits", "rest")]
    said = recall_text.one_line(row)
    assert said.startswith(f"softmax, rate 0.003, seed 0: {losses[0]:.3f} on hits, {losses[1]:.3f} on the rest in ")
    row["metrics"]["hits"]["loss"] = None
    assert "not finite on hits" in recall_text.one_line(row)


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("--mixers", "rebasd"), "unknown mixer 'rebasd'; did you mean 'rebased'"),
        (("--budget", "paper"), "unknown budget 'paper'"),
        (("--text", "nowhere.txt"), "there is no file nowhere.txt"),
        (("--vocab", "8"), "vocab_size is 8"),
        (("--workers", "none"), "workers"),
        (("--show", "nowhere"), "nowhere/rows.jsonl cannot be read"),
        (
            ("--show", "nowhere", "--seeds", "2"),
            "--show prints the contents of nowhere; leave the options",
        ),
    ],
)
@pytest.mark.usefixtures("elsewhere")
def test_what_does_not_fit_is_refused(
    args: tuple[str, ...], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sentence in refused(capsys, "recall", "text", "--budget", "smoke", *args)
    assert not list(tmp_path.iterdir())


def test_rows_of_something_else_are_refused(tmp_path: Path, book: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = {"format": 1, "config": {"experiment": "recall"}, "metrics": {}}
    (tmp_path / ROWS).write_text(json.dumps(line) + "\n", encoding="utf-8")
    for args in ((*SMOKE, "--text", book, "--out", tmp_path), ("recall", "text", "--show", tmp_path)):
        assert "holds rows of experiment recall, not recall-text" in refused(capsys, *args)
    assert [path.name for path in tmp_path.iterdir()] == [ROWS]
