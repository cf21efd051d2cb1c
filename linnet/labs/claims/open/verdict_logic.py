"""Verdicts of several parts: all must hold for "confirmed", one contradiction is enough for "refuted".

    middle(rounds)            median of a timing's rounds, with a distribution-free interval of order statistics
    above(difference, mark)   HOLDS: the whole interval is at or above the mark; BROKEN: all of it is below; else OPEN

Differences are paired: run i of both variants saw the same sequences. An interval of fewer than FEWEST runs is
undecided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb
from statistics import median

from ...core.claim import CONFIRMED, REFUTED, UNCLEAR, Number, spread
from ...core.intervals import Interval
from ...core.verdicts import FEWEST as FEWEST

HOLDS, BROKEN, OPEN = "holds", "does not hold", "is undecided"


def middle(values: Sequence[float]) -> Interval:
    """Return the median (as `mean`) and the narrowest ranks with 95 % or more; the extremes of fewer than six."""
    x, n = sorted(values), len(values)
    enough = [k for k in range(1, n // 2 + 1) if 2 * sum(comb(n, i) for i in range(k)) <= 0.05 * 2**n]
    rank = max(enough, default=1)
    return Interval(median(x), x[rank - 1], x[n - rank], n)


def above(measured: Interval, mark: float) -> str:
    if measured.seeds < FEWEST:
        return OPEN
    return HOLDS if measured.low >= mark else BROKEN if measured.high < mark else OPEN


def below(measured: Interval, mark: float) -> str:
    return above(Interval(-measured.mean, -measured.high, -measured.low, measured.seeds), -mark)


def every(states: Sequence[str]) -> str:
    """Return one state for several that must all hold; OPEN if there is none."""
    if BROKEN in states:
        return BROKEN
    return HOLDS if states and all(state == HOLDS for state in states) else OPEN


def outcome(parts: Mapping[str, str]) -> str:
    return {HOLDS: CONFIRMED, BROKEN: REFUTED, OPEN: UNCLEAR}[every(list(parts.values()))]


def clauses(parts: Mapping[str, str]) -> str:
    """Return one clause for every part and its state."""
    return "; ".join(f"{part}: {state}" for part, state in parts.items())


def differences(a: Mapping[int, float], b: Mapping[int, float], scale: float = 1.0) -> list[float]:
    """Return (a - b) / scale of every seed that both have."""
    return [(a[seed] - b[seed]) / scale for seed in sorted(set(a) & set(b))]


def shown(what: str, measured: Interval, of: str = "seeds", unit: str = "") -> Number:
    """Return a number for which the paper has none."""
    return spread(what, None, measured, of, unit)
