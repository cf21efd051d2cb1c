"""kill -9 at any moment, then resume: weights, moments and logged losses are those of a run that was never killed.

Each part of a run is forked from a process that has imported torch and done nothing else: once for all parts, and
without threads of other tests, which a fork would leave behind with their locks held.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from linnet.train import Event, checkpoint, fit, read_log
from tests.train.toy import Letters, settings, small_model

CLOCKED = ("seconds", "units_per_second", "seconds_left")
CALLS = ("fsync", "replace", "open")  # of os: each is a moment in a save; what they do is on the disk or not
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload([__name__])


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def part(out: Path, steps: int, at_step: int | None, at_call: int | str | None) -> None:
    """A run from where it stands, to its end unless it dies after a step, at the n-th call that touches the disk, or
    when a file is about to be replaced by name."""
    seen, replace = [0], os.replace

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            seen[0] += 1
            if at_call in (seen[0], Path(args[-1]).name if function is replace else None):
                die()
            return function(*args, **kwargs)

        return call

    if at_call is not None:
        for name in CALLS:
            setattr(os, name, counted(getattr(os, name)))

    def watch(event: Event) -> None:
        if (event.kind, event.step) == ("step", at_step):
            die()

    config = settings(steps=steps, save_every=3, eval_every=4, keep=2, schedule="linear")
    fit(small_model(), Letters(), Letters(5), config, out=out, resume=True, on_event=watch)


def started(out: Path, steps: int = 8, at_step: int | None = None, at_call: int | str | None = None) -> Any:
    process = PROCESSES.Process(target=part, args=(out, steps, at_step, at_call))
    process.start()
    return process


def ended(process: Any) -> int:
    process.join(60)
    if process.is_alive():
        process.kill()
        process.join()
    code = process.exitcode
    process.close()
    return code


def outcome(out: Path) -> dict[str, Any]:
    """What two runs must agree in, to the bit."""
    folder = out / (out / "latest").read_text().strip()
    names = ("model.safetensors", "optimizer.safetensors", "config.json")
    lines = [{k: v for k, v in line.items() if k not in CLOCKED} for line in read_log(out / "log.jsonl")]
    left = sorted(path.name for path in (*out.glob(".*"), *(out / "checkpoints").iterdir()))
    return {name: (folder / name).read_bytes() for name in names} | {"log": lines, "left": left}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("whole")
    assert ended(started(out)) == 0
    result = outcome(out)
    assert [line["step"] for line in result["log"] if line["kind"] == "step"] == [*range(1, 9)]
    return result


def test_killed_in_a_step_in_a_save_and_before_the_pointer(tmp_path: Path, whole: dict[str, Any]) -> None:
    assert ended(started(tmp_path, at_step=2)) == -9  # before anything was saved
    assert checkpoint.names(tmp_path) == []
    assert ended(started(tmp_path, at_call="latest")) == -9  # the first one is saved and nothing points at it
    assert checkpoint.names(tmp_path) == ["step-00000003"]
    assert not (tmp_path / "latest").exists()
    assert ended(started(tmp_path, at_call=10)) == -9  # in the middle of the second save
    assert list((tmp_path / "checkpoints").glob(".step-00000006.*.tmp"))
    assert ended(started(tmp_path)) == 0
    assert outcome(tmp_path) == whole


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_at_calls_that_touch_the_disk(tmp_path: Path, whole: dict[str, Any]) -> None:
    for n in range(2, 1000, 4):
        out = tmp_path / str(n)
        code = ended(started(out, at_call=n))
        if code == 0:
            break
        assert code == -9
        if (out / "latest").exists():  # what it names is whole, whatever the moment
            checkpoint.verify(out / (out / "latest").read_text().strip())
        assert ended(started(out)) == 0
        assert outcome(out) == whole, f"after a kill at call {n}"
    assert n > 40, "the saves of a run take more calls than that"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_at_twenty_random_moments(tmp_path: Path) -> None:
    steps, kills = 160, 20
    draw = random.Random(0)
    assert ended(started(tmp_path / "whole", steps)) == 0
    out = tmp_path / "killed"
    for kill in range(kills):
        process = started(out, steps)
        if kill % 3:  # after a few more steps than the last one left; else while it is starting
            wait_for(out, steps_done(out) + draw.randint(1, 5), process)
        time.sleep(draw.uniform(0.0, 0.02))
        process.kill()
        assert ended(process) == -9, "it was done before it could be killed"
    assert ended(started(out, steps)) == 0
    assert outcome(out) == outcome(tmp_path / "whole")


def steps_done(out: Path) -> int:
    """By the newest checkpoint: the log is cut back to it."""
    names = checkpoint.names(out)
    return int(names[-1].removeprefix("step-")) if names else 0


def wait_for(out: Path, step: int, process: Any) -> None:
    path = out / "log.jsonl"
    while (
        process.is_alive()
        and max([line["step"] for line in read_log(path)] if path.exists() else [0], default=0) < step
    ):
        time.sleep(0.002)
