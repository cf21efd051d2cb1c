"""Verdicts and their tables: the vocabulary in which every experiment states its result.

CONFIRMED, REFUTED, UNCLEAR, UNTESTED     the possible outcomes of a rule; UNTESTED where it lacks rows
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .intervals import Interval, interval

CONFIRMED, REFUTED, UNCLEAR, UNTESTED = "confirmed", "refuted", "unclear", "not testable"
FEWEST = 3  # seeds that a cell needs for a verdict
Cell = tuple[Any, ...]


@dataclass(frozen=True)
class Verdict:
    """The outcome of a rule, and why in one sentence with its numbers."""

    outcome: str
    sentence: str


@dataclass(frozen=True)
class Table:
    """A table for a terminal, a page or a report."""

    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    title: str = ""


def intervals(cells: dict[Cell, dict[int, float]]) -> dict[Cell, Interval]:
    return {cell: interval(list(seeds.values())) for cell, seeds in cells.items()}


def missing(cells: Mapping[Cell, Mapping[int, float]], wanted: Iterable[Cell]) -> Verdict | None:
    """Return the verdict "not testable" if a cell that the rule needs has fewer than FEWEST seeds, else None."""
    for cell in wanted:
        if len(cells.get(cell, {})) < FEWEST:
            has = len(cells.get(cell, {}))
            return Verdict(UNTESTED, f"{', '.join(map(shown, cell))}: {has} seeds, and the rule wants {FEWEST} or more")
    return None


def table(title: str, head: Sequence[str], cells: Mapping[Cell, Interval]) -> Table:
    """Return one row per cell: its values, its mean and interval, and its number of seeds."""
    rows = [(*map(shown, cell), str(measured), str(measured.seeds)) for cell, measured in cells.items()]
    return Table((*head, "accuracy", "seeds"), rows, title)


def shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
