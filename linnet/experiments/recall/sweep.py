"""The sweep of `linnet recall`: mixers x state sizes x lengths x pairs x rates x seeds, as runs and as a table.

    Plan.runs()            one run for each combination; a mixer whose state is what it is has one size
    summarise(rows)        cells with their interval, best rate, window of rates, transition and bytes really stored

With `search`, rates are chosen by runs of seeds of their own that stop once they are good enough; the seeds that are
reported then run at the chosen rate only, to their last step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any

from ...errors import unknown
from ...layers import MIXERS
from ..results import Row, key
from .config import RecallConfig
from .sizes import FIXED, sized
from .stats import Interval, interval, share, window
from .study import best_rate

SOLVED = 0.99
IN_WINDOW = 0.95
SEARCH_SEED = 1000  # seeds from here on only choose a learning rate
OPTIONS: dict[str, dict[str, Any]] = {"delta": {"conv": 0}, "gated_delta": {"conv": 0}}  # the first layer is one


@dataclass(frozen=True)
class Plan:
    """What is asked for; refuses what does not fit before anything runs."""

    mixers: tuple[str, ...] = ("softmax", "based", "rebased", "elu", "delta")
    states: tuple[int, ...] = (1560, 3900, 11700)  # bytes: Based with keys of width 2, 4 and 8 at d_model 64
    lengths: tuple[int, ...] = (64,)
    pairs: tuple[int, ...] = (16,)
    rates: tuple[float, ...] = (3e-3, 1e-2, 3e-2)
    seeds: int = 3
    search: int = 0  # seeds that choose the rate; 0: every rate runs with every seed
    base: RecallConfig = field(default_factory=RecallConfig)

    def __post_init__(self) -> None:
        for name in self.mixers:
            if name not in MIXERS:
                raise unknown("mixer", name, MIXERS)
        for name in ("mixers", "states", "lengths", "pairs", "rates"):
            if not getattr(self, name):
                raise ValueError(f"{name} has no value; give one or more")
        for name, low in (("seeds", 1), ("search", 0)):
            if not low <= getattr(self, name) <= SEARCH_SEED:
                raise ValueError(f"{name} is {getattr(self, name)}; accepted: {low} to {SEARCH_SEED}")
        for rate in self.rates:
            self.base.but(lr=rate).training()
        self.cells()

    def cells(self) -> list[RecallConfig]:
        """One configuration for each mixer, state, length and number of pairs; rate and seed are still open."""
        found = []
        for length in self.lengths:
            for pairs in self.pairs:
                base = self.base.but(seq_len=length, pairs=pairs)
                for mixer in self.mixers:
                    found += self._of_mixer(base.but(mixer=mixer, options=OPTIONS.get(mixer, {})))
        return found

    def _of_mixer(self, base: RecallConfig) -> list[RecallConfig]:
        if base.mixer in FIXED:
            return [base]
        how: dict[str, Any] = {"d_model": base.d_model, "length": base.seq_len, "n_heads": base.n_heads}
        return [base.but(**sized(base.mixer, size, options=base.options, **how)) for size in self.states]

    def searches(self) -> list[RecallConfig]:
        """Runs that only choose a rate; none when every rate runs with every seed."""
        seeds = range(SEARCH_SEED, SEARCH_SEED + self.search)
        return [
            cell.but(lr=rate, seed=seed, stop_at=SOLVED)
            for cell in self.cells()
            for rate in self.rates
            for seed in seeds
        ]

    def runs(self, rows: Sequence[Row] = ()) -> list[RecallConfig]:
        """Runs to report; with `search`, at the rates that the rows of the search chose."""
        found = []
        for cell in self.cells():
            rates = self.rates if not self.search else (chosen(cell, rows),)
            found += [cell.but(lr=rate, seed=seed) for rate in rates for seed in range(self.seeds)]
        return found


def chosen(cell: RecallConfig, rows: Sequence[Row]) -> float:
    """The rate that the search runs of a cell found best: by accuracy, then by how soon they were there."""
    found: dict[float, dict[int, Row]] = defaultdict(dict)
    for row in rows:
        config = RecallConfig.from_dict(row["config"])
        if config.stop_at and cell == config.but(lr=cell.lr, seed=cell.seed, stop_at=cell.stop_at):
            found[config.lr][config.seed] = row
    if not found:
        raise ValueError(f"no search run of {cell.mixer} has a row; run the search before the seeds")
    return best_rate(found)


@dataclass(frozen=True)
class Summary:
    """One cell of the sweep: what its seeds say at the best rate, and what all its rates say."""

    config: RecallConfig  # seed and rate of the first run at the best rate
    accuracy: Interval
    solved: float  # share of seeds at SOLVED or above
    transition: float | None  # median step of the seeds that got there
    window: float | None  # log10 of highest over lowest rate with a mean of IN_WINDOW or more
    rates: int  # how many were run
    mixer_bytes: int
    state_bytes: int
    seconds: float  # median of a run
    parameters: int
    curve: list[tuple[int, float]]  # (step, mean accuracy of the seeds) at the best rate

    def to_dict(self) -> dict[str, Any]:
        about = self.config.to_dict()
        values = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in ("config", "accuracy")}
        return {"config": about, "accuracy": self.accuracy._asdict(), **values}


def summarise(rows: Sequence[Row]) -> list[Summary]:
    """Every cell that has a run to report, by length, pairs and mixer, from the smallest state to the largest."""
    cells: dict[str, tuple[RecallConfig, dict[float, dict[int, Row]]]] = {}
    for row in rows:
        config = RecallConfig.from_dict(row["config"])
        if not config.stop_at:
            cell = config.but(lr=RecallConfig.lr, seed=0)
            rates = cells.setdefault(key(cell.to_dict()), (cell, defaultdict(dict)))[1]
            rates[config.lr][config.seed] = row
    found = [_summary(cell, rates) for cell, rates in cells.values()]
    return sorted(found, key=lambda one: (one.config.seq_len, one.config.pairs, one.config.mixer, one.mixer_bytes))


def _summary(cell: RecallConfig, rates: dict[float, dict[int, Row]]) -> Summary:
    best = best_rate(rates)
    runs = [row for _, row in sorted(rates[best].items())]
    accuracies = [row["metrics"]["accuracy"] for row in runs]
    steps = [row["metrics"]["transition"] for row in runs if row["metrics"]["transition"] is not None]
    by_rate = {rate: interval([r["metrics"]["accuracy"] for r in seeds.values()]).mean for rate, seeds in rates.items()}
    return Summary(
        config=cell.but(lr=best),
        accuracy=interval(accuracies),
        solved=share(accuracies, SOLVED),
        transition=median(steps) if steps else None,
        window=window(by_rate, IN_WINDOW),
        rates=len(rates),
        mixer_bytes=runs[0]["metrics"]["mixer_bytes"],
        state_bytes=runs[0]["metrics"]["state_bytes"],
        seconds=median(row["seconds"] for row in runs),
        parameters=runs[0]["info"]["parameters"],
        curve=mean_curve([row["metrics"].get("curve", []) for row in runs]),
    )


def mean_curve(curves: Sequence[Sequence[Sequence[float]]]) -> list[tuple[int, float]]:
    """The mean at every step that all of them have; a run that diverged ends early."""
    return [(int(points[0][0]), fmean(point[1] for point in points)) for points in zip(*curves, strict=False)]
