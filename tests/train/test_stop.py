"""SIGINT and SIGTERM: the run ends between two steps, saved, and resumes bit for bit."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from linnet.train import Event, ProcessGroup, fit
from linnet.train.stop import StopSignal
from tests.train.processes import together
from tests.train.toy import Letters, settings, small_model


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_saved_at_the_next_boundary_and_resumed(tmp_path: Path, number: signal.Signals) -> None:
    events: list[Event] = []

    def send(event: Event) -> None:
        events.append(event)
        if (event.kind, event.step) == ("step", 2):
            os.kill(os.getpid(), number)

    handler = signal.getsignal(number)
    result = fit(small_model(), Letters(), None, settings(), out=tmp_path, on_event=send)
    assert signal.getsignal(number) is handler
    assert (result.step, result.stopped) == (3, number.name)
    assert result.checkpoint == tmp_path / "checkpoints" / "step-00000003"
    assert [event.kind for event in events][-2:] == ["save", "stop"]
    assert events[-1].text == "stopped after step 3 of 6; continue with --resume"

    model, whole = small_model(1), small_model()
    assert fit(model, Letters(), None, settings(), out=tmp_path, resume=True).step == 6
    fit(whole, Letters(), None, settings())
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), whole.parameters(), strict=True))


def test_a_signal_in_the_last_step_changes_nothing(tmp_path: Path) -> None:
    def send(event: Event) -> None:
        if (event.kind, event.step) == ("step", 5):
            os.kill(os.getpid(), signal.SIGINT)

    result = fit(small_model(), Letters(), None, settings(), out=tmp_path, on_event=send)
    assert (result.step, result.stopped) == (6, "")


def test_without_a_folder_nothing_is_promised() -> None:
    texts = []

    def send(event: Event) -> None:
        texts.append(event.text)
        if (event.kind, event.step) == ("step", 1):
            os.kill(os.getpid(), signal.SIGTERM)

    assert fit(small_model(), Letters(), None, settings(), on_event=send).stopped == "SIGTERM"
    assert texts[-1] == "stopped after step 2 of 6; nothing was saved, because out is None"


def stopped_together(group: ProcessGroup, out: Path) -> dict[str, Tensor]:
    """Runs on two ranks; only the second one receives the signal."""

    def send(event: Event) -> None:
        if group.rank == 1 and (event.kind, event.step) == ("step", 2):
            os.kill(os.getpid(), signal.SIGTERM)

    result = fit(small_model(), Letters(), None, settings(), out=out, on_event=send, group=group)
    return {"step": torch.tensor(result.step), "stopped": torch.tensor(bool(result.stopped))}


def test_all_processes_stop_together(tmp_path: Path) -> None:
    for result in together(2, "ddp", tmp_path / "meet", stopped_together, tmp_path / "run"):
        assert (int(result["step"]), bool(result["stopped"])) == (3, True)
    assert (tmp_path / "run" / "latest").read_text() == "checkpoints/step-00000003\n"


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Python's own handler of SIGINT, which a process started in the background of a shell does not have."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_the_second_signal_acts_immediately(interruptible: None) -> None:
    with StopSignal() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.name == "SIGINT"
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_in_another_thread_signals_keep_their_meaning() -> None:
    handler = signal.getsignal(signal.SIGINT)
    seen = []

    def work() -> None:
        with StopSignal() as stop:
            seen.append((stop.name, signal.getsignal(signal.SIGINT) is handler))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [("", True)]
