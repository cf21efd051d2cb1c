"""Cells of a recall study: grids of runs, the rows of each cell, and their numbers, bars and curves.

    grid(base, mixer=(...), seed=range(3))      every combination, as RecallConfigs
    by_cell(rows, key, metric)                  cell -> {seed: metric}, at the best learning rate of the cell

Accuracy is measured after the last step. Where several learning rates were run, a cell uses the one with the best mean
on validation sequences and reports on test sequences. Charts draw the cells that exist, so that an unfinished study can
be inspected.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..core.chart import Chart, Heat
from ..core.claim import Number, spread
from ..core.intervals import interval, share_interval
from ..core.results import Row
from ..core.verdicts import Cell
from .config import RecallConfig

NAMES = {
    "softmax": "softmax", "based": "Based", "rebased": "ReBased", "elu": "elu + 1", "identity": "q . k",
    "conv": "convolutions alone", "delta": "the delta rule", "gated_delta": "the gated delta rule", "gla": "GLA",
    "mamba": "Mamba", "mamba2": "Mamba-2", "rwkv7": "RWKV-7", "window": "a window",
    "zero-floor": "Based less its floor",
}  # fmt: skip
RECALL, INTERVALS = "recall", "mean over seeds and its 95 % t interval"
Charts = list[Chart | Heat]
Point = tuple[Any, ...]  # x, mean, low, high
Curve = Sequence[Sequence[float]]  # [[step, accuracy], ...]


def grid(base: RecallConfig, **axes: Iterable[Any]) -> list[RecallConfig]:
    """Return every combination of the values of the axes."""
    configs = [base]
    for name, values in axes.items():
        configs = [config.replace(**{name: value}) for config in configs for value in values]
    return configs


def chosen(rows: Sequence[Row], key: Callable[[RecallConfig], Cell]) -> dict[Cell, dict[int, Row]]:
    """Return cell -> {seed: row} at the learning rate that is best on the validation sequences."""
    runs: dict[Cell, dict[float, dict[int, Row]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        config = RecallConfig.from_dict(row["config"])
        if not config.stop_at:
            runs[key(config)][config.lr][config.seed] = row
    return {cell: dict(sorted(rates[best_rate(rates)].items())) for cell, rates in runs.items()}


def by_cell(rows: Sequence[Row], key: Callable[[RecallConfig], Cell], metric: str = "accuracy") -> dict[Cell, Any]:
    """Return cell -> {seed: metric} at the chosen learning rate."""
    return {
        cell: {seed: row["metrics"][metric] for seed, row in seeds.items()} for cell, seeds in chosen(rows, key).items()
    }


def curves_of(rows: Sequence[Row], key: Callable[[RecallConfig], Cell], cells: Iterable[Cell]) -> list[Curve]:
    """Return the accuracy during training of every run of some cells; empty where none was kept."""
    runs = chosen(rows, key)
    return [curve_of(row) for cell in cells for row in runs.get(cell, {}).values()]


def curve_of(row: Row) -> Curve:
    """Return the accuracy during training; a run that ended because it solved its task would stay where it ended."""
    curve = row["metrics"].get("curve") or []
    if row["metrics"].get("ending") != "solved":
        return curve
    step, accuracy = curve[-1]
    return [*curve, *([step * times, accuracy] for times in (2, 3, 4))]


def best_rate(rates: dict[float, dict[int, Row]]) -> float:
    """Return, of the rates with the most seeds, the one with the best mean on the validation sequences."""
    most = max(len(seeds) for seeds in rates.values())
    means = {
        rate: sum(row["metrics"]["chosen_by"] or 0.0 for row in seeds.values()) / len(seeds)
        for rate, seeds in rates.items()
        if len(seeds) == most
    }
    return max(sorted(means), key=lambda rate: means[rate])


def known(cells: dict[Cell, dict[int, dict[str, Any]]], name: str) -> dict[Cell, dict[int, float]]:
    """Return one value of a probe for each cell and seed that has it; a diverged run has none."""
    values = {
        cell: {seed: p[name] for seed, p in seeds.items() if p.get(name) is not None} for cell, seeds in cells.items()
    }
    return {cell: seeds for cell, seeds in values.items() if seeds}


def mean(what: str, seeds: Mapping[int, float], paper: str | None = None) -> Number:
    """Return the mean over seeds and its interval as a number of the report."""
    return spread(what, paper, interval(list(seeds.values())))


def recall(what: str, seeds: Mapping[int, float], paper: str | None = None) -> Number:
    """Return `mean` of a share from 0 to 1."""
    return spread(what, paper, share_interval(list(seeds.values())))


def point(x: Any, seeds: Mapping[int, float]) -> Point:
    measured = interval(list(seeds.values()))
    return x, measured.mean, measured.low, measured.high


def bar_chart(title: str, x: str, y: str, series: Mapping[str, Sequence[Point]], caption: str = INTERVALS) -> Charts:
    return [Chart(title, x, y, {name: points for name, points in series.items() if points}, "bars", caption=caption)]


def line_chart(title: str, x: str, series: Mapping[str, Sequence[Point]], caption: str = INTERVALS) -> Charts:
    ordered = {name: sorted(points) for name, points in series.items() if points}
    return [Chart(title, x, RECALL, ordered, log_x=True, caption=caption)]
