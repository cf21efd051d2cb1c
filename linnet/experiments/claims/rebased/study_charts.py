"""What one would rather look at of each recall study: bars or curves with their intervals, and two tables to compare.

    study -> function of its rows -> charts          study -> function of its rows -> tables beside the paper's

Charts are made of the cells that are there, so that half a study can be looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...recall.stats import interval
from ...recall.studies import ablation, drift, extrapolation, floor, forgetting, iou, length, ranking, rates, shift
from ...recall.studies import state_law as law
from ...recall.study import Table, by_cell, shown
from ..claim import Chart, Heat, Row
from .study_numbers import NAMES, SECTION_5, TABLE_1

Charts = list[Chart | Heat]
Point = tuple[Any, ...]  # x, mean, low, high
RECALL, INTERVALS = "recall", "mean over seeds and 95 % of its bootstrap"


def point(x: Any, seeds: Mapping[int, float]) -> Point:
    found = interval(list(seeds.values()))
    return x, found.mean, found.low, found.high


def bars(title: str, x: str, y: str, series: Mapping[str, Sequence[Point]], caption: str = INTERVALS) -> Charts:
    return [Chart(title, x, y, {name: points for name, points in series.items() if points}, "bars", caption=caption)]


def lines(title: str, x: str, series: Mapping[str, Sequence[Point]], caption: str = INTERVALS) -> Charts:
    ordered = {name: sorted(points) for name, points in series.items() if points}
    return [Chart(title, x, RECALL, ordered, log_x=True, caption=caption)]


def of_ranking(rows: Sequence[Row]) -> Charts:
    cells = by_cell(rows, ranking.cell)
    series = {
        f"d {width}": [point(NAMES[m], cells[width, m]) for m in ranking.MIXERS if (width, m) in cells]
        for width in sorted({width for width, _ in cells})
    }
    return bars("recall at the same bytes of state", "mixer", RECALL, series)


def of_length(rows: Sequence[Row]) -> Charts:
    series: dict[str, list[Point]] = {}
    for (filler, width, tokens, kernel), seeds in sorted(by_cell(rows, length.cell).items()):
        series.setdefault(f"{NAMES[kernel]}, {filler}, d {width}", []).append(point(tokens, seeds))
    return lines("the same pairs in longer sequences", "tokens", series)


def of_ablation(rows: Sequence[Row]) -> Charts:
    cells = by_cell(rows, ablation.cell)
    names = [name for (name,) in cells]
    series: dict[str, list[Point]] = {"here": [point(NAMES.get(name, name), cells[name,]) for name in names]}
    for place, label in enumerate(("paper, 256 tokens", "paper, 2,048 tokens")):
        series[label] = [(NAMES.get(name, name), TABLE_1[name][place]) for name in names if name in TABLE_1]
    return bars("parts of ReBased taken away", "kernel", RECALL, series, f"here: {INTERVALS}; paper: mean over widths")


def of_floor(rows: Sequence[Row]) -> Charts:
    probes, accuracy = by_cell(rows, floor.cell, "floor"), by_cell(rows, floor.cell)
    rest, without = floor.known(probes, "rest"), floor.known(probes, "without")
    series: dict[str, list[Point]] = {"weight elsewhere": [], "recall": [], "recall without floor": []}
    for one in sorted(rest):
        filler, width, tokens = one
        where = f"{filler}, d {width}, {tokens} tokens"
        for points, cells in zip(series.values(), (rest, accuracy, without), strict=True):
            points.append(point(where, cells[one]))
    return bars("Based with its floor, and with the floor taken off when tested", "filler", "share", series)


def of_drift(rows: Sequence[Row]) -> Charts:
    gains = by_cell(rows, drift.cell, "gains")
    gamma, alone = floor.known(gains, "gamma_mean"), floor.known(gains, "decay_alone")
    series: dict[str, list[Point]] = {"gamma, decayed": [], "decay alone": [], "gamma, not decayed": []}
    for tokens, rate, decayed in sorted(gamma):
        where = f"{tokens} tokens, rate {rate:g}"
        series["gamma, decayed" if decayed else "gamma, not decayed"].append(point(where, gamma[tokens, rate, decayed]))
        if decayed:
            series["decay alone"].append(point(where, alone[tokens, rate, decayed]))
    return bars("where the scale of ReBased ends, having begun at 1", "run", "mean gamma", series)


def of_rates(rows: Sequence[Row]) -> Charts:
    series = {
        f"{kernel}, d {width}" if kernel != "based" else f"Based, d {width}": [
            point(rate, seeds) for rate, seeds in by_rate.items()
        ]
        for (width, kernel), by_rate in rates.curves(rows).items()
    }
    return lines("recall by learning rate", "learning rate", series)


def of_state_law(rows: Sequence[Row]) -> Charts:
    series = {
        mixer: [point(size, seeds) for size, seeds in by_size.items()] for mixer, by_size in law.curves(rows).items()
    }
    return lines("what a byte of state buys", "bytes of state", series)


def of_shift(rows: Sequence[Row]) -> Charts:
    cells = by_cell(rows, shift.cell)
    series: dict[str, list[Point]] = {"softmax": [], "rebased": []}
    for one in shift.SETTINGS:
        if one in cells:
            mixer, first, depth, positions = one
            placed = ", learned positions" if positions == "learned" else ""
            series[mixer].append(point(f"{first} before, {depth} layer{'s' * (depth > 1)}{placed}", cells[one]))
    return bars("recall by what comes before the layer", "before it", RECALL, series)


def of_iou(rows: Sequence[Row]) -> Charts:
    """IoU beside the paper's, and where softmax and ReBased look in one sequence."""
    found = iou.runs(rows)
    here = {kernel: iou.looks(found.get((kernel, iou.LEVEL), {}), "iou") for kernel in iou.KERNELS}
    series: dict[str, list[Point]] = {"here": [point(NAMES[k], seeds) for k, seeds in here.items() if seeds]}
    series["paper"] = [(NAMES[k], SECTION_5[k][0]) for k, seeds in here.items() if seeds]
    charts = bars("attention on the value that is asked for", "kernel", "IoU", series) if series["here"] else []
    heats = [heat(title, weights) for maps in iou.maps(rows) for title, weights in maps["maps"].items()]
    return [*charts, *heats[:2]]


def heat(title: str, weights: Sequence[Sequence[float]]) -> Heat:
    """A row for each question in the order asked, a column for each token of the context."""
    asked = [str(row + 1) for row in range(len(weights))]
    read = [str(column + 1) for column in range(len(weights[0]))]
    caption = "a row for each question in the order asked, a column for each token of the pairs"
    return Heat(f"where the queries look: {title}", asked, read, weights, caption)


def of_forgetting(rows: Sequence[Row]) -> Charts:
    series: dict[str, list[Point]] = {}
    for name, label in (("kept", "written once"), ("updated", "written twice")):
        cells = forgetting.part(rows, name)
        series[label] = [point(NAMES[m], cells[m,]) for m in forgetting.MIXERS if cells.get((m,))]
    return bars("keys written once and keys written twice", "mixer", RECALL, series)


def of_extrapolation(rows: Sequence[Row]) -> Charts:
    """At as many pairs as in training."""
    series: dict[str, list[Point]] = {}
    for (mixer, positions), answers in extrapolation.asked(rows).items():
        pairs = min(answers)[1]
        known = {
            n: {s: a for s, a in seeds.items() if a is not None} for (n, p), seeds in answers.items() if p == pairs
        }
        series[f"{NAMES[mixer]}, {positions}"] = [point(n, seeds) for n, seeds in known.items() if seeds]
    return lines("longer sequences than in training, the same pairs", "tokens", series)


def beside_table_1(rows: Sequence[Row]) -> list[Table]:
    """The ablation with the paper's means, where it has that kernel."""
    cells = by_cell(rows, ablation.cell)
    found = [
        (name, str(interval(list(seeds.values()))), *(shown(x) for x in TABLE_1.get(name, ("-", "-"))))
        for (name,), seeds in cells.items()
    ]
    return [Table(("kernel", "recall here", "paper, 256 tokens", "paper, 2,048 tokens"), found, "beside table 1")]


def beside_section_5(rows: Sequence[Row]) -> list[Table]:
    """IoU and recall with the paper's, of the runs that stopped at the level of comparison."""
    found = []
    for kernel in iou.KERNELS:
        runs = iou.runs(rows).get((kernel, iou.LEVEL), {})
        seen = iou.looks(runs, "iou")
        if seen:
            recall = interval([runs[seed]["accuracy"] for seed in seen])
            paper = (f"{value:g}" for value in SECTION_5[kernel])
            found.append((NAMES[kernel], str(interval(list(seen.values()))), str(recall), *paper))
    return [Table(("kernel", "IoU here", "recall here", "paper's IoU", "paper's recall"), found, "beside section 5")]


CHARTS: dict[str, Callable[[Sequence[Row]], Charts]] = {
    "ranking": of_ranking,
    "length": of_length,
    "ablation": of_ablation,
    "floor": of_floor,
    "drift": of_drift,
    "rates": of_rates,
    "state_law": of_state_law,
    "shift": of_shift,
    "iou": of_iou,
    "forgetting": of_forgetting,
    "extrapolation": of_extrapolation,
}
TABLES: dict[str, Callable[[Sequence[Row]], list[Table]]] = {"ablation": beside_table_1, "iou": beside_section_5}
