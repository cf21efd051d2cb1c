"""C4: does the floor of Based's kernel put weight on irrelevant tokens, and does that matter?

    kappa(s) = 1 + s + s^2 / 2 >= 1/2        rest(N) = weight on all tokens but the right one, of 1, at length N
    change = accuracy with kappa - 1/2 at test time only, minus accuracy with kappa: the same q, k and v

The argument of Aksenov et al. 2024 (arXiv:2402.10644): every further token costs Based a weight of 1/2 or more. They
report no measurement of it. A change of either sign shows an effect of the floor: a model that suffers from it gains
without it, one that has adapted to it loses. Zero filler is one direction to suppress, random filler is many.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core.claim import Number, spread
from ...core.intervals import Interval, interval, paired
from ...core.results import Row
from ...core.verdicts import CONFIRMED, REFUTED, UNCLEAR, UNTESTED, Table, Verdict, missing, shown
from ...recall.cells import Charts, Point, bar_chart, by_cell, grid, known, point
from ...recall.config import RecallConfig
from ...recall.probe_floor import LEVELS
from ...recall.study import enlarged, recall_claim
from .length import BASE, LEARNED, PAPER, quick

GROWS = 0.05  # of rest, from the shortest to the longest
MOVES = 0.02  # of accuracy, by the change of kernel
OURS = BASE.replace(mixer="based", probes=("floor",))
MOST = 6  # numbers


def configs(budget: str) -> list[RecallConfig]:
    if budget == "smoke":
        return grid(OURS.replace(steps=4), seq_len=(32, 64))
    if budget == "hour":
        return enlarged(configs("quick"))
    if budget == "quick":
        return quick("based")
    if budget == "paper":
        base = PAPER.replace(mixer="based", probes=("floor",))
        axes = grid(base, d_model=(16, 24, 32, 48), seq_len=(256, 2048), lr=(5e-4, 1e-3, 3e-3, 1e-2), seed=range(5))
        return [config.replace(head_dim=config.d_model // 12) for config in axes]
    widths, lengths, seeds = ((24,), (32, 128), 3) if budget == "long" else ((16, 24, 32), (32, 128, 512), 5)
    fillers, rates = ("zero", "random"), (1e-2, 3e-2)
    return grid(OURS, filler=fillers, d_model=widths, seq_len=lengths, lr=rates, seed=range(seeds))


def cell(config: RecallConfig) -> tuple[str, int, int]:
    return config.filler, config.d_model, config.seq_len


def verdict(rows: Sequence[Row]) -> Verdict:
    probes, accuracy = by_cell(rows, cell, "floor"), by_cell(rows, cell)
    rest, without = known(probes, "rest"), known(probes, "without")
    lengths = sorted({length for _, _, length in rest})
    if len(lengths) < 2:
        return Verdict(UNTESTED, f"rows of two lengths are needed, there are {len(lengths)}")
    short, long = lengths[0], lengths[-1]
    clauses, met, against = [], 0, 0
    for filler, width in sorted({(filler, width) for filler, width, _ in rest}):
        first, last = (filler, width, short), (filler, width, long)
        absent = missing(rest, [first, last])
        if absent:
            return absent
        if max(interval(list(one[last].values())).mean for one in (accuracy, without)) < LEARNED:
            continue  # neither kernel has learned
        grown, moved = paired(rest[last], rest[first]), paired(without[last], accuracy[last])
        met += grown.low > 0 and grown.mean >= GROWS and moves(moved)
        against += grown.high < GROWS or max(abs(moved.low), abs(moved.high)) < MOVES
        clauses.append(f"{filler} filler, d={width}: weight elsewhere {grown}, accuracy without the floor {moved}")
    if not clauses:
        return Verdict(UNTESTED, f"no filler and width has an accuracy of {LEARNED} or more at {long} tokens")
    sentence = f"change from {short} to {long} tokens, and at {long} by kappa - 1/2: " + "; ".join(clauses)
    return Verdict(CONFIRMED if met == len(clauses) else REFUTED if against == len(clauses) else UNCLEAR, sentence)


def moves(gap: Interval) -> bool:
    """Return whether the change is significant and not small, whatever its sign."""
    return (gap.low > 0 or gap.high < 0) and abs(gap.mean) >= MOVES


def tables(rows: Sequence[Row]) -> list[Table]:
    probes, accuracy = by_cell(rows, cell, "floor"), by_cell(rows, cell)
    means = {name: known(probes, name) for name in ("rest", "weight", "floor", "near", "without")}
    weights, scores = [], []
    for one in sorted(means["rest"]):
        of = {name: interval(list(cells[one].values())) for name, cells in means.items()}
        about = tuple(map(shown, one))
        change = paired(means["without"][one], accuracy[one])
        line = (str(interval(list(accuracy[one].values()))), str(change), str(of["rest"]))
        weights.append((*about, *line, f"{of['weight'].mean:.4f}", str(of["floor"]), str(change.seeds)))
        quantiles = zip(
            *(probe["quantiles"] for probe in probes[one].values() if probe["rest"] is not None), strict=True
        )
        scores.append((*about, str(of["near"]), *(f"{sum(q) / len(q):.2f}" for q in quantiles)))
    head = ("filler", "d", "N", "accuracy", "without floor, change", "elsewhere", "one token", "of it floor", "seeds")
    levels = tuple(f"{level:.0%}" for level in LEVELS)
    return [
        Table(head, weights, "weight of Based on tokens that were not asked for"),
        Table(("filler", "d", "N", "within .25 of -1", *levels), scores, "quantiles of s = q.k / sqrt(f) on them"),
    ]


def numbers(rows: Sequence[Row]) -> list[Number]:
    probes, accuracy = by_cell(rows, cell, "floor"), by_cell(rows, cell)
    rest, without = known(probes, "rest"), known(probes, "without")
    lengths = sorted({tokens for _, _, tokens in rest})
    short, long = lengths[0], lengths[-1]
    lines = []
    for filler, width in sorted({(filler, width) for filler, width, _ in rest}):
        first, last, where = (filler, width, short), (filler, width, long), f"{filler} filler, d {width}"
        grown, moved = paired(rest[last], rest[first]), paired(without[last], accuracy[last])
        lines += [
            spread(f"weight of Based on other tokens, {long} tokens less {short}, {where}", None, grown),
            spread(f"recall of Based without its floor less with it, {long} tokens, {where}", None, moved),
        ]
    return lines[:MOST]


def charts(rows: Sequence[Row]) -> Charts:
    probes, accuracy = by_cell(rows, cell, "floor"), by_cell(rows, cell)
    rest, without = known(probes, "rest"), known(probes, "without")
    series: dict[str, list[Point]] = {"weight elsewhere": [], "recall": [], "recall without floor": []}
    for one in sorted(rest):
        filler, width, tokens = one
        where = f"{filler}, d {width}, {tokens} tokens"
        for points, cells in zip(series.values(), (rest, accuracy, without), strict=True):
            points.append(point(where, cells[one]))
    return bar_chart("Based with its floor, and with the floor taken off when tested", "filler", "share", series)


CLAIM = recall_claim(
    name="floor",
    number="C4",
    question="Does the smallest weight that Based can give, one half, cost it anything?",
    statement="ReBased's paper argues that every further token costs Based a weight of one half or more. It gives no "
    "number.",
    rule=f"confirmed if, with every filler and width that learns, the weight elsewhere grows by {GROWS} or more from "
    "the shortest length to the longest with an interval above 0, and kappa - 1/2 at test time moves accuracy by "
    f"{MOVES} or more either way with an interval without 0; refuted if everywhere it does not grow by {GROWS} or the "
    f"move is within {MOVES}"
    ". Sizes of the quick and hour budgets: they are those of the question about length, the third that was tried: "
    "at the first it was not testable",
    configs=configs,
    verdict=verdict,
    numbers=numbers,
    tables=tables,
    charts=charts,
    meaning={
        CONFIRMED: "The floor is at work: more tokens take more weight away from the answer, and a trained model "
        "notices when it is taken off. Expect it to matter more the longer a sequence is.",
        REFUTED: "Trained models live with the floor: it takes no more weight at more tokens, or taking it off "
        "changes nothing. The floor alone is no reason against Based.",
        UNCLEAR: "With some fillers the floor shows and with others it does not: a model can learn to point fillers "
        "away.",
    },
)
