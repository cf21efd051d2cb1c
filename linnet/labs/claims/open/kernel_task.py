"""T12: which feature map for which task, at equal steps and equal parameters?

    score[map, task]     copy, recall, majority: share of right answers    text, digits: bits per character, per pixel

Katharopoulos et al. 2020 (arXiv:2006.16236) ran elu + 1 alone, and a review asks how the choice of the map affects each
task. The argument: a map with F features has a state of F x V numbers, so wide maps (polynomial, dpfp) hold more pairs;
a majority needs one average, which every map gives; features of relu can die.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core.claim import Claim, Finding, Heat, Row, Setting, Table, Unit, by_seed, figures, mean, untested
from ...core.intervals import interval
from .variants import LOWER, WORDS, variant, variant_unit
from .verdict_logic import BROKEN, FEWEST, HOLDS, OPEN, above, below, clauses, differences, every, outcome, shown

FEW = ("elu", "relu", "polynomial", "rebased", "softmax")
MAPS = ("elu", "relu", "relu2", "exp", "polynomial", "based", "rebased", "dpfp", "favor", "softmax")
WIDE = ("polynomial", "dpfp")  # named by the expectation
SAME = 0.02  # share of majorities by which a map may differ from elu
DEAD = 0.01  # share of relu's features from which they may be called the reason
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


def read(rows: Sequence[Row]) -> Finding:
    scores = cells(rows)
    places, maps = sorted({cell for cell, _ in scores}), [one for one in MAPS if one in {m for _, m in scores}]
    recall, majority = ([cell for cell in places if cell[0] == task] for task in ("recall", "majority"))
    if not recall or not majority:
        return untested("there are no finished runs of recall, or none of majority; the rule needs both")
    fewest = min(len(scores.get((cell, one), {})) for cell in recall + majority for one in maps)
    if fewest < FEWEST:
        return untested(f"some map has {fewest} seeds of recall or majority; the rule wants {FEWEST} or more")
    dead = dead_share(rows)
    parts = {
        f"wider maps ({', '.join(one for one in WIDE if one in maps)}) recall more than elu": wide_part(scores, recall),
        f"all maps are within {SAME:g} of elu on majority": majority_part(scores, majority, maps),
        "relu recalls less than elu, through dead features": relu_part(scores, recall, dead),
    }
    best = {cell: best_map(scores, cell, maps) for cell in places}
    winners = ", ".join(f"{label(cell)} {best[cell]}" for cell in places)
    sentence = f"{clauses(parts).capitalize()}. Best of the linear maps: {winners}."
    tables, charts = [score_table(rows, scores, places, maps)], [heat(scores, places, maps)]
    return Finding(
        outcome(parts), sentence, numbers(scores, recall, majority, maps, dead), meaning(scores, best), tables, charts
    )


def cells(rows: Sequence[Row]) -> Scores:
    """Return (task and length, map) -> score of every seed that did not diverge."""
    keys = {(row["config"]["task"], row["config"]["length"], row["config"]["mixer"]) for row in rows}
    scores = {((task, n), one): by_seed(rows, "score", task=task, length=n, mixer=one) for task, n, one in sorted(keys)}
    return {key: values for key, values in scores.items() if values}


def dead_share(rows: Sequence[Row]) -> dict[int, float]:
    """Return seed -> share of relu's features that are dead after the recall runs, at the worst length."""
    shares: dict[int, float] = {}
    for row in rows:
        if (row["config"]["task"], row["config"]["mixer"]) == ("recall", "relu"):
            seed = row["config"]["seed"]
            shares[seed] = max(shares.get(seed, 0.0), row["metrics"]["dead"] or 0.0)
    return shares


def wide_part(scores: Scores, recall: Sequence[Cell]) -> str:
    """Check that every wide map recalls more than elu at one length or more, and less at none."""
    states = []
    for one in WIDE:
        gaps = [against_elu(scores, cell, one) for cell in recall if (cell, one) in scores]
        if any(gap.high < 0 for gap in gaps):
            return BROKEN
        if gaps:
            states.append(HOLDS if any(gap.low > 0 for gap in gaps) else OPEN)
    return every(states)


def majority_part(scores: Scores, cells: Sequence[Cell], maps: Sequence[str]) -> str:
    gaps = [against_elu(scores, cell, one) for cell in cells for one in maps if one not in ("elu", "softmax")]
    return every([every([above(gap, -SAME), below(gap, SAME)]) for gap in gaps])


def relu_part(scores: Scores, recall: Sequence[Cell], dead: dict[int, float]) -> str:
    """Check that relu is worse at some length and has dead features; broken if it is better, or worse without any."""
    gaps = [against_elu(scores, cell, "relu") for cell in recall if (cell, "relu") in scores]
    worse, better = any(gap.high < 0 for gap in gaps), any(gap.low > 0 for gap in gaps)
    if better or (worse and mean(dead) < DEAD):
        return BROKEN
    return HOLDS if worse else OPEN


def against_elu(scores: Scores, cell: Cell, one: str) -> Any:
    return interval(differences(scores[cell, one], scores[cell, "elu"]))


def best_map(scores: Scores, cell: Cell, maps: Sequence[str]) -> str:
    """Return the linear map with the best mean."""
    means = {one: mean(scores[cell, one]) for one in maps if one != "softmax" and (cell, one) in scores}
    return (min if cell[0] in LOWER else max)(means, key=lambda one: means[one])


def label(cell: Cell) -> str:
    return f"{cell[0]} {cell[1]}"


def numbers(
    scores: Scores, recall: Sequence[Cell], majority: Sequence[Cell], maps: Sequence[str], dead: dict[int, float]
) -> list[Any]:
    last = recall[-1]
    what = f"recall of {last[1] // 4} pairs in {last[1]} tokens, share of values right"
    lines = [
        shown(f"{what}: {one} minus elu", against_elu(scores, last, one))
        for one in (*WIDE, "relu", "softmax")
        if (last, one) in scores
    ]
    linear = [one for one in maps if one not in ("elu", "softmax")]
    furthest = max((against_elu(scores, majority[0], one) for one in linear), key=lambda gap: abs(gap.mean))
    lines.append(shown("majority, share right: the map that is furthest from elu, minus elu", furthest))
    share = interval([100 * value for value in dead.values()])
    return [*lines, shown("features of relu that are dead after training on recall", share, unit="%")]


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


def meaning(scores: Scores, best: dict[Cell, str]) -> str:
    """Say where the choice matters, by the spread of the linear maps."""
    spread = {}
    for cell in best:
        means = [mean(values) for (where, one), values in scores.items() if where == cell and one != "softmax"]
        spread[cell] = (max(means) - min(means)) / max(means) if max(means) > 0 else 0.0
    most, least = (pick(spread, key=lambda cell: spread[cell]) for pick in (max, min))
    return (
        f"The choice matters most on {label(most)} (take {best[most]} there) and least on {label(least)}, where the "
        "smallest state does. If the task has to look things up, pay for a map with a larger state."
    )


CLAIM = Claim(
    name="kernel-task",
    number="T12",
    paper="open",
    question="Is one feature map of linear attention as good as another, or does the task decide?",
    statement="Reviews of the paper ask how the choice of the feature map affects each task; the paper ran elu + 1 "
    "alone and gives no number. The expectation is that maps with a larger state (polynomial, dpfp) recall more than "
    "elu, that on majority-like tasks all maps do alike, and that relu is worse through features that die.",
    rule="Paired differences to elu, 95 % intervals of the seeds. Confirmed if polynomial (and dpfp where run) recalls "
    f"more at some length and less at none, every map is within {SAME:g} of elu on majority, and relu recalls less "
    f"with {DEAD:.0%} or more of its features dead; refuted if one of the three is contradicted; otherwise unclear.",
    units=units,
    read=read,
)
