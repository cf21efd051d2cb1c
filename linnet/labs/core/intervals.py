"""Statistics over seeds and rounds: means with Student's t, paired differences, medians, windows of learning rates.

    interval(values)             mean and 95 % interval of Student's t: valid for few values if they are roughly normal
    share_interval(values)       the same for shares such as recalls, cut at 0 and 1
    paired(a, b)                 the same for a_i - b_i, where run i of both saw the same sequences
    median_interval(rounds)      median of a timing's rounds, with a distribution-free interval of order statistics
    expected_best(values, n)     mean of the best of n values drawn without replacement (Dodge et al. 2019)

The interval of one value is that value and carries no information; the tables show the number of seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb, log10, sqrt
from statistics import median
from typing import NamedTuple

import numpy as np

LEVEL = 0.95
# The 97.5 % point of Student's t for 1 to 30 degrees of freedom
T_POINTS = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010, 2.1788, 2.1604, 2.1448,
    2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860, 2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484,
    2.0452, 2.0423,
)  # fmt: skip
NORMAL = 1.959964


class Interval(NamedTuple):
    """The mean over `seeds` values and its 95 % interval."""

    mean: float
    low: float
    high: float
    seeds: int

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"

    def apart(self, other: Interval) -> bool:
        """Return whether the intervals do not overlap and both have three seeds or more."""
        return min(self.seeds, other.seeds) >= 3 and (self.low > other.high or other.low > self.high)


def interval(values: Sequence[float]) -> Interval:
    """Return the mean and its t interval."""
    x = np.asarray(values, dtype=np.float64)
    if x.size == 0:
        raise ValueError("there are no values to average; accepted: one or more")
    if x.size == 1 or bool((x == x[0]).all()):
        return Interval(float(x.mean()), float(x.min()), float(x.max()), x.size)
    mean, half = float(x.mean()), t_point(x.size - 1) * float(x.std(ddof=1)) / sqrt(x.size)
    return Interval(mean, mean - half, mean + half, x.size)


def share_interval(values: Sequence[float]) -> Interval:
    """Return the interval of values from 0 to 1, such as recalls, without what lies outside of that range."""
    mean, low, high, seeds = interval(values)
    return Interval(mean, min(max(low, 0.0), mean), max(min(high, 1.0), mean), seeds)


def t_point(freedom: int) -> float:
    """Return the 97.5 % point of Student's t; beyond the table by its expansion in 1 / freedom (Fisher 1925)."""
    if freedom <= len(T_POINTS):
        return T_POINTS[freedom - 1]
    z = NORMAL
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def median_interval(values: Sequence[float]) -> Interval:
    """Return the median (as `mean`) and the narrowest ranks with 95 % or more; the extremes of fewer than six."""
    x, n = sorted(values), len(values)
    enough = [k for k in range(1, n // 2 + 1) if 2 * sum(comb(n, i) for i in range(k)) <= (1 - LEVEL) * 2**n]
    rank = max(enough, default=1)
    return Interval(median(x), x[rank - 1], x[n - rank], n)


def paired(a: Mapping[int, float], b: Mapping[int, float]) -> Interval:
    """Return the interval of a - b over the seeds that both have."""
    seeds = sorted(set(a) & set(b))
    if not seeds:
        raise ValueError(f"no seed in common: {sorted(a)} and {sorted(b)}; run both with the same seeds")
    return interval([a[seed] - b[seed] for seed in seeds])


def share(values: Sequence[float], least: float) -> float:
    """Return the fraction of the values that reach `least`."""
    return sum(value >= least for value in values) / len(values)


def window(by_rate: Mapping[float, float], least: float) -> float | None:
    """Return log10(highest / lowest) of the longest unbroken range of learning rates that reach `least`."""
    best: float | None = None
    start: float | None = None
    for rate in sorted(by_rate):
        if by_rate[rate] < least:
            start = None
            continue
        start = rate if start is None else start
        best = max(best or 0.0, log10(rate / start))
    return best


def expected_best(values: Sequence[float], draws: int) -> float:
    """Return the expected maximum of `draws` values picked without replacement."""
    ordered = sorted(values)
    n = len(ordered)
    if not 1 <= draws <= n:
        raise ValueError(f"draws is {draws}; accepted: 1 to {n}, as many as there are values")
    return sum(value * comb(i, draws - 1) for i, value in enumerate(ordered)) / comb(n, draws)
