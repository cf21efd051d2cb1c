"""`linnet bench load`: what it writes and what it refuses, and that its competing programs end."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from linnet.cli import main
from linnet.labs.bench import load
from linnet.labs.bench.load import TASKS, LoadSettings
from linnet.labs.cli import bench_frame, bench_load
from linnet.native import library
from tests.cli.command import help_without_torch

CORES = load.cores()


def status(*args: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main.main(["bench", "load", *args])
    return int(caught.value.code or 0)


def made_up(settings: LoadSettings, task: str, call: Any, competitors: int) -> dict[str, Any]:
    entry = {"min_s": 0.05, "median_s": 0.06, "ratio": 0.62, "ratio_min": 0.55}
    row = {"task": task, "competitors": competitors, "threads": settings.threads, "slept": 1.0}
    return row | {name: dict(entry) for name in bench_load.TIMES}


@pytest.mark.skipif(CORES < 2 or library.library() is None, reason="needs two cores and the native library")
def test_tables_and_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(bench_load, "race", made_up)
    monkeypatch.setattr(bench_load, "make", lambda task: None)
    assert status("--tasks", "train") == 0
    shown = capsys.readouterr().out
    for expected in (TASKS["train"], "60.00 (50.00)", "0.62 (0.55)", "100%", "competing"):
        assert expected in shown
    assert status("--json", "--quick", "--competitors", "0", "3") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["format"] == bench_frame.FORMAT
    assert document["settings"]["rounds"] == load.FEWEST_ROUNDS
    assert [(row["task"], row["competitors"]) for row in document["rows"]] == [
        (task, count) for task in load.QUICK["tasks"] for count in (0, 3)
    ]


@pytest.mark.skipif(CORES < 2, reason="needs two cores")
@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--rounds", "2"), "--rounds is 2; accepted: 3 or more"),
        (("--threads", "1"), "--threads is 1; accepted: 2 to"),
        (("--competitors", "-1"), "--competitors has -1; accepted: 0 to 64"),
        (("--tasks", "sleep"), "unknown task 'sleep'"),
    ],
)
def test_refused(args: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(*args) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_help_needs_no_torch() -> None:
    assert "--competitors" in help_without_torch("bench", "load")


def test_competing_programs_end(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def popen(command: list[str]) -> subprocess.Popen[bytes]:
        started.append(real(command))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", popen)
    with load.competing(2):
        assert [program.poll() for program in started] == [None, None]
    assert all(program.poll() is not None for program in started)
    orphan = [sys.executable, "-S", "-c", load.LOOP, "600", "1"]  # its parent is another: it ends at once
    assert real(orphan).wait(timeout=60) == 0


@pytest.mark.skipif(CORES < 2 or library.library() is None, reason="needs two cores and the native library")
def test_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(load, "TURN", 1e-4)
    before = torch.get_num_threads()
    try:
        row = load.race(LoadSettings(rounds=3), "train", lambda: torch.ones(10).sum(), 0)
    finally:
        torch.set_num_threads(before)
    assert row["several"]["ratio"] == pytest.approx(row["several"]["median_s"] / row["one"]["median_s"])
    assert 0 <= row["slept"] <= 1
    assert row["spinning"]["min_s"] > 0
