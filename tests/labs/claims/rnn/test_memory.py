"""T3: what is kept is counted right; the rule's outcomes."""

from __future__ import annotations

from typing import Any

import pytest

from linnet.labs.claims.rnn import memory
from linnet.labs.core.verdicts import CLOSE, FAILS, HOLDS, UNTESTED

SIZES = {"experiment": "memory", "heads": 2, "features": 8, "values": 8}
LENGTHS = [64, 128, 256]


def row(variant: str, kept: float, grown: float | None, power: float = 1.0) -> dict[str, Any]:
    """Bytes per token at 64 tokens, growing with this power; results take 100 a token."""
    scale = [length * (length / 64) ** (power - 1) for length in LENGTHS]
    metrics = {
        "kept": [kept * x for x in scale],
        "grown": [None if grown is None else grown * x for x in scale],
        "results": [100 * length for length in LENGTHS],
    }
    return {"config": {**SIZES, "arm": variant, "lengths": LENGTHS}, "metrics": metrics}


STATES = 4 * 2 * 8 * 8  # bytes a token
NAIVE = row(memory.NAIVE, 1.1 * STATES, 4.0 * STATES)


@pytest.mark.parametrize(
    ("sums", "naive", "outcome"),
    [
        (row(memory.SUMS, 10, 100 + 0.04 * STATES), NAIVE, HOLDS),
        (row(memory.SUMS, 10, 100 + 0.06 * STATES), NAIVE, CLOSE),
        (row(memory.SUMS, 10, 100 + 1.1 * STATES), NAIVE, FAILS),
        (row(memory.SUMS, 10, 100.0), row(memory.NAIVE, 2 * STATES, 4.0 * STATES), CLOSE),
        (row(memory.SUMS, 10, 100.0), row(memory.NAIVE, STATES, 4.0 * STATES, 1.2), CLOSE),
        (row(memory.SUMS, 10, 50.0, 1.3), NAIVE, CLOSE),
    ],
)
def test_outcomes(sums: dict[str, Any], naive: dict[str, Any], outcome: str) -> None:
    assert memory.read([sums, naive]).outcome == outcome


def test_numbers() -> None:
    result = memory.read([row(memory.SUMS, 10, 100 + 0.04 * STATES), NAIVE])
    share, kept, peak, slope = (one.ours for one in result.numbers)
    assert (share, kept, peak, slope) == (pytest.approx(4), pytest.approx(1.1), pytest.approx(4), pytest.approx(1))


def test_what_is_missing_is_said() -> None:
    assert memory.read([NAIVE]).sentence == "there is no row of cumulative sums"
    unknown = memory.read([row(memory.SUMS, 10, None), NAIVE])
    assert unknown.outcome == UNTESTED
    assert "does not say" in unknown.sentence


def test_kept_bytes_are_those_of_the_states() -> None:
    config = {**SIZES, "lengths": [64, 128]}
    naive, sums = (memory.measure({**config, "arm": variant})["kept"] for variant in (memory.NAIVE, memory.SUMS))
    for length, all_states, own in zip(config["lengths"], naive, sums, strict=True):
        assert STATES * length <= all_states < 1.6 * STATES * length
        assert own < 0.5 * STATES * length  # at width 8, out and 1 / denominator alone are a seventh


@pytest.mark.slow
def test_a_failing_process_is_an_error_with_its_words() -> None:
    with pytest.raises(RuntimeError, match=r"(?s)ended with 1: .*KeyError"):
        memory.apart({"experiment": "memory"})
