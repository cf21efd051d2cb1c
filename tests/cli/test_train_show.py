"""What a run shows: speed and time left in a terminal, lines in a file, and the right number under the right name."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from linnet.cli import train_show
from linnet.cli.common import duration
from linnet.cli.train_show import Watcher, format_metrics
from linnet.data import ByteTokenizer, TextSource
from linnet.models import preset
from linnet.train import Event, Result, TrainConfig
from linnet.train.jobs import Data, Job
from tests.cli.command import write_text

SPEED = {"loss": 2.5, "units_per_second": 12345.6, "seconds_left": 125.0}


@pytest.fixture
def run(tmp_path: Path) -> tuple[Job, Data]:
    file = write_text(tmp_path / "book.txt")
    parts = [TextSource(file, ByteTokenizer(), 32, split) for split in ("train", "valid")]
    job = Job(kind="text", data={}, model=preset("char-small"), train=TrainConfig(steps=100))
    return job, Data(parts[0], parts[1], None, {})


def console(*, terminal: bool) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, force_terminal=terminal, width=120, highlight=False), out


def result(**changes: Any) -> Result:
    usual: dict[str, Any] = {"step": 100, "loss": 2.0, "metrics": {"loss": 2.0, "bits": 3.0}, "best_step": None}
    usual |= {"seconds": 65.0, "units": 6500, "stopped": "", "checkpoint": None}
    return Result(**(usual | changes))


def test_a_terminal_gets_a_bar_with_speed_and_time_left(run: tuple[Job, Data]) -> None:
    screen, out = console(terminal=True)
    with Watcher(*run, Path("runs/a"), console=screen) as watcher:
        watcher.on_event(Event("start", 0, {}, "from the start"))
        watcher.on_event(Event("step", 40, SPEED))
        watcher.bar.refresh()
    text = out.getvalue()
    for expected in ("training", "━", "loss 2.500", "12,346 tokens/s", "2:05 left"):
        assert expected in text


def test_a_file_gets_lines_and_no_bar(run: tuple[Job, Data]) -> None:
    screen, out = console(terminal=False)
    with Watcher(*run, Path("runs/a"), console=screen) as watcher:
        assert out.getvalue() == ""
        watcher.on_event(Event("start", 0, {}, "from the start; precision: float32"))
        watcher.on_event(Event("step", 40, SPEED))
        watcher.on_event(Event("eval", 40, {"loss": 2.0, "bits": 2.885}))
        watcher.on_event(Event("save", 40, {}, "saved step-00000040"))
    lines = out.getvalue().splitlines()
    assert lines[0].startswith("4 layers of ")
    assert "bytes of state at any length" in lines[0]
    assert "18 examples (windows of 32 tokens, end to end) held out; 100 steps of 16" in lines[1]
    assert lines[2:] == ["from the start; precision: float32", "step      40   held out: 2.0000 nats, 2.8850 bits/byte"]


def test_a_file_is_not_silent_for_long(run: tuple[Job, Data], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(train_show, "monotonic", lambda: clock.now)
    screen, out = console(terminal=False)
    with Watcher(*run, Path("runs/a"), console=screen) as watcher:
        for step in range(1, 101):
            clock.now += 1.0  # a step a second
            watcher.on_event(Event("step", step, SPEED))
    lines = out.getvalue().splitlines()
    assert [int(line.split()[1]) for line in lines] == [30, 60, 90]
    assert lines[0] == "step      30   loss 2.500  12,346 tokens/s  2:05 left"


def test_an_evaluation_puts_the_next_line_off(run: tuple[Job, Data], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(train_show, "monotonic", lambda: clock.now)
    screen, out = console(terminal=False)
    with Watcher(*run, Path("runs/a"), console=screen) as watcher:
        for step in range(1, 56):
            clock.now += 1.0
            watcher.on_event(Event("step", step, SPEED))
            if step == 25:
                watcher.on_event(Event("eval", step, {"loss": 2.0}))
    assert [int(line.split()[1]) for line in out.getvalue().splitlines()] == [25, 55]


def test_other_processes_are_silent(run: tuple[Job, Data], capsys: pytest.CaptureFixture[str]) -> None:
    with Watcher(*run, Path("runs/a"), quiet=True) as watcher:
        watcher.on_event(Event("start", 0, {}, "from the start"))
        watcher.on_event(Event("eval", 1, {"loss": 2.0}))
        watcher.finish(result())
    assert capsys.readouterr() == ("", "")


def test_the_last_lines_say_what_to_do(run: tuple[Job, Data]) -> None:
    done = "100 steps in 1:05 (100 tokens/s); held out: 2.0000 nats, 3.0000 bits/byte\nsaved in runs/[a]"
    stopped = "stopped by SIGINT after step 7, and saved; continue with: linnet train resume runs/[a]"
    for given, expected in ((result(), done), (result(stopped="SIGINT", step=7), stopped)):
        screen, out = console(terminal=False)
        Watcher(*run, Path("runs/[a]"), console=screen).finish(given)
        assert out.getvalue().startswith(expected)


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ({"loss": 2.0, "bits": 3.0, "bits_per_byte": 3.0}, "2.0000 nats, 3.0000 bits/byte"),
        ({"loss": 2.0, "bits": 3.0, "bits_per_byte": 1.0}, "2.0000 nats, 3.0000 bits/token, 1.0000 bits/byte"),
        ({"loss": 2.0, "per": 0.25}, "2.0000 nats, 0.2500 PER"),
        ({"loss": 0.5, "mse": 0.5, "mae": 0.25}, "0.5000 MSE, 0.2500 MAE"),
        ({}, "nothing was measured"),
    ],
)
def test_no_number_is_shown_twice(metrics: dict[str, float], expected: str) -> None:
    assert format_metrics(metrics) == expected


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0 s"), (59.6, "1:00"), (125, "2:05"), (3723.2, "1:02:03")])
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
