"""A claim: what a paper says, the work that tests it here, and the rule that turns rows into a verdict.

    units(setting)   the work of a budget: quick (seconds to a minute), hour (minutes), paper (the published sizes)
    read(rows)       outcome, numbers with intervals, tables, curves, and what it means for someone choosing a model

The rule is written before the rows are made, and every number shown is computed from rows. A claim whose rows are
missing is "not testable" and says what is missing; one whose work failed is an error, never a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from ..recall.stats import Interval, interval
from ..recall.study import CONFIRMED, REFUTED, UNCLEAR, UNTESTED, Table
from ..results import Row, key, make_row

BUDGETS = ("smoke", "quick", "hour", "paper")
ERROR = "error"
OUTCOMES = (CONFIRMED, REFUTED, UNCLEAR, UNTESTED)
PAPERS = {
    "rnn": "Transformers are RNNs (Katharopoulos et al. 2020)",
    "rebased": "ReBased and Based (Aksenov et al. 2024; Arora et al. 2024)",
    "icl": "Linear transformers are versatile in-context learners (Vladymyrov et al. 2024)",
    "open": "Open questions that reviews of these papers raise",
}
ADDRESSES = {"rnn": "arXiv:2006.16236", "rebased": "arXiv:2402.10644, 2402.18668", "icl": "arXiv:2402.14180"}
Config = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """Where and how much: the budget, the data sets that this run uses, the folder for files beside the rows."""

    budget: str
    out: Path = Path(".")
    data: frozenset[str] = frozenset()  # names of data sets that were there when the run began, such as "mnist"
    done: Callable[[Mapping[str, Any]], bool] = field(default=lambda config: False)  # is there a row of it already?


@dataclass(frozen=True)
class Unit:
    """Work that makes the rows of `configs`: `function(work)` yields them in this order."""

    function: Callable[[Any], Iterable[Row]]  # of a module, so that processes and Ray can have it
    work: Any
    configs: tuple[Config, ...]
    seconds: float  # on one core, a guess: for estimates, and the long ones begin first
    alone: bool = False  # a timing: nothing runs beside it, and it has all threads

    def __str__(self) -> str:
        named = {name: value for name, value in self.configs[0].items() if not isinstance(value, (dict, list, tuple))}
        return ", ".join(str(value) if name == "experiment" else f"{name} {value}" for name, value in named.items())


def unit(
    function: Callable[[Config], Mapping[str, Any]], config: Config, seconds: float = 1.0, alone: bool = False
) -> Unit:
    """Work that makes one row: `function(config)` returns its metrics; config["experiment"] says whose it is."""
    return Unit(partial(single, function), config, (config,), seconds, alone)


def single(function: Callable[[Config], Mapping[str, Any]], config: Config) -> Iterator[Row]:
    began = perf_counter()
    metrics = function(config)
    yield make_row(config, metrics, perf_counter() - began)


class Number(NamedTuple):
    """One line of paper / ours / interval. `paper` is what is printed there, in its own words; None if nothing is."""

    what: str
    paper: str | None
    ours: float
    low: float | None = None
    high: float | None = None
    of: str = ""  # what the interval is of: "3 seeds", "9 rounds", "100,000 sequences"
    unit: str = ""

    def shown(self) -> str:
        return f"{figures(self.ours)}{' ' if self.unit else ''}{self.unit}"

    def spread(self) -> str:
        if self.low is None or self.high is None:
            return "-"
        return f"[{figures(self.low)}, {figures(self.high)}]" + (f" of {self.of}" if self.of else "")


def number(what: str, paper: str | None, values: Sequence[float], of: str = "seeds", unit: str = "") -> Number:
    """Mean and bootstrap interval of what was measured several times."""
    return spread(what, paper, interval(list(values)), of, unit)


def spread(what: str, paper: str | None, found: Interval, of: str = "seeds", unit: str = "") -> Number:
    """A number with its interval; of one value there is none."""
    if found.seeds < 2:
        return Number(what, paper, found.mean, of=f"1 {of.rstrip('s')}", unit=unit)
    return Number(what, paper, found.mean, found.low, found.high, f"{found.seeds} {of}", unit)


def figures(value: float | None) -> str:
    """Three or four figures, thousands set apart; tiny ones as powers of ten."""
    if value is None or not isfinite(value):
        return "-"
    size = abs(value)
    if size and (size < 1e-3 or size >= 1e9):
        return f"{value:.2g}"
    if size >= 1000:
        return f"{value:,.0f}"
    digits = 3 if size < 10 else 2 if size < 100 else 1
    return f"{value:.0f}" if value == int(value) else f"{value:.{digits}f}"


@dataclass(frozen=True)
class Chart:
    """Curves or bars, drawn by linnet/reports/chart.py; a point is (x, y) or (x, y, low, high).

    kind "bars": x is the name of a group, the series stand side by side in it.
    """

    title: str
    x: str
    y: str
    series: Mapping[str, Sequence[Sequence[Any]]]
    kind: str = "lines"
    log_x: bool = False
    log_y: bool = False
    caption: str = ""


@dataclass(frozen=True)
class Heat:
    """A table of numbers from 0 to 1 as shades: rows x columns."""

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float | None]]
    caption: str = ""


@dataclass(frozen=True)
class Finding:
    """What the rows say. The first number is the one the scoreboard shows."""

    outcome: str  # one of OUTCOMES
    sentence: str  # why, with its numbers
    numbers: Sequence[Number] = ()
    meaning: str = ""  # for someone choosing a model
    tables: Sequence[Table] = ()
    charts: Sequence[Chart | Heat] = ()


@dataclass(frozen=True)
class Claim:
    """See the top of this file."""

    name: str  # for the command line: linnet reproduce NAME
    number: str  # T6, C2: its place in the literature's list; "" if it has none
    paper: str  # of PAPERS
    question: str  # in plain words, without symbols
    statement: str  # what the paper says, its numbers called the paper's
    rule: str  # how the verdict is found
    units: Callable[[Setting], list[Unit]]
    read: Callable[[Sequence[Row]], Finding]
    needs: str = ""  # data that make it stronger, and what is used without them

    def configs(self, setting: Setting) -> list[Config]:
        """Of every row that a budget has."""
        return [config for unit in self.units(setting) for config in unit.configs]

    def keys(self, setting: Setting) -> list[str]:
        """What its rows are known by."""
        return [key(config) for config in self.configs(setting)]


def rounded(value: float, digits: int = 5) -> float:
    """To so many significant figures: rows are kept."""
    return float(f"{value:.{digits}g}")


def mean(values: Mapping[int, float]) -> float:
    """Over the seeds."""
    return interval(list(values.values())).mean


def untested(sentence: str, meaning: str = "") -> Finding:
    """Nothing can be said, and why."""
    return Finding(UNTESTED, sentence, meaning=meaning)


def by_seed(rows: Sequence[Row], metric: str, **fields: Any) -> dict[int, float]:
    """seed -> metric of the rows whose configuration has these values, NaN and None left out."""
    found = {}
    for row in rows:
        config, value = row["config"], row["metrics"].get(metric)
        if value is not None and all(config.get(name) == wanted for name, wanted in fields.items()):
            found[config.get("seed", 0)] = float(value)
    return dict(sorted(found.items()))


__all__ = [
    "BUDGETS",
    "CONFIRMED",
    "ERROR",
    "OUTCOMES",
    "PAPERS",
    "REFUTED",
    "UNCLEAR",
    "UNTESTED",
    "Chart",
    "Claim",
    "Config",
    "Finding",
    "Heat",
    "Number",
    "Row",
    "Setting",
    "Table",
    "Unit",
    "by_seed",
    "figures",
    "mean",
    "number",
    "rounded",
    "spread",
    "unit",
    "untested",
]
