"""T16: the rule's outcomes, the derived mean, float16 limits, and sums that are what they are called."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from linnet.labs.claims.rnn import numerics
from linnet.labs.claims.rnn.numerics import BLOCKS, ONE
from linnet.labs.core.verdicts import CLOSE, FAILS, HOLDS, UNTESTED


def rows(one: float = 1e-4, blocks: float = 1e-6, shift: float = 1.0, tokens: int = 1_000_000) -> list[dict[str, Any]]:
    drift = {"worst": {ONE: one, BLOCKS: blocks}, "every": 2, "errors": {ONE: [1e-7, one], BLOCKS: [0.0, blocks]}}
    collected: list[dict[str, Any]] = [
        {"config": {"kind": "drift", "tokens": tokens, "width": 8, "seed": seed}, "metrics": drift} for seed in range(5)
    ]
    for width in numerics.WIDTHS_16:
        limits = {"denominator": shift * numerics.predicted(width), "entry": 56_000.0, "sum": 10.0, "exact": 100.0}
        collected += [
            {"config": {"kind": "float16", "width": width, "seed": seed}, "metrics": limits} for seed in range(3)
        ]
    return collected


@pytest.mark.parametrize(
    ("how", "outcome"),
    [
        ({}, HOLDS),
        ({"one": 2e-3}, CLOSE),
        ({"blocks": 2e-5}, CLOSE),
        ({"shift": 1.06}, CLOSE),
        ({"shift": 1.6}, FAILS),
        ({"blocks": 2e-4}, FAILS),
        ({"tokens": 20_000}, UNTESTED),
    ],
)
def test_outcomes(how: dict[str, Any], outcome: str) -> None:
    assert numerics.read(rows(**how)).outcome == outcome


def test_numbers() -> None:
    one, blocks, narrow, wide, entry, share = numerics.read(rows()).numbers
    assert (one.ours, blocks.ours) == (pytest.approx(1e-4), pytest.approx(1e-6))
    assert (narrow.ours, wide.ours) == (pytest.approx(1520, abs=1), pytest.approx(760, abs=1))
    assert (entry.ours, share.ours) == (56_000, pytest.approx(0.1))
    assert entry.what.endswith("derived: 56,444")
    assert numerics.read(rows()[:5]).sentence == "float16 limits are missing"


def test_the_derived_mean() -> None:
    x = torch.randn(1_000_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert float((torch.nn.functional.elu(x) + 1).mean()) == pytest.approx(numerics.MEAN, abs=3e-3)


def test_overflow_is_the_first_row_float16_cannot_hold() -> None:
    sums = np.array([[1.0, 1.0, 1.0], [65504.0, 2.0, 65504.0], [70000.0, 3.0, 70000.0]])
    assert numerics.overflow(sums) == 3
    assert numerics.overflow(sums[:, :1] * 2) == 2


def test_one_by_one_rounds_at_every_token() -> None:
    """Each of these is lost beside 2^24 in float32; together, in one addition, they would not be."""
    start = torch.full((1, 2), float(2**24))
    after = numerics.one_by_one(torch.ones(100, 1), torch.ones(100, 2), start)
    assert float(after[0, 0]) == 2**24
    exact = numerics.one_by_one(torch.ones(100, 1), torch.ones(100, 2), torch.zeros(1, 2))
    assert float(exact[0, 1]) == 100
