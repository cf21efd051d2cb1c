"""The verdict on throughput from rows whose times are known."""

from __future__ import annotations

from collections.abc import Sequence
from re import findall
from typing import Any

import pytest

from linnet.labs.claims.rnn import generation, throughput
from linnet.labs.claims.rnn.image_decode_timing import CACHE, ENGINE, TORCH
from linnet.labs.claims.rnn.streams import EARLY, LATE
from linnet.labs.claims.rnn.throughput import CLAIM, EXPERIMENT
from linnet.labs.core.claim import Row
from linnet.labs.core.verdicts import CLOSE, FAILS, HOLDS, UNTESTED

TOKENS, BYTES = generation.TOKENS, {"mnist": (270_336, 12_845_056), "cifar10": (540_672, 100_663_296)}


QUIET = (0.98, 0.99, 1.0, 1.01, 1.02)
NOISY = (1.0, 2.0, 4.0, 8.0, 16.0)


def streams(
    preset: str,
    batch: int,
    *,
    late: float = 1.0,
    cached: float = 1.0,
    scatter: Sequence[float] = QUIET,
    pace: Sequence[float] = (1.0,) * 5,
    linear: int = 0,
) -> Row:
    """Plain torch takes 4 ms for one stream and half of that for each of many; a late cached value 5 times as long.

    scatter: of the rounds of late linear values and of early cached ones; pace: of the machine, round by round.
    """
    step = 4e-3 * (batch / 2 if batch > 1 else 1)
    times = {
        ENGINE: {EARLY: [step / 2 * x for x in pace], LATE: [step / 2 * x for x in pace]},
        TORCH: {EARLY: [step * x for x in pace], LATE: [step * late * x for x in times_of(pace, scatter)]},
        CACHE: {
            EARLY: [step * cached * x for x in times_of(pace, scatter)],
            LATE: [5 * step * cached * x for x in pace],
        },
    }
    held = {"linear": linear or BYTES[preset][0], "cached": BYTES[preset][1]}
    config = {"experiment": EXPERIMENT, "preset": preset, "tokens": TOKENS[preset], "batch": batch, "changes": {}}
    return {"config": config, "metrics": {"cached_streams": batch, "bytes": held, "step_seconds": times}}


def times_of(pace: Sequence[float], scatter: Sequence[float]) -> list[float]:
    return [x * y for x, y in zip(pace, scatter, strict=False)]


def again(preset: str) -> Row:
    lengths = [TOKENS[preset] // 8, TOKENS[preset] // 2, TOKENS[preset]]
    config = {"experiment": generation.EXPERIMENT, "preset": preset, "mixer": "softmax", "tokens": TOKENS[preset]}
    metrics = {"seconds": {str(n): [0.1, 0.1] for n in lengths}}
    return {"config": {**config, "changes": {}}, "metrics": metrics}


def rows(**how: Any) -> list[Row]:
    return [row for p in TOKENS for row in (streams(p, 1, **how), streams(p, 8, **how), again(p))]


@pytest.mark.parametrize(
    ("how", "outcome"),
    [
        ({}, HOLDS),
        ({"cached": 0.4}, FAILS),  # 1.2 times as many images
        ({"cached": 2 / 3}, CLOSE),  # twice as many
        ({"late": 1.3}, FAILS),
        ({"scatter": (0.9, 0.9, 1.0, 1.15, 1.2)}, CLOSE),
        ({"linear": 270_340}, UNTESTED),  # not the paper's network
        ({"pace": NOISY}, UNTESTED),
        ({"pace": NOISY, "late": 1.3}, UNTESTED),
        ({"pace": (1.0,) * 4}, UNTESTED),
    ],
)
def test_outcomes(how: dict[str, Any], outcome: str) -> None:
    assert CLAIM.read(rows(**how)).outcome == outcome


def test_a_missing_row_is_told() -> None:
    for i in range(6):
        result = CLAIM.read([row for j, row in enumerate(rows()) if j != i])
        assert result.outcome == UNTESTED
        assert ("MNIST" if i < 3 else "CIFAR-10") in result.sentence


def test_the_bytes_are_those_of_the_presets() -> None:
    for preset, size in throughput.STATE_BYTES.items():
        assert generation.linear_model(generation.size(preset, smoke=False)).state_bytes(TOKENS[preset]) == size


def test_what_a_reader_sees() -> None:
    result = CLAIM.read(rows())
    numbers = {one.what: one for one in result.numbers}
    gain = numbers["MNIST, images/s of linear / cached softmax, both in the same plain torch, each at its best batch"]
    assert gain.ours == pytest.approx(3, rel=0.01)  # early the same, late five times as long
    assert numbers[f"MNIST, time of a late value / an early one, {CACHE}"].ours == pytest.approx(5)
    uncached = numbers["MNIST, images/s of linear, many at once / softmax without a cache, one at a time"]
    assert "against uncached" in str(uncached.paper)
    assert uncached.ours == pytest.approx(0.1 / 2e-3)  # 8 streams in 16 ms
    assert result.numbers[-1].ours == pytest.approx(100_663_296 / 540_672)
    assert [float(x) for x in findall(r"([0-9.]+) for (?:MNIST|CIFAR-10)", result.meaning)] == [6, 6]
    line = next(row for row in result.tables[0].rows if row[:3] == ("MNIST", CACHE, "8"))
    assert [float(x) for x in line[3:6]] == [500, 100, 5]  # medians of the rounds
    assert result.tables[1].rows[1] == ("CIFAR-10", "540,672", "100,663,296")


def test_a_factor_against_uncached_says_so() -> None:
    finding = CLAIM.read(rows())
    for text in (CLAIM.source, finding.meaning, *(str(one.paper) for one in finding.numbers)):
        if "317" in text or "4,462" in text:
            assert "against uncached" in text
