"""Statistics over seeds: means with bootstrap intervals, paired differences, windows of learning rates.

    interval(values)             percentile bootstrap of the mean (Efron 1979), 95 %
    paired(a, b)                 the same for a_i - b_i, where run i of both saw the same sequences
    expected_best(values, n)     mean of the best of n values drawn without replacement (Dodge et al. 2019)

The resampling is seeded by the number of values, so a table printed twice is the same table. The interval of one value
is that value and carries no information; the tables show the number of seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb, log10
from typing import NamedTuple

import numpy as np

DRAWS = 10_000
LEVEL = 0.95


class Interval(NamedTuple):
    """The mean over `seeds` values and its 95 % bootstrap interval."""

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
    """Return the mean and its bootstrap interval."""
    x = np.asarray(values, dtype=np.float64)
    if x.size == 0:
        raise ValueError("there are no values to average; accepted: one or more")
    if x.size == 1 or bool((x == x[0]).all()):
        return Interval(float(x.mean()), float(x.min()), float(x.max()), x.size)
    draws = np.random.default_rng(x.size).integers(x.size, size=(DRAWS, x.size))
    low, high = np.quantile(x[draws].mean(1), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(x.mean()), float(low), float(high), x.size)


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
