"""A claim: a statement that can be true or false, the work that tests it here, and the rule that reads the rows.

    units(setting)   the work of a budget: quick (seconds to a minute), hour (minutes), day (the papers' sizes, each run
                     until it has converged, in stages), paper (the published runs)
    read(rows)       what the rule found, with regime and controls; numbers with intervals, tables, charts, advice

The rule is printed with the result, and every number shown is computed from rows. The rule answers yes, no or open;
licence.py decides what may be printed. A claim whose rows are missing is "not tested here" and names what is missing;
one whose work failed is an error, never a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from .chart import Chart as Chart
from .chart import Heat as Heat
from .intervals import Interval, interval
from .licence import Control as Control
from .licence import Evidence as Evidence
from .licence import Regime as Regime
from .licence import licence
from .results import Row as Row
from .results import key, make_row
from .verdicts import NO as NO
from .verdicts import OPEN as OPEN
from .verdicts import UNTESTED as UNTESTED
from .verdicts import YES as YES
from .verdicts import Table as Table

BUDGETS = ("smoke", "quick", "hour", "day", "paper")
DAY = "day"  # the one budget that only some claims have
OF_EVERY_CLAIM = tuple(budget for budget in BUDGETS if budget != DAY)
WORDS = 8  # at most, in an answer
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
    """The budget, the data sets that this run uses, and the folder for files next to the rows."""

    budget: str
    out: Path = Path(".")
    data: frozenset[str] = frozenset()  # names of the data sets present when the run began, such as "mnist"
    row: Callable[[Mapping[str, Any]], Row | None] = field(default=lambda config: None)  # that exists already

    def done(self, config: Mapping[str, Any]) -> bool:
        """Return whether the row of a configuration exists."""
        return self.row(config) is not None


@dataclass(frozen=True)
class Unit:
    """Work that computes the rows of `configs`: `function(work)` yields them in this order."""

    function: Callable[[Any], Iterable[Row]]  # defined in a module, so that it can be pickled
    work: Any
    configs: tuple[Config, ...]
    seconds: float  # expected on one core: for progress estimates; long units start first
    alone: bool = False  # a timing: it runs alone and uses all threads
    stage: int = 0  # of a day run: the rows up to a stage are a complete test, and a later one adds sizes
    waits: bool = False  # for rows that are missing and will choose its configuration; this one is a guess

    def __str__(self) -> str:
        named = {name: value for name, value in self.configs[0].items() if not isinstance(value, (dict, list, tuple))}
        return ", ".join(str(value) if name == "experiment" else f"{name} {value}" for name, value in named.items())


def unit(
    function: Callable[[Config], Mapping[str, Any]], config: Config, seconds: float = 1.0, alone: bool = False
) -> Unit:
    """Return work for one row: `function(config)` returns its metrics; config["experiment"] names the experiment."""
    return Unit(partial(single, function), config, (config,), seconds, alone)


def single(function: Callable[[Config], Mapping[str, Any]], config: Config) -> Iterator[Row]:
    began = perf_counter()
    metrics = function(config)
    yield make_row(config, metrics, perf_counter() - began)


class Number(NamedTuple):
    """One line of paper / ours / interval; `paper` quotes the paper, None where it gives no value."""

    what: str
    paper: str | None
    ours: float
    low: float | None = None
    high: float | None = None
    of: str = ""  # what the interval is over: "3 seeds", "9 rounds", "100,000 sequences"
    unit: str = ""

    def shown(self) -> str:
        return f"{self.rounded(self.ours)}{' ' if self.unit else ''}{self.unit}"

    def spread(self) -> str:
        if self.low is None or self.high is None:
            return "-"
        return f"[{self.rounded(self.low)}, {self.rounded(self.high)}]" + (f" of {self.of}" if self.of else "")

    def rounded(self, value: float) -> str:
        """Format for people: a number of tokens is whole, everything else has three or four significant figures."""
        return figures(float(round(value)) if self.unit == "tokens" and isfinite(value) else value)


def number(what: str, paper: str | None, values: Sequence[float], of: str = "seeds", unit: str = "") -> Number:
    """Return the mean and t interval of repeated measurements."""
    return spread(what, paper, interval(list(values)), of, unit)


def spread(what: str, paper: str | None, measured: Interval, of: str = "seeds", unit: str = "") -> Number:
    """Return a number with its interval; a single value has none."""
    if measured.seeds < 2:
        return Number(what, paper, measured.mean, of=f"1 {of.rstrip('s')}", unit=unit)
    return Number(what, paper, measured.mean, measured.low, measured.high, f"{measured.seeds} {of}", unit)


def figures(value: float | None) -> str:
    """Format with three or four significant figures, thousands separated; tiny values as powers of ten."""
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
class Finding:
    """The result of reading the rows. The first number is the one that decides, and the scoreboard shows it."""

    evidence: Evidence  # what the rule found, the regime of the rows, the controls; licence.py makes the outcome of it
    sentence: str  # why, with its numbers
    numbers: Sequence[Number] = ()
    scope: str = ""  # of these rows: "d = 64, 256 to 1,024 tokens, 5 seeds"
    meaning: str = ""  # advice for someone choosing a model; dropped where nothing was decided
    tables: Sequence[Table] = ()
    charts: Sequence[Chart | Heat] = ()

    @property
    def outcome(self) -> str:
        """Return the outcome that the licence allows."""
        return licence(self.evidence).outcome


@dataclass(frozen=True)
class Claim:
    """One claim; see the top of this file."""

    name: str  # for the command line: linnet reproduce NAME
    number: str  # T6, C2: its number in the list of claims; "" if it has none
    paper: str  # a key of PAPERS
    statement: str  # true or false, in plain words, without symbols; positive: "holds" is what the paper would expect
    source: str  # what the paper says, with its numbers attributed to it
    rule: str  # how the rows become yes, no or open; regime and controls included
    answers: Mapping[str, str]  # YES and NO -> the answer in at most WORDS words: "Yes, up to 65,536 tokens"
    change: str  # what would change our mind: the run or the number that would turn the outcome
    units: Callable[[Setting], list[Unit]]
    read: Callable[[Sequence[Row]], Finding]
    needs: str = ""  # optional data that make it stronger, and what is used without them
    place: int | None = None  # position among the claims of its paper; by its number when None
    day: bool = False  # has it runs at the papers' sizes, for the budget of that name?

    def __post_init__(self) -> None:
        long = [words for words in self.answers.values() if len(words.split()) > WORDS]
        assert set(self.answers) == {YES, NO}, f"{self.name}: answers are needed for yes and no, and for nothing else"
        assert not long, f"{self.name}: the answer {long[0]!r} has more than {WORDS} words"
        assert not self.statement.endswith("?"), f"{self.name}: a question is neither true nor false"

    def work(self, setting: Setting) -> list[Unit]:
        """Return the units of a budget; of "day" none where the claim has no such runs."""
        return self.units(setting) if self.day or setting.budget != DAY else []

    def configs(self, setting: Setting) -> list[Config]:
        """Return the configuration of every row of a budget."""
        return [config for unit in self.work(setting) for config in unit.configs]

    def rank(self) -> tuple[int, int, str]:
        """Return the place on the scoreboard: papers in order, then `place` or the number, then the name."""
        place = int(self.number[1:] or 0) if self.place is None else self.place
        return list(PAPERS).index(self.paper), place, self.name

    def keys(self, setting: Setting) -> list[str]:
        """Return the keys of its rows."""
        return [key(config) for config in self.configs(setting)]


def complete(work: Sequence[Unit], known: Mapping[str, Row]) -> list[str] | None:
    """Return the keys of the rows to judge: those of the complete stages before the first incomplete one.

    Only a day run has more than one stage. None where not even the first is complete.
    """
    done: list[str] = []
    for stage in sorted({unit.stage for unit in work}):
        keys = [key(config) for unit in work if unit.stage == stage for config in unit.configs]
        if not all(one in known for one in keys):
            return done or None
        done += keys
    return done


def rounded(value: float, digits: int = 5) -> float:
    """Round to `digits` significant figures, so that stored rows stay short."""
    return float(f"{value:.{digits}g}")


def mean(values: Mapping[int, float]) -> float:
    """Return the mean over the seeds."""
    return interval(list(values.values())).mean


def untested(sentence: str) -> Finding:
    """Return the finding of a rule that lacks rows, with the reason."""
    return Finding(Evidence(UNTESTED), sentence)


def by_seed(rows: Sequence[Row], metric: str, **fields: Any) -> dict[int, float]:
    """Return seed -> metric of the rows whose configuration has these values, without missing metrics."""
    values = {}
    for row in rows:
        config, value = row["config"], row["metrics"].get(metric)
        if value is not None and all(config.get(name) == wanted for name, wanted in fields.items()):
            values[config.get("seed", 0)] = float(value)
    return dict(sorted(values.items()))
