"""What an interval says about a mark: YES if all of it lies on the right side, NO if none of it does, OPEN otherwise.

Differences are paired: run i of both variants saw the same sequences.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...core.claim import NO, OPEN, YES, Number, spread
from ...core.intervals import Interval, interval


def above(measured: Interval, mark: float) -> str:
    return YES if measured.low >= mark else NO if measured.high < mark else OPEN


def below(measured: Interval, mark: float) -> str:
    return YES if measured.high <= mark else NO if measured.low > mark else OPEN


def between(measured: Interval, low: float, high: float) -> str:
    outside = measured.high < low or measured.low > high
    return NO if outside else YES if low <= measured.low and measured.high <= high else OPEN


def differences(a: Mapping[int, float], b: Mapping[int, float]) -> list[float]:
    """Return a - b of every seed that both have."""
    return [a[seed] - b[seed] for seed in sorted(set(a) & set(b))]


def share(values: Iterable[float]) -> Interval:
    """Return the mean and t interval of shares, which lie between 0 and 1."""
    mean, low, high, seeds = interval(list(values))
    return Interval(mean, max(low, 0.0), min(high, 1.0), seeds)


def shown(what: str, measured: Interval, of: str = "seeds", unit: str = "") -> Number:
    """Return a number for which the paper has none."""
    return spread(what, None, measured, of, unit)
