"""`linnet recall` and `linnet recall study`: what they print, what they keep, what they refuse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from linnet.labs.cli import recall as command
from linnet.labs.cli.recall_show import one_line
from linnet.labs.core import read_rows
from linnet.labs.core.results import ROWS
from linnet.labs.recall.config import RecallConfig
from linnet.labs.recall.sweep import Plan
from linnet.labs.recall.work import run_plan
from linnet.labs.report.recall import label
from tests.cli.command import help_without_torch, linnet, refused

Capsys = pytest.CaptureFixture[str]
TINY = ("--mixers", "softmax", "elu", "--states", "680", "--lengths", "16", "--pairs", "2", "--vocab", "32")
TINY += ("--d-model", "16", "--steps", "2", "--rates", "0.01", "--seeds", "2", "--workers", "1")


@pytest.fixture(scope="module", autouse=True)
def few_rows() -> Iterator[None]:
    """Nothing is learned here, so few held-out sequences are scored."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("linnet.labs.recall.run.TEST_ROWS", 16)
        yield


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with rows of models that learned nothing."""
    out = tmp_path_factory.mktemp("done")
    base = RecallConfig(d_model=16, seq_len=16, pairs=2, vocab_size=32, steps=2, batch_size=4)
    plan = Plan(mixers=("softmax", "delta"), states=(680,), lengths=(16,), pairs=(2,), rates=(1e-3, 1e-2), base=base)
    assert run_plan(plan, out) == []
    return out


@pytest.mark.parametrize("words", [("recall",), ("recall", "study")])
def test_help_comes_without_torch(words: tuple[str, ...]) -> None:
    assert "linnet recall" in help_without_torch(*words)


def test_the_whole_way(tmp_path: Path, capsys: Capsys) -> None:
    out = tmp_path / "out"
    ended = linnet(capsys, "recall", *TINY, "--out", out, "--json")
    assert ended.status == 0, ended.err
    document = json.loads(ended.out)
    assert [cell["config"]["mixer"] for cell in document["cells"]] == ["elu", "softmax"]
    assert document["cells"][0]["mixer_bytes"] == 680
    assert document["cells"][0]["accuracy"]["seeds"] == 2
    before = (out / ROWS).read_bytes()
    assert linnet(capsys, "recall", *TINY, "--out", out).status == 0
    assert (out / ROWS).read_bytes() == before  # nothing was missing


def test_show_prints_every_cell(done: Path, capsys: Capsys) -> None:
    ended = linnet(capsys, "recall", "--show", done)
    assert ended.status == 0
    assert "12 runs" in ended.out
    (line,) = [line.split() for line in ended.out.splitlines() if line.strip().startswith("delta f=11")]
    row = next(row for row in read_rows(done / ROWS) if row["config"]["mixer"] == "delta")
    assert f"{row['metrics']['mixer_bytes']:,}" in line
    assert "of 3" in ended.out
    text = linnet(capsys, "recall", "--show", done, "--markdown").out
    assert text.count("\n| ") == 2
    assert text.startswith("| mixer | N |")


def test_a_page_is_written_whole(done: Path, tmp_path: Path, capsys: Capsys) -> None:
    page = tmp_path / "recall.html"
    assert linnet(capsys, "recall", "--show", done, "--html", page).status == 0
    text = page.read_text(encoding="utf-8")
    assert "<svg" in text
    assert "delta" in text
    assert "http://" not in text.replace("http://www.w3.org", "")


def test_one_line_of_a_row(done: Path) -> None:
    row = next(row for row in read_rows(done / ROWS) if row["config"]["mixer"] == "delta")
    assert one_line(row).startswith("delta f=11 conv=0, N=16, 2 pairs, rate ")
    assert label({"mixer": "softmax"}) == "softmax"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--mixers", "rebazed"), "did you mean 'rebased'"),
        (("--lengths", "65"), "seq_len is 65; accepted: even"),
        (("--lengths", "256"), "vocab_size 256 is not above seq_len 256"),
        (("--pairs", "17"), "use at most 16 pairs"),
        (("--mixers", "based", "--states", "100"), "cannot be given a state of 100 bytes"),
        (("--workers", "0"), "workers is '0'"),
        (("--task", "mqarr"), "did you mean 'mqar'"),
        (("--json", "--markdown"), "both write to standard output"),
        (("--show", "nowhere"), "cannot be read"),
        (("--show", "nowhere", "--steps", "3"), "leave --steps out"),
    ],
)
def test_what_cannot_be_run_is_refused_and_nothing_is_written(
    options: tuple[str, ...], sentence: str, tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert sentence in refused(capsys, "recall", *options)
    assert not (tmp_path / "runs").exists()


def test_rows_of_another_experiment_are_refused(tmp_path: Path, capsys: Capsys) -> None:
    row = {"format": 1, "config": {"experiment": "icl-table"}, "metrics": {}}
    (tmp_path / ROWS).write_text(json.dumps(row) + "\n")
    assert "experiment icl-table, not recall" in refused(capsys, "recall", *TINY, "--out", tmp_path)


def test_studies_are_listed_run_and_shown(tmp_path: Path, capsys: Capsys) -> None:
    listed = linnet(capsys, "recall", "study").out
    assert "length" in listed
    assert "C2" in listed
    out = tmp_path / "length"
    ended = linnet(capsys, "recall", "study", "length", "--budget", "smoke", "--out", out, "--workers", 1)
    assert ended.status == 0, ended.err
    assert "not tested here. Not tested: rows are missing" in ended.out
    assert "what would change it: Five seeds at 256 and 2,048 tokens" in ended.out
    document = json.loads(linnet(capsys, "recall", "study", "length", "--show", out, "--json").out)
    assert document["claim"] == "C2"
    assert document["tables"][0]["rows"]
    shown = linnet(capsys, "recall", "study", "length", "--show", out, "--markdown").out
    assert shown.startswith(f"**{document['statement']}**")
    assert "\n- outcome: – not tested here" in shown
    assert "did you mean 'length'" in refused(capsys, "recall", "study", "lenght")
    assert "budget" in refused(capsys, "recall", "study", "length", "--budget", "week")


def test_quick_settings_are_a_plan() -> None:
    assert len(Plan(**command.QUICK).runs()) == 6
