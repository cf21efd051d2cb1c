"""Progress goes to JSON and back; the clock tells speed and time left."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from linnet.train import progress as module
from linnet.train.optim import Plateau
from linnet.train.progress import Clock, Progress


def test_json_there_and_back() -> None:
    given = Progress(7, 100, 0.1 + 0.2, 1 / 3, {"loss": 2 / 3}, 5, 0.7, Plateau(0.1, 2, 3), "bf16")
    assert Progress.from_dict(json.loads(json.dumps(given.to_dict()))) == given
    assert Progress.from_dict(Progress().to_dict()) == Progress()


def test_speed_is_that_of_steps_and_time_left_that_of_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(module, "perf_counter", lambda: now[0])
    start = Progress(step=10, units=1000, seconds=50.0)
    clock = Clock(start, steps=14)
    now[0] += 3.0  # an evaluation
    clock.start_step()
    now[0] += 2.0
    values = clock.end_step(replace(start, step=11, units=1100))
    assert values == {"seconds": 55.0, "units_per_second": 50.0, "seconds_left": 15.0}
    clock.start_step()
    now[0] += 1.0
    values = clock.end_step(replace(start, step=12, units=1200))
    assert values == {"seconds": 56.0, "units_per_second": 100.0, "seconds_left": 6.0}
