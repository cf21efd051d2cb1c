"""A verdict of several parts: all must hold for "confirmed", one that is contradicted is enough for "refuted".

    middle(rounds)            median of a timing's rounds; its interval is made of order statistics, whatever the noise
    above(difference, mark)   HOLDS: the whole interval is at the mark or over it; BROKEN: all of it is under; else OPEN

Differences are paired: run i of both arms saw the same sequences. An interval of fewer than FEWEST runs decides
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb
from statistics import median

from ...recall.stats import Interval
from ...recall.study import FEWEST as FEWEST
from ..claim import CONFIRMED, REFUTED, UNCLEAR, Number, spread

HOLDS, BROKEN, OPEN = "holds", "does not hold", "is undecided"


def middle(values: Sequence[float]) -> Interval:
    """The median (as `mean`) and the narrowest pair of ranks with 95 % or more; the extremes of fewer than six."""
    x, n = sorted(values), len(values)
    enough = [k for k in range(1, n // 2 + 1) if 2 * sum(comb(n, i) for i in range(k)) <= 0.05 * 2**n]
    rank = max(enough, default=1)
    return Interval(median(x), x[rank - 1], x[n - rank], n)


def above(found: Interval, mark: float) -> str:
    if found.seeds < FEWEST:
        return OPEN
    return HOLDS if found.low >= mark else BROKEN if found.high < mark else OPEN


def below(found: Interval, mark: float) -> str:
    return above(Interval(-found.mean, -found.high, -found.low, found.seeds), -mark)


def every(states: Sequence[str]) -> str:
    """One state for several that must all hold; OPEN when there is none."""
    if BROKEN in states:
        return BROKEN
    return HOLDS if states and all(state == HOLDS for state in states) else OPEN


def outcome(parts: Mapping[str, str]) -> str:
    return {HOLDS: CONFIRMED, BROKEN: REFUTED, OPEN: UNCLEAR}[every(list(parts.values()))]


def spelled(parts: Mapping[str, str]) -> str:
    """Every part and its state in one clause each."""
    return "; ".join(f"{part}: {state}" for part, state in parts.items())


def differences(a: Mapping[int, float], b: Mapping[int, float], scale: float = 1.0) -> list[float]:
    """(a - b) / scale of every seed that both have."""
    return [(a[seed] - b[seed]) / scale for seed in sorted(set(a) & set(b))]


def shown(what: str, found: Interval, of: str = "seeds", unit: str = "") -> Number:
    """A line without a paper's number."""
    return spread(what, None, found, of, unit)
