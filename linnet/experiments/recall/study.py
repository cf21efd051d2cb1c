"""A study: one question about recall, the runs that answer it, and the rule that turns their rows into a verdict.

    configs(budget)   smoke: seconds, to see that it runs    brief: the smallest that can answer, half a minute
                      quick: minutes on 2 cores              hour       paper: published sizes
    verdict(rows)     confirmed, refuted, unclear, or not testable when the rows for it are missing

The rule is written down before the rows are made. Accuracy is that of the last step; where several learning rates were
run, a cell takes the one whose mean is best on held-out sequences kept for choosing, and reports on the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..results import Row
from .config import RecallConfig
from .stats import Interval, interval

BUDGETS = ("smoke", "brief", "quick", "hour", "paper")
CONFIRMED, REFUTED, UNCLEAR, UNTESTED = "confirmed", "refuted", "unclear", "not testable"
FEWEST = 3  # seeds of a cell that a verdict may rest on
BRIEF = RecallConfig(seq_len=16, pairs=4, vocab_size=32, d_model=32, batch_size=32, steps=250, beta2=0.95)
Cell = tuple[Any, ...]


@dataclass(frozen=True)
class Verdict:
    """What the rows say of the claim, in one sentence with its numbers."""

    outcome: str
    sentence: str


@dataclass(frozen=True)
class Table:
    """For a terminal, a page or a report."""

    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    title: str = ""


@dataclass(frozen=True)
class Study:
    """See the top of this file."""

    name: str
    claim: str  # its number in the list of claims: C2
    question: str
    expected: str  # what the papers, or the argument, say
    rule: str  # how the verdict is found
    configs: Callable[[str], list[RecallConfig]]
    verdict: Callable[[Sequence[Row]], Verdict]
    tables: Callable[[Sequence[Row]], list[Table]]
    cost: dict[str, str] = field(default_factory=dict)  # of each budget on two cores
    maps: Callable[[Sequence[Row]], list[dict[str, Any]]] | None = None  # figures, for reports/recall.py


def grid(base: RecallConfig, **axes: Iterable[Any]) -> list[RecallConfig]:
    """Every combination of the values of the axes."""
    found = [base]
    for name, values in axes.items():
        found = [config.but(**{name: value}) for config in found for value in values]
    return found


def value(config: dict[str, Any], name: str) -> Any:
    """A field of a row's configuration, which has its default when the row does not name it."""
    return getattr(RecallConfig.from_dict(config), name)


def by_cell(rows: Sequence[Row], key: Callable[[RecallConfig], Cell], metric: str = "accuracy") -> dict[Cell, Any]:
    """cell -> {seed: metric} at the learning rate that is best for the cell by the sequences kept for choosing."""
    found: dict[Cell, dict[float, dict[int, Row]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        config = RecallConfig.from_dict(row["config"])
        if not config.stop_at:
            found[key(config)][config.lr][config.seed] = row
    return {
        cell: {seed: row["metrics"][metric] for seed, row in sorted(rates[best_rate(rates)].items())}
        for cell, rates in found.items()
    }


def best_rate(rates: dict[float, dict[int, Row]]) -> float:
    """Of the rates with the most seeds, the one with the best mean on the sequences for choosing."""
    most = max(len(seeds) for seeds in rates.values())
    means = {
        rate: sum(row["metrics"]["chosen_by"] or 0.0 for row in seeds.values()) / len(seeds)
        for rate, seeds in rates.items()
        if len(seeds) == most
    }
    return max(sorted(means), key=lambda rate: means[rate])


def intervals(cells: dict[Cell, dict[int, float]]) -> dict[Cell, Interval]:
    return {cell: interval(list(seeds.values())) for cell, seeds in cells.items()}


def missing(cells: Mapping[Cell, Mapping[int, float]], wanted: Iterable[Cell]) -> Verdict | None:
    """The verdict when a cell the rule needs has no row, or too few seeds for an interval to mean anything."""
    for cell in wanted:
        if len(cells.get(cell, {})) < FEWEST:
            has = len(cells.get(cell, {}))
            return Verdict(UNTESTED, f"{', '.join(map(shown, cell))}: {has} seeds, and the rule wants {FEWEST} or more")
    return None


def table(title: str, head: Sequence[str], cells: Mapping[Cell, Interval]) -> Table:
    """One row for each cell: what it is, its mean and interval, and how many seeds that is of."""
    rows = [(*map(shown, cell), str(found), str(found.seeds)) for cell, found in cells.items()]
    return Table((*head, "accuracy", "seeds"), rows, title)


def shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
