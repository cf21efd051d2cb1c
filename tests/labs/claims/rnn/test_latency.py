"""The verdict on latency from rows whose times are known."""

from __future__ import annotations

from collections.abc import Sequence
from re import findall
from typing import Any

import pytest

from linnet.labs.claims.rnn import generation
from linnet.labs.claims.rnn.image_decode_timing import CACHE, ENGINE, TENTHS, TORCH
from linnet.labs.claims.rnn.latency import CLAIM, EXPERIMENT
from linnet.labs.core.claim import Chart, Row
from linnet.labs.core.verdicts import CLOSE, FAILS, HOLDS, UNTESTED

TOKENS = generation.TOKENS


QUIET = (0.99, 1.0, 1.01, 1.02, 0.98)
NOISY = (1.0, 2.0, 4.0, 8.0, 16.0)


def walked(
    preset: str,
    *,
    cached: float = 1.5,
    scatter: Sequence[float] = QUIET,
    pace: Sequence[float] = (1.0,) * 5,
    changes: dict[str, Any] | None = None,
) -> Row:
    """The engine takes 1 ms a value, plain torch 2 ms, the cache `cached` times that on average, with a scatter.

    pace: of the machine, round by round.
    """
    ramp = [0.5 + i / (TENTHS - 1) for i in range(TENTHS)]  # mean 1
    steps = {ENGINE: [[1e-3 * x for x in pace]] * TENTHS, TORCH: [[2e-3 * x for x in pace]] * TENTHS}
    steps[CACHE] = [[2e-3 * cached * x * y * z for y, z in zip(pace, scatter, strict=False)] for x in ramp]
    config = {
        "experiment": EXPERIMENT,
        "preset": preset,
        "tokens": TOKENS[preset],
        "steps": 12,
        "changes": changes or {},
    }
    ages = {name: {"first": [1e-3] * 3, "last": [x * 1e-3] * 3} for name, x in ((ENGINE, 1), (TORCH, 1), (CACHE, 3))}
    return {"config": config, "metrics": {"step_seconds": steps, "ages": ages, "image_seconds": [1.0, 1.1, 1.2]}}


def again(preset: str, mixer: str = "softmax", per_value: float = 0.1) -> Row:
    """Every pass takes the same time, so an image takes that times its values."""
    lengths = [TOKENS[preset] // 8, TOKENS[preset] // 2, TOKENS[preset]]
    fields = {"preset": preset, "mixer": mixer, "tokens": TOKENS[preset], "lengths": lengths}
    seconds = {str(n): [per_value, per_value] for n in lengths}
    return {"config": {"experiment": generation.EXPERIMENT, **fields}, "metrics": {"seconds": seconds}}


def rows(per_value: float = 0.1, **how: Any) -> list[Row]:
    return [row for preset in TOKENS for row in (walked(preset, **how), again(preset, per_value=per_value))]


@pytest.mark.parametrize(
    ("how", "outcome"),
    [
        ({}, HOLDS),
        ({"cached": 0.8}, FAILS),
        ({"cached": 1.0}, CLOSE),
        ({"per_value": 1e-3}, HOLDS),  # softmax without a cache is reported, and decides nothing
        ({"pace": NOISY}, UNTESTED),
        ({"pace": NOISY, "cached": 0.8}, UNTESTED),
        ({"pace": (1.0,) * 4}, UNTESTED),
        ({"changes": {"d_model": 32}}, UNTESTED),
    ],
)
def test_outcomes(how: dict[str, Any], outcome: str) -> None:
    assert CLAIM.read(rows(**how)).outcome == outcome


def test_a_missing_row_is_told() -> None:
    for i in range(4):
        finding = CLAIM.read([row for j, row in enumerate(rows()) if j != i])
        assert finding.outcome == UNTESTED
        assert ("MNIST" if i < 2 else "CIFAR-10") in finding.sentence


def test_what_a_reader_sees() -> None:
    finding = CLAIM.read([*rows(), again("mnist", "lsh-1", 0.04)])
    assert [round(one.ours, 3) for one in finding.numbers] == [1.5, 1.5, 1.1, 50, 1.1, 50]
    assert [one.paper for one in finding.numbers[:2]] == ["1.3", "1.6"]
    assert "cached softmax / linear" in finding.numbers[0].what
    assert "without a cache / linear in plain torch" in finding.numbers[3].what
    assert [float(x) for x in findall(r"([0-9.]+) times", finding.meaning)] == [
        1.5,
        1.5,
        3,
        3,
    ]  # torch, then the engine
    lines = {row[0]: row for row in finding.tables[0].rows}
    assert [float(x) for x in lines[CACHE][1:4]] == [2.352, 1.5, 3]
    assert [float(x) for x in lines["lsh-1, recomputed"][1:5]] == [31.36, 20, 40, 8.3]
    assert lines["lsh-1, recomputed"][-1] == "measured at lengths 98, 392, 784, summed over positions"
    assert lines[TORCH][-1] == "12 steps of every tenth measured, summed over positions"


def test_the_chart_is_of_the_steps() -> None:
    (chart,) = CLAIM.read(rows()).charts
    assert isinstance(chart, Chart)
    position, middle, low, high = chart.series[CACHE][0]
    assert 0 < position < 308
    assert (middle, low, high) == pytest.approx((1.5, 1.47, 1.53))
