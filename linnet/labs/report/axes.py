"""Axes: map values to positions on a drawing, and choose ticks.

    Axis(low, high, log, start, end).place(value)      linear or logarithmic; `end` may lie below `start`, as y does

Values that an axis cannot show (None, NaN, infinity, and zero or less on a logarithmic one) are left out by `usable`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from math import ceil, floor, isfinite, log10
from typing import Any, NamedTuple

TEXT = 11  # font size of all text on a drawing
LETTER = 0.56 * TEXT  # approximate width of a letter
POWERS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
MIN, MAX = 1e-307, 1.7e308  # nearly the smallest and the largest float
EXPONENT = re.compile(r"(?<![\w.])(-?)(\d+(?:\.\d+)?)e([+-]?)0*(\d+)\b")
LARGE = ((1e12, "T"), (1e9, "G"), (1e6, "M"))


class Axis(NamedTuple):
    low: float
    high: float
    log: bool
    start: float
    end: float

    def place(self, value: float) -> float:
        low, high, at = (log10(v) for v in (self.low, self.high, value)) if self.log else (self.low, self.high, value)
        return self.start + (self.end - self.start) * (at - low) / (high - low)

    def ticks(self) -> list[float]:
        return log_ticks(self.low, self.high) if self.log else linear_ticks(self.low, self.high)


def usable(value: Any, log: bool) -> bool:
    """Return whether an axis can show the value."""
    return isinstance(value, (int, float)) and isfinite(value) and not (log and value <= 0)


def reach(values: Iterable[float], log: bool, zero: bool = False) -> tuple[float, float]:
    """Return the ends of an axis that shows all values, and zero if requested or near; with room if all are equal."""
    low, high = min(values := list(values)), max(values)
    if log:
        room = 10 ** (0.06 * (log10(high) - log10(low))) if high > low else 2.0
        return max(low / room, MIN), min(high * room, MAX)
    if zero or 0 <= low <= 0.5 * high:
        low = min(low, 0)
    if zero or 0.5 * low <= high <= 0:
        high = max(high, 0)
    if low == high:
        room = abs(low) / 10 or 1.0
        return low - room, high + room
    room = 0.06 * (high - low)
    return low - (room if low else 0), high + (room if high else 0)


def linear_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return multiples of 1, 2 or 5 times a power of ten."""
    power = 10.0 ** floor(log10((high - low) / most))
    step = next(power * factor for factor in (1, 2, 5, 10, 20) if (high - low) / (power * factor) <= most)
    return [step * i for i in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return powers of ten; within two decades also 2 and 5 times them, within less linear ticks."""
    first, last = ceil(log10(low) - 1e-9), floor(log10(high) + 1e-9)
    if last - first >= 2:
        return [10.0**i for i in range(first, last + 1, ceil((last - first + 1) / most))]
    ticks = [factor * 10.0**i for i in range(first - 1, last + 1) for factor in (1, 2, 5)]
    ticks = [tick for tick in ticks if low <= tick <= high]
    return ticks if len(ticks) >= 2 else [tick for tick in linear_ticks(low, high) if tick > 0]


def tick_label(value: float) -> str:
    """Format a tick: 1,000 and 0.01, 2M for millions, 10⁻⁶ for values far from one."""
    size = abs(value)
    for large, letter in LARGE:
        if large <= size < 1e15:
            return f"{value / large:,.6g}{letter}"
    if size and (size < 1e-3 or size >= 1e15):
        digits, _, power = f"{value:.3g}".partition("e") if "e" in f"{value:.3g}" else f"{value:.2e}".partition("e")
        digits = f"{float(digits):g}"
        return ("" if digits == "1" else f"{digits}×") + "10" + str(int(power)).translate(POWERS)
    return f"{value:,.6g}"


def short(value: Any) -> str:
    """Format a value: three or four significant figures, thousands separated; a dash for a missing one."""
    if not usable(value, False):
        return "-" if value is None or isinstance(value, float) else str(value)
    if abs(value) >= 1e9 or 0 < abs(value) < 1e-3:
        return readable(f"{value:.2g}")
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}" if abs(value) >= 100 else f"{value:.3g}"


def readable(words: str) -> str:
    """Return the words with powers of ten for exponents: 6.2e-16 is 6.2 × 10⁻¹⁶, and 1e-3 is 10⁻³."""

    def power(match: re.Match[str]) -> str:
        sign, digits, minus, exponent = match.groups()
        ten = "10" + (minus.replace("+", "") + exponent).translate(POWERS)
        return f"{sign}{ten}" if digits == "1" else f"{sign}{digits} × {ten}"

    return EXPONENT.sub(power, words)


def fitting(places: Sequence[float], words: Sequence[str]) -> list[int]:
    """Return the indices of the words that fit in a row at their places: all, or every second, third and so on."""
    for step in range(1, len(places) + 1):
        chosen = list(range(0, len(places), step))
        if all(
            abs(places[b] - places[a]) > LETTER * (len(words[a]) + len(words[b])) / 2 + 6 for a, b in pairwise(chosen)
        ):
            return chosen
    return []


def shortened(words: str, width: float) -> str:
    """Return the words if they fit this width, else their beginning and an ellipsis."""
    most = max(1, int(width / LETTER + 1e-6))
    return words if len(words) <= most else words[: most - 1].rstrip() + "…"


def at_values(axis: Axis, values: Iterable[float], label: Callable[[float], str] = tick_label) -> list[float]:
    """Return ticks at the values, if they are few and their labels fit; else the ticks of the axis."""
    distinct = sorted(set(values))
    places = [axis.place(value) for value in distinct]
    few = len(distinct) <= 8 and len(fitting(places, [label(value) for value in distinct])) == len(distinct)
    return distinct if few else axis.ticks()
