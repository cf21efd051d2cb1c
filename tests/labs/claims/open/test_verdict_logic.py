"""What an interval says about a mark, paired differences, and shares."""

from __future__ import annotations

import pytest

from linnet.labs.claims.open.verdict_logic import above, below, between, differences, share, shown
from linnet.labs.core.intervals import Interval
from linnet.labs.core.verdicts import NO, OPEN, YES


@pytest.mark.parametrize(
    ("low", "high", "over", "under", "inside"),
    [
        (0.6, 0.8, YES, NO, OPEN),
        (0.1, 0.3, NO, YES, NO),
        (0.4, 0.6, OPEN, OPEN, YES),
        (0.8, 0.9, YES, NO, NO),
        (0.5, 0.5, YES, YES, YES),  # the mark itself counts
    ],
)
def test_an_interval_is_on_one_side_of_a_mark_or_undecided(
    low: float, high: float, over: str, under: str, inside: str
) -> None:
    result = Interval((low + high) / 2, low, high, 5)
    assert (above(result, 0.5), below(result, 0.5), between(result, 0.4, 0.7)) == (over, under, inside)


def test_differences_are_of_the_seeds_that_both_have() -> None:
    assert differences({0: 3.0, 1: 5.0, 2: 9.0}, {1: 1.0, 0: 1.0, 7: 0.0}) == [2.0, 4.0]


def test_the_interval_of_shares_stays_between_0_and_1() -> None:
    assert share([0.0, 0.5, 1.0]) == Interval(0.5, 0.0, 1.0, 3)
    narrow = share([0.4, 0.5, 0.6])
    assert 0.0 < narrow.low < 0.4
    assert 0.6 < narrow.high < 1.0


def test_one_value_is_shown_without_an_interval() -> None:
    assert shown("x", Interval(1.0, 1.0, 1.0, 1)).spread() == "-"
    assert shown("x", Interval(2.0, 1.0, 3.0, 4), "rounds").spread() == "[1, 3] of 4 rounds"
