"""Growth with length: log-log slopes, least squares of log y on log x: 1 is linear, 2 quadratic."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import numpy as np

from ...core.claim import Row

LAST = 3  # lengths of a slope


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


class Curves:
    """Measurements by variant and length; slopes are taken within one row, whose lengths took turns."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.ms: dict[str, dict[int, list[float]]] = {}
        self.bytes: dict[str, dict[int, float]] = {}
        self.last: dict[str, dict[int, list[float]]] = {}  # of the row with the longest sequences of the variant
        for row in sorted(rows, key=longest):
            for variant, by_length in row["metrics"]["arms"].items():
                times = {int(length): entry["ms"] for length, entry in by_length.items()}
                sizes = {int(length): entry["bytes"] for length, entry in by_length.items() if entry["bytes"]}
                self.ms[variant] = times | self.ms.get(variant, {})  # at a length in two rows: that of the shorter row
                self.bytes[variant] = sizes | self.bytes.get(variant, {})
                if len(times) >= LAST:
                    self.last[variant] = dict(sorted(times.items())[-LAST:])
        self.ms = {variant: dict(sorted(by.items())) for variant, by in self.ms.items() if by}
        self.bytes = {variant: dict(sorted(by.items())) for variant, by in self.bytes.items() if by}
        self.rounds = min((len(ms) for by in self.ms.values() for ms in by.values()), default=0)

    def middle(self, variant: str) -> dict[int, float]:
        return {length: median(ms) for length, ms in self.ms[variant].items()}

    def time_slopes(self, variant: str) -> list[float]:
        """Return one slope per round."""
        last = self.last[variant]
        return [slope(list(last), [ms[turn] for ms in last.values()]) for turn in range(self.rounds)]

    def memory_slope(self, variant: str) -> float | None:
        last = list(self.bytes.get(variant, {}))[-LAST:]
        return slope(last, [self.bytes[variant][length] for length in last]) if len(last) == LAST else None


def longest(row: Row) -> int:
    """Return the longest sequence of a row."""
    return max(int(length) for by_length in row["metrics"]["arms"].values() for length in by_length)
