"""T12: does the task decide whether the feature map matters, at equal steps and equal parameters?

    score[map, task]     copy, recall, majority: share of right answers    text, digits: bits per character, per pixel

A map with F features has a state of F x V numbers, so wide maps (polynomial, dpfp) hold more pairs; a majority needs
one average, which every map gives. Recall and majority decide; the other tasks, and features of relu that die, are
reported. Katharopoulos et al. 2020 (arXiv:2006.16236) ran elu + 1 alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...core.claim import (
    NO,
    OPEN,
    YES,
    Claim,
    Control,
    Evidence,
    Finding,
    Heat,
    Number,
    Regime,
    Row,
    Setting,
    Table,
    Unit,
    by_seed,
    figures,
    mean,
    untested,
)
from ...core.intervals import Interval, interval
from ...core.licence import learned, regime, room, settled
from ...core.verdicts import FEWEST
from .variants import LOWER, WORDS, variant, variant_unit
from .verdict_logic import above, differences, share, shown

FEW = ("elu", "relu", "polynomial", "rebased", "softmax")
MAPS = ("elu", "relu", "relu2", "exp", "polynomial", "based", "rebased", "dpfp", "favor", "softmax")
WIDE = ("polynomial", "dpfp")  # named by the expectation
MORE = 0.02  # share of recalled values by which a wide map must lead
COUNTED = 0.98  # share of majorities that every map must reach
LEARNED = 0.9  # share of values that softmax must recall: the task is learned in these steps
Cell = tuple[str, int]  # task and length
Scores = dict[tuple[Cell, str], dict[int, float]]  # of a map in a cell, by seed
Plans = tuple[tuple[str, dict[str, Any], int, float], ...]
# task, changes to the variant, steps, expected seconds
QUICK: Plans = (("recall", {"length": 24, "lr": 2e-2}, 250, 1.8), ("majority", {}, 120, 1.8))
HOUR: Plans = (
    ("recall", {"length": 24, "lr": 2e-2}, 400, 3.0),
    ("recall", {"length": 48, "lr": 2e-2}, 400, 4.7),
    ("copy", {"length": 32, "d_model": 32, "lr": 1e-2}, 400, 5.0),
    ("majority", {}, 200, 3.0),
    ("text", {}, 200, 2.6),
    ("digits", {}, 300, 3.3),
)
PAPER: Plans = (
    *(("recall", {"length": n, "d_model": 64}, 4000, 60.0 + n) for n in (16, 32, 64, 128)),
    *(("copy", {"length": n}, 4000, 2.0 * n) for n in (32, 64, 128)),
    ("majority", {"d_model": 64, "length": 128}, 1500, 60.0),
    ("text", {"d_model": 64, "length": 128}, 1500, 60.0),
    ("digits", {"d_model": 64}, 1500, 60.0),
)


def units(setting: Setting) -> list[Unit]:
    if setting.budget == "smoke":
        tasks = (("recall", {"length": 16, "batch_size": 32}), ("majority", {"length": 16, "batch_size": 32}))
        return [variant_unit(variant(task, one, seed=0, steps=2, **how), 0.1) for task, how in tasks for one in FEW]
    plans = {"quick": QUICK, "hour": HOUR, "paper": PAPER}[setting.budget]
    maps = FEW if setting.budget == "quick" else MAPS
    return [
        variant_unit(variant(task, one, seed=seed, steps=steps, **how), seconds)
        for task, how, steps, seconds in plans
        for seed in range(5 if setting.budget == "paper" else 3)
        for one in maps
    ]


class Part(NamedTuple):
    """One half of the statement: what the rule found, and the number that decides it."""

    state: str
    number: Number
    measured: Interval


def read(rows: Sequence[Row]) -> Finding:
    scores = cells(rows)
    places, maps = sorted({cell for cell, _ in scores}), [one for one in MAPS if one in {m for _, m in scores}]
    recall, majority = ([cell for cell in places if cell[0] == task] for task in ("recall", "majority"))
    if not recall or not majority:
        return untested("there are no finished runs of recall, or none of majority; the rule needs both")
    needed = {"elu", "softmax", WIDE[0]} - set(maps)
    if needed:
        return untested(f"these maps were not run: {', '.join(sorted(needed))}")
    seeds = min(len(scores.get((cell, one), {})) for cell in (recall[-1], majority[-1]) for one in maps)
    if seeds < FEWEST:
        return untested(f"some map has {seeds} seeds of recall or majority; the rule needs {FEWEST} or more")
    parts = [recall_part(scores, recall[-1]), majority_part(scores, majority[-1], maps)]
    first = min(parts, key=lambda part: (NO, OPEN, YES).index(part.state))
    parts.sort(key=lambda part: part is not first)
    best = {cell: best_map(scores, cell, maps) for cell in places}
    clauses = "; ".join(f"{part.number.what}: {part.measured}" for part in parts)
    winners = ", ".join(f"{label(cell)} {best[cell]}" for cell in places)
    sentence = f"{clauses[0].upper()}{clauses[1:]}. Best means of the linear maps: {winners}"
    evidence = Evidence(first.state, regime_of(rows, recall[-1]), controls(rows, scores, recall[-1]), seeds)
    others = numbers(rows, scores, recall[-1], majority[-1])
    tables, charts = [score_table(rows, scores, places, maps)], [heat(scores, places, maps)]
    lines = [*(part.number for part in parts), *others]
    scope = f"d = {width(rows, recall[-1])}, {recall[-1][1]} tokens of recall, {majority[-1][1]} of majority"
    advice = meaning(rows, evidence.state, recall[-1])
    return Finding(evidence, sentence, lines, f"{scope}, {seeds} seeds", advice, tables, charts)


def cells(rows: Sequence[Row]) -> Scores:
    """Return (task and length, map) -> score of every seed that did not diverge."""
    keys = {(row["config"]["task"], row["config"]["length"], row["config"]["mixer"]) for row in rows}
    scores = {((task, n), one): by_seed(rows, "score", task=task, length=n, mixer=one) for task, n, one in sorted(keys)}
    return {key: values for key, values in scores.items() if values}


def recall_part(scores: Scores, cell: Cell) -> Part:
    """Judge the wide map with the smallest lead over elu."""
    gaps = {one: against_elu(scores, cell, one) for one in WIDE if (cell, one) in scores}
    least = min(gaps, key=lambda one: gaps[one].mean)
    what = f"share of recalled values, {cell[1]} tokens, {least} (the wide map with the smaller lead) - elu"
    return Part(above(gaps[least], MORE), shown(what, gaps[least]), gaps[least])


def majority_part(scores: Scores, cell: Cell, maps: Sequence[str]) -> Part:
    """Judge the linear map that counts worst."""
    counts = {one: share(scores[cell, one].values()) for one in maps if one != "softmax"}
    worst = min(counts, key=lambda one: counts[one].mean)
    what = f"share of majorities, {cell[1]} tokens, {worst} (the worst of the linear maps)"
    return Part(above(counts[worst], COUNTED), shown(what, counts[worst]), counts[worst])


def controls(rows: Sequence[Row], scores: Scores, cell: Cell) -> list[Control]:
    """Return what the comparison of recall needs: elu below its ceiling, softmax learned, every curve level."""
    compared = [one for one in ("softmax", "elu", *WIDE) if (cell, one) in scores]
    curves = {one: [row["metrics"]["curve"] for row in rows if of(row) == (cell, one)] for one in compared}
    return [
        room({"elu": mean(scores[cell, "elu"])}),
        learned("softmax", mean(scores[cell, "softmax"]), LEARNED),
        *(settled(one, curves[one]) for one in compared),
    ]


def of(row: Row) -> tuple[Cell, str]:
    """Return the cell of a row and its map."""
    return (row["config"]["task"], row["config"]["length"]), row["config"]["mixer"]


def regime_of(rows: Sequence[Row], cell: Cell) -> Regime:
    tokens, wide = cell[1], width(rows, cell)
    axes: dict[str, Any] = {"tokens": (tokens, 64, 512), "width": (wide, 64, 512)}
    return regime("recall of 64 to 512 tokens, width 64 to 512", f"{tokens} tokens, width {wide}", **axes)


def width(rows: Sequence[Row], cell: Cell) -> int:
    return next(int(row["config"]["d_model"]) for row in rows if of(row)[0] == cell)


def against_elu(scores: Scores, cell: Cell, one: str) -> Interval:
    return interval(differences(scores[cell, one], scores[cell, "elu"]))


def best_map(scores: Scores, cell: Cell, maps: Sequence[str]) -> str:
    """Return the linear map with the best mean."""
    means = {one: mean(scores[cell, one]) for one in maps if one != "softmax" and (cell, one) in scores}
    return (min if cell[0] in LOWER else max)(means, key=lambda one: means[one])


def label(cell: Cell) -> str:
    return f"{cell[0]} {cell[1]}"


def numbers(rows: Sequence[Row], scores: Scores, recall: Cell, majority: Cell) -> list[Number]:
    """Return both sides of the recall, the reference of softmax, and relu with its dead features: all reported."""
    lines = [
        shown(f"share of recalled values, {recall[1]} tokens, {one}", share(scores[recall, one].values()))
        for one in ("elu", *WIDE, "relu", "softmax")
        if (recall, one) in scores
    ]
    counted = share(scores[majority, "elu"].values())
    lines.append(shown(f"share of majorities, {majority[1]} tokens, elu", counted))
    dead = [100 * (row["metrics"]["dead"] or 0.0) for row in rows if of(row) == (recall, "relu")]
    if dead:
        lines.append(shown("features of relu that are dead after training on recall", interval(dead), unit="%"))
    return lines


def score_table(rows: Sequence[Row], scores: Scores, places: Sequence[Cell], maps: Sequence[str]) -> Table:
    """Return the mean score and bytes of state of every cell."""
    size = {
        ((row["config"]["task"], row["config"]["length"]), row["config"]["mixer"]): row["metrics"]["state_bytes"]
        for row in rows
    }

    def shown_cell(cell: Cell, one: str) -> str:
        return f"{figures(mean(scores[cell, one]))} ({size[cell, one]:,} B)" if (cell, one) in scores else "-"

    lines = [(one, *(shown_cell(cell, one) for cell in places)) for one in maps]
    head = ("map", *(f"{label(cell)}: {WORDS[cell[0]]}" for cell in places))
    return Table(head, lines, "mean score at equal steps, and bytes of state after one sequence")


def heat(scores: Scores, places: Sequence[Cell], maps: Sequence[str]) -> Heat:
    """Draw every score as a share of the best in its column."""
    columns = []
    for cell in places:
        means = {one: mean(scores[cell, one]) for one in maps if (cell, one) in scores}
        lower = cell[0] in LOWER
        top = min(means.values()) if lower else max(means.values())
        columns.append([_share(means.get(one), top, lower) for one in maps])
    values = [list(line) for line in zip(*columns, strict=True)]
    caption = "1 is the best of the column: accuracy divided by the best, or the fewest bits divided by its bits"
    return Heat("feature map by task, share of the best", maps, [label(cell) for cell in places], values, caption)


def _share(value: float | None, top: float, lower: bool) -> float | None:
    if value is None:
        return None
    return (top / value if lower else value / top) if value > 0 and top > 0 else 0.0


def meaning(rows: Sequence[Row], state: str, recall: Cell) -> str:
    if state != YES:
        return "A larger state alone is no reason to choose a feature map: compare maps on your task."
    size = {one: row["metrics"]["state_bytes"] for row in rows for cell, one in [of(row)] if cell == recall}
    return (
        f"If the task has to look things up, pay for a map with a larger state ({WIDE[0]} keeps "
        f"{figures(size[WIDE[0]] / size['elu'])} times the bytes of elu at {recall[1]} tokens); where it only counts "
        "or averages, take the smallest."
    )


CLAIM = Claim(
    name="kernel-task",
    number="T12",
    paper="open",
    statement="The task decides whether the feature map matters: wide maps recall more, any map learns a majority.",
    source="Reviews of the paper ask how the choice of the feature map affects each task; the paper ran elu + 1 alone "
    "and gives no number. The expectation is that maps with a larger state (polynomial, dpfp) recall more than elu, "
    "and that majority-like tasks need none.",
    rule="Two parts, at the longest length of each task; 95 % intervals of the seeds, differences paired. Recall: the "
    f"wide map with the smaller lead over elu is {MORE:g} or more ahead. Majority: the worst linear map gets "
    f"{COUNTED:g} right. Yes if both intervals lie there, no if one lies wholly below; open otherwise. Controls, on "
    f"recall: elu is below its ceiling, softmax recalls {LEARNED:g}, no recall still rises. Regime: recall of 64 to "
    "512 tokens, width 64 to 512. Other tasks, and the features of relu that die, are reported, not judged.",
    answers={YES: "Yes, recall needs it, a majority does not", NO: "No, recall gains nothing or a majority suffers"},
    change=f"Seeds with softmax at {LEARNED:g} or more of a recall in which no wide map is ahead of elu, or a map that "
    "cannot learn a majority.",
    units=units,
    read=read,
)
