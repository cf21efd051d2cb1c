"""The vocabulary in which every experiment states its result: what a rule found, and the outcome that may be printed.

YES, NO, OPEN                               what a rule reads from rows: the statement is true, false, undecided
HOLDS, FAILS, CLOSE, SEEN, NOT_SEEN, UNTESTED     the outcome, once licence.py has looked at regime and controls
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .intervals import Interval, share_interval

YES, NO, OPEN = "yes", "no", "open"
HOLDS, FAILS, CLOSE, UNTESTED = "holds", "does not hold", "too close to call", "not tested here"
SEEN, NOT_SEEN = "seen here", "not seen here"  # outside the regime of the statement: at this size only
ERROR = "error"
OUTCOMES = (HOLDS, FAILS, CLOSE, SEEN, NOT_SEEN, UNTESTED)
FEWEST = 3  # seeds that a cell needs before a rule looks at it
Cell = tuple[Any, ...]


@dataclass(frozen=True)
class Verdict:
    """What a rule found, YES, NO, OPEN or UNTESTED where it lacks rows, and why in one sentence with its numbers."""

    state: str
    sentence: str


@dataclass(frozen=True)
class Table:
    """A table for a terminal, a page or a report."""

    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    title: str = ""


def intervals(cells: dict[Cell, dict[int, float]]) -> dict[Cell, Interval]:
    """Return the intervals of the accuracies of cells."""
    return {cell: share_interval(list(seeds.values())) for cell, seeds in cells.items()}


def missing(cells: Mapping[Cell, Mapping[int, float]], wanted: Iterable[Cell]) -> Verdict | None:
    """Return the verdict UNTESTED if a cell that the rule needs has fewer than FEWEST seeds, else None."""
    for cell in wanted:
        if len(cells.get(cell, {})) < FEWEST:
            has = len(cells.get(cell, {}))
            seeds = f"{has} seed{'s' * (has != 1)}"
            return Verdict(UNTESTED, f"{', '.join(map(shown, cell))}: {seeds}, and the rule needs {FEWEST} or more")
    return None


def table(title: str, head: Sequence[str], cells: Mapping[Cell, Interval]) -> Table:
    """Return one row per cell: its values, its mean and interval, and its number of seeds."""
    rows = [(*map(shown, cell), str(measured), str(measured.seeds)) for cell, measured in cells.items()]
    return Table((*head, "accuracy", "seeds"), rows, title)


def shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
