"""The sweep of `linnet recall`: mixers x state sizes x lengths x pairs x rates x seeds, as runs and as a table.

    Plan.runs()            one run per combination; a mixer whose state cannot be chosen has one size
    summarise(rows)        cells with their interval, best rate, window of rates, transition and measured bytes

With `search`, separate seeds choose the rate in runs that stop once they are good enough; the reported seeds then run
only at the chosen rate, to their last step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any

from ...errors import unknown
from ...layers import MIXERS
from ..core.intervals import Interval, interval, share, share_interval, window
from ..core.results import Row, key
from .cells import best_rate
from .config import RecallConfig
from .sizes import FIXED, sized

SOLVED = 0.99
IN_WINDOW = 0.95
SEARCH_SEED = 1000  # seeds from here on only choose the learning rate
OPTIONS: dict[str, dict[str, Any]] = {"delta": {"conv": 0}, "gated_delta": {"conv": 0}}  # the first layer has it


@dataclass(frozen=True)
class Plan:
    """The requested sweep; wrong values are refused before anything runs."""

    mixers: tuple[str, ...] = ("softmax", "based", "rebased", "elu", "delta")
    states: tuple[int, ...] = (1560, 3900, 11700)  # bytes of Based with keys of width 2, 4 and 8 at d_model 64
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
            self.base.replace(lr=rate).training()
        self.cells()

    def cells(self) -> list[RecallConfig]:
        """Return one configuration per mixer, state, length and number of pairs; rate and seed are set later."""
        configs = []
        for length in self.lengths:
            for pairs in self.pairs:
                base = self.base.replace(seq_len=length, pairs=pairs)
                for mixer in self.mixers:
                    states = self.states[:1] if mixer in FIXED else self.states
                    configs += [of_size(base, mixer, size) for size in states]
        return configs

    def searches(self) -> list[RecallConfig]:
        """Return the runs that only choose a rate; none when every rate runs with every seed."""
        seeds = range(SEARCH_SEED, SEARCH_SEED + self.search)
        return [
            cell.replace(lr=rate, seed=seed, stop_at=SOLVED)
            for cell in self.cells()
            for rate in self.rates
            for seed in seeds
        ]

    def runs(self, rows: Sequence[Row] = ()) -> list[RecallConfig]:
        """Return the runs to report; with `search`, at the rates chosen by the rows of the search."""
        configs = []
        for cell in self.cells():
            rates = self.rates if not self.search else (chosen(cell, rows),)
            configs += [cell.replace(lr=rate, seed=seed) for rate in rates for seed in range(self.seeds)]
        return configs


def of_size(base: RecallConfig, mixer: str, size: int) -> RecallConfig:
    """Return `base` with this mixer and a state of `size` bytes, or its own state if that cannot be chosen."""
    if mixer in FIXED:
        return base.replace(mixer=mixer)
    how: dict[str, Any] = {"d_model": base.d_model, "length": base.seq_len, "n_heads": base.n_heads}
    return base.replace(mixer=mixer, **sized(mixer, size, options=OPTIONS.get(mixer, {}), **how))


def sized_grid(
    base: RecallConfig, mixers: Sequence[str], states: Sequence[int], rates: Sequence[float], seeds: int
) -> list[RecallConfig]:
    """Return every mixer at every state, rate and seed."""
    cells = [of_size(base, mixer, size) for mixer in mixers for size in states]
    return [cell.replace(lr=rate, seed=seed) for cell in cells for rate in rates for seed in range(seeds)]


def chosen(cell: RecallConfig, rows: Sequence[Row]) -> float:
    """Return the best rate of a cell's search runs."""
    runs: dict[float, dict[int, Row]] = defaultdict(dict)
    for row in rows:
        config = RecallConfig.from_dict(row["config"])
        if config.stop_at and cell == config.replace(lr=cell.lr, seed=cell.seed, stop_at=cell.stop_at):
            runs[config.lr][config.seed] = row
    if not runs:
        raise ValueError(f"no search run of {cell.mixer} has a row; run the search before the seeds")
    return best_rate(runs)


@dataclass(frozen=True)
class Summary:
    """One cell of the sweep: its seeds at the best rate, and all of its rates."""

    config: RecallConfig  # seed and rate of the first run at the best rate
    accuracy: Interval
    solved: float  # share of seeds at SOLVED or above
    transition: float | None  # median step of the seeds that reached it
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
    """Return every cell that has a run to report, sorted by length, pairs, mixer and state."""
    cells: dict[str, tuple[RecallConfig, dict[float, dict[int, Row]]]] = {}
    for row in rows:
        config = RecallConfig.from_dict(row["config"])
        if not config.stop_at:
            cell = config.replace(lr=RecallConfig.lr, seed=0)
            rates = cells.setdefault(key(cell.to_dict()), (cell, defaultdict(dict)))[1]
            rates[config.lr][config.seed] = row
    summaries = [_summary(cell, rates) for cell, rates in cells.values()]
    return sorted(summaries, key=lambda one: (one.config.seq_len, one.config.pairs, one.config.mixer, one.mixer_bytes))


def _summary(cell: RecallConfig, rates: dict[float, dict[int, Row]]) -> Summary:
    best = best_rate(rates)
    runs = [row for _, row in sorted(rates[best].items())]
    accuracies = [row["metrics"]["accuracy"] for row in runs]
    steps = [row["metrics"]["transition"] for row in runs if row["metrics"]["transition"] is not None]
    by_rate = {rate: interval([r["metrics"]["accuracy"] for r in seeds.values()]).mean for rate, seeds in rates.items()}
    return Summary(
        config=cell.replace(lr=best),
        accuracy=share_interval(accuracies),
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
    """Return the mean at every step that all curves have; a diverged run ends early."""
    return [(int(points[0][0]), fmean(point[1] for point in points)) for points in zip(*curves, strict=False)]
