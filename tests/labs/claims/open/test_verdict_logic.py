"""Verdicts of several parts."""

from __future__ import annotations

import pytest

from linnet.labs.claims.open.verdict_logic import (
    BROKEN,
    HOLDS,
    OPEN,
    above,
    below,
    differences,
    every,
    middle,
    outcome,
    shown,
)
from linnet.labs.core.claim import CONFIRMED, REFUTED, UNCLEAR
from linnet.labs.core.intervals import Interval


@pytest.mark.parametrize(
    ("low", "high", "seeds", "over", "under"),
    [(0.6, 0.9, 3, HOLDS, BROKEN), (0.1, 0.4, 3, BROKEN, HOLDS), (0.4, 0.6, 3, OPEN, OPEN), (0.6, 0.9, 2, OPEN, OPEN)],
)
def test_an_interval_is_over_a_mark_under_it_or_neither(
    low: float, high: float, seeds: int, over: str, under: str
) -> None:
    result = Interval((low + high) / 2, low, high, seeds)
    assert (above(result, 0.5), below(result, 0.5)) == (over, under)


def test_one_broken_part_refutes_and_one_open_part_leaves_it_open() -> None:
    assert outcome({"a": HOLDS, "b": HOLDS}) == CONFIRMED
    assert outcome({"a": OPEN, "b": BROKEN}) == REFUTED
    assert outcome({"a": HOLDS, "b": OPEN}) == UNCLEAR
    assert every([]) == OPEN


def test_differences_are_of_the_seeds_that_both_have() -> None:
    assert differences({0: 3.0, 1: 5.0, 2: 9.0}, {1: 1.0, 0: 1.0, 7: 0.0}, scale=2.0) == [1.0, 2.0]


def test_one_value_is_shown_without_an_interval() -> None:
    assert shown("x", Interval(1.0, 1.0, 1.0, 1)).spread() == "-"
    assert shown("x", Interval(2.0, 1.0, 3.0, 4), "rounds").spread() == "[1, 3] of 4 rounds"


def test_the_median_of_rounds_does_not_mind_one_bad_round() -> None:
    values = [*range(1, 15), 1000]  # of 15, ranks 4 and 12 hold 96 %: 2 (1 + 15 + 105 + 455) / 2^15 = 3.5 % lie outside
    assert middle(values) == Interval(8, 4, 12, 15)
    assert middle([3.0, 1.0, 2.0]) == Interval(2.0, 1.0, 3.0, 3)
