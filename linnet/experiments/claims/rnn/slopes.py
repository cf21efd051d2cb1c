"""How something grows with length: the slope of its logarithm, and the length at which two curves cross.

slope    least squares of log y on log x: 1 is linear, 2 quadratic
crossing where log y_a = log y_b, straight lines between measured points in log-log axes
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log
from statistics import median

import numpy as np

from ..claim import Row

LAST = 3  # lengths that a slope is taken over


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def crossing(a: Mapping[int, float], b: Mapping[int, float]) -> float | None:
    """The length beyond which `a` stays below `b`; None if it is above at the last one, the first if never above."""
    lengths = sorted(set(a) & set(b))
    gaps = [log(a[n] / b[n]) for n in lengths]
    if not gaps or gaps[-1] >= 0:
        return None
    above = [i for i, gap in enumerate(gaps) if gap >= 0]
    if not above:
        return float(lengths[0])
    i = above[-1]
    share = gaps[i] / (gaps[i] - gaps[i + 1])
    return exp(log(lengths[i]) + share * (log(lengths[i + 1]) - log(lengths[i])))


class Curves:
    """arm -> length -> what was measured; slopes are taken within one row, whose lengths took turns."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.ms: dict[str, dict[int, list[float]]] = {}
        self.bytes: dict[str, dict[int, float]] = {}
        self.last: dict[str, dict[int, list[float]]] = {}  # of the row with the longest sequences of the arm
        for row in sorted(rows, key=longest):
            for arm, by_length in row["metrics"]["arms"].items():
                times = {int(length): found["ms"] for length, found in by_length.items()}
                sizes = {int(length): found["bytes"] for length, found in by_length.items() if found["bytes"]}
                self.ms[arm] = times | self.ms.get(arm, {})  # at a length in two rows: that of the shorter row
                self.bytes[arm] = sizes | self.bytes.get(arm, {})
                if len(times) >= LAST:
                    self.last[arm] = dict(sorted(times.items())[-LAST:])
        self.ms = {arm: dict(sorted(by.items())) for arm, by in self.ms.items() if by}
        self.bytes = {arm: dict(sorted(by.items())) for arm, by in self.bytes.items() if by}
        self.rounds = min((len(ms) for by in self.ms.values() for ms in by.values()), default=0)

    def middle(self, arm: str) -> dict[int, float]:
        return {length: median(ms) for length, ms in self.ms[arm].items()}

    def time_slopes(self, arm: str) -> list[float]:
        """One for each round."""
        last = self.last[arm]
        return [slope(list(last), [ms[turn] for ms in last.values()]) for turn in range(self.rounds)]

    def memory_slope(self, arm: str) -> float | None:
        last = list(self.bytes.get(arm, {}))[-LAST:]
        return slope(last, [self.bytes[arm][length] for length in last]) if len(last) == LAST else None

    def break_even(self, arm: str, other: str) -> list[float | None]:
        """One for each round: the length from which `arm` is faster than `other`."""
        return [
            crossing(*({length: ms[turn] for length, ms in self.ms[one].items()} for one in (arm, other)))
            for turn in range(self.rounds)
        ]


def longest(row: Row) -> int:
    """The longest sequence that a row of arms has."""
    return max(int(length) for by_length in row["metrics"]["arms"].values() for length in by_length)
