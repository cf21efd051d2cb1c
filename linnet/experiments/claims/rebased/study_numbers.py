"""The numbers that a reader asks of each recall study, the paper's beside them where it prints one.

    study -> function of its rows -> numbers, the first for the scoreboard

They are found by the functions of the study itself (linnet/experiments/recall/studies), so a number here and the
verdict's are of the same cells: the best learning rate by the sequences kept for choosing, seeds paired. Called only
when the rule has the rows that it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import nan

from ...recall.stats import interval, paired
from ...recall.studies import ablation, drift, extrapolation, floor, forgetting, iou, length, ranking, rates, shift
from ...recall.studies import state_law as law
from ...recall.study import by_cell
from ..claim import Number, Row, spread

NAMES = {
    "softmax": "softmax", "based": "Based", "rebased": "ReBased", "elu": "elu + 1", "identity": "q . k",
    "conv": "convolutions alone", "delta": "the delta rule", "gated_delta": "the gated delta rule", "gla": "GLA",
    "mamba2": "Mamba-2", "window": "a window", "zero-floor": "Based less its floor",
}  # fmt: skip
# Means over widths 16 to 48 at 256 and at 2,048 tokens: table 1 of Aksenov et al. 2024
TABLE_1 = {
    "based": (0.58, 0.51),
    "x^2": (0.54, 0.44),
    "norm(x)^2": (0.57, 0.58),
    "(gamma x)^2": (0.51, 0.48),
    "(gamma x + beta)^2": (0.61, 0.60),
    "(gamma norm(x) + beta)^2": (0.63, 0.61),
}
SECTION_5 = {"softmax": (0.999, 1.0), "rebased": (0.173, 0.957), "based": (0.157, 0.956)}  # IoU and accuracy, there
Numbers = list[Number]
MOST = 6  # to a claim


def mean(what: str, seeds: Mapping[int, float], paper: str | None = None) -> Number:
    return spread(what, paper, interval(list(seeds.values())))


def of_ranking(rows: Sequence[Row]) -> Numbers:
    cells = by_cell(rows, ranking.cell)
    width = max(width for width, _ in cells)
    lead = paired(cells[width, "based"], cells[width, "elu"])
    same = "at the same bytes of state"
    return [
        spread(f"recall of Based less that of elu + 1 {same}", None, lead),
        mean("recall of softmax, whose state grows", cells[width, "softmax"]),
        *(mean(f"recall of {NAMES[one]} {same}", cells[width, one]) for one in (*ranking.SECOND, *ranking.FIRST)),
    ]


def of_length(rows: Sequence[Row]) -> Numbers:
    """Random filler, the honest test, first."""
    cells = by_cell(rows, length.cell)
    lengths = sorted({tokens for _, _, tokens, _ in cells})
    short, long = lengths[0], lengths[-1]
    found = []
    for filler, width in sorted({(filler, width) for filler, width, _, _ in cells}):
        drops = [length.drop(cells[filler, width, short, k], cells[filler, width, long, k]) for k in length.KERNELS]
        what = f"recall lost by Based less that lost by ReBased, {short} to {long} tokens, {filler} filler, d {width}"
        found.append(spread(what, ".16 - .03 = .13, 256 to 2,048 tokens, d 32", paired(*drops)))
    return found[:MOST]


def of_ablation(rows: Sequence[Row]) -> Numbers:
    cells = by_cell(rows, ablation.cell)
    names = [ablation.PLAIN, ablation.SHIFTED, "norm(x)^2", "based", ablation.FLOOR]
    return [
        spread(f"recall of ReBased less that of {NAMES.get(name, name)}", lead_of_table_1(name), gap)
        for name, gap in ((name, paired(cells[ablation.FULL,], cells[name,])) for name in names if (name,) in cells)
    ]


def lead_of_table_1(name: str) -> str | None:
    """ReBased less this kernel in the paper's table, at both lengths."""
    if name not in TABLE_1:
        return None
    short, long = (a - b for a, b in zip(TABLE_1[ablation.FULL], TABLE_1[name], strict=True))
    return f"{short:.2f} at 256 tokens, {long:.2f} at 2,048"


def of_floor(rows: Sequence[Row]) -> Numbers:
    probes, accuracy = by_cell(rows, floor.cell, "floor"), by_cell(rows, floor.cell)
    rest, without = floor.known(probes, "rest"), floor.known(probes, "without")
    lengths = sorted({tokens for _, _, tokens in rest})
    short, long = lengths[0], lengths[-1]
    found = []
    for filler, width in sorted({(filler, width) for filler, width, _ in rest}):
        first, last, where = (filler, width, short), (filler, width, long), f"{filler} filler, d {width}"
        grown, moved = paired(rest[last], rest[first]), paired(without[last], accuracy[last])
        found += [
            spread(f"weight of Based on other tokens, {long} tokens less {short}, {where}", None, grown),
            spread(f"recall of Based without its floor less with it, {long} tokens, {where}", None, moved),
        ]
    return found[:MOST]


def of_drift(rows: Sequence[Row]) -> Numbers:
    """Of the longest sequences and the highest rate, where decay has taken most."""
    gains = by_cell(rows, drift.cell, "gains")
    gamma, alone, beta = (floor.known(gains, name) for name in ("gamma_mean", "decay_alone", "beta_std"))
    tokens, rate, _ = max(gamma)
    decayed, free = (tokens, rate, True), (tokens, rate, False)
    return [
        mean("mean gamma of ReBased trained with weight decay on it", gamma[decayed], "about 0.13"),
        mean("what decay alone would leave of a gamma of 1", alone[decayed], "0.15 by its schedule"),
        mean("mean gamma of ReBased trained without that decay", gamma[free]),
        mean("standard deviation of beta over its coordinates, with decay", beta[decayed]),
    ]


def of_rates(rows: Sequence[Row]) -> Numbers:
    """Of the widest model."""
    found = rates.curves(rows)
    width = max(width for width, _ in found)
    once = {kernel: rates.expected(found[width, kernel], 1) for kernel in rates.ORDER}
    windows = {kernel: rates.width_of_window(found[width, kernel]) for kernel in rates.ORDER}
    full, based, plain = rates.ORDER
    return [
        spread("recall of ReBased less Based, mean over learning rates", None, paired(once[full], once[based])),
        spread("recall of Based less x^2, mean over learning rates", None, paired(once[based], once[plain])),
        *(
            Number(f"decades of learning rates with a recall of .95: {name}", None, nan if one is None else one)
            for name, one in zip(("ReBased", "Based", "x^2"), windows.values(), strict=True)
        ),
    ]


def of_state_law(rows: Sequence[Row]) -> Numbers:
    found = law.curves(rows)
    paper = ".79 - .67 = .12 at 9 k bytes, off a figure"
    leads = [
        spread(f"recall of the delta rule less that of {name}", paper if name.startswith("based") else None, gap)
        for name, gap in law.against_additive(found).items()
    ]
    rises = [
        spread(f"gain of {NAMES[mixer]} from its smallest to its largest state", None, law.law(found[mixer])[1])
        for mixer in ("delta", "based", "rebased", "elu")
    ]
    return [*leads[:2], *rises]


def of_shift(rows: Sequence[Row]) -> Numbers:
    cells = by_cell(rows, shift.cell)
    named = {
        shift.WITH: "recall of one softmax layer after a short convolution",
        shift.WITHOUT: "recall of one softmax layer alone",
        shift.PLACED: "recall of one softmax layer alone, with learned positions",
        ("rebased", "conv", 1, "none"): "recall of one ReBased layer after a short convolution",
        ("rebased", shift.ALONE, 1, "none"): "recall of one ReBased layer alone",
    }
    return [mean(what, cells[one]) for one, what in named.items() if one in cells]


def of_iou(rows: Sequence[Row]) -> Numbers:
    found = iou.runs(rows)
    seen = {kernel: iou.looks(found[kernel, iou.LEVEL], "iou") for kernel in iou.KERNELS}
    softmax, rebased, based = seen.values()
    return [
        spread("IoU of ReBased's attention less that of Based, at equal recall", ".016", paired(rebased, based)),
        spread("IoU of softmax less that of ReBased, at equal recall", ".826", paired(softmax, rebased)),
        *(mean(f"IoU of {NAMES[k]}'s attention", seeds, f"{SECTION_5[k][0]:g}") for k, seeds in seen.items()),
    ]


def of_forgetting(rows: Sequence[Row]) -> Numbers:
    updated = forgetting.part(rows, "updated")
    lead = paired(updated["delta",], updated["based",])
    shown = [one for one in ("delta", "based", "rebased", "elu", "softmax") if updated.get((one,))]
    return [
        spread("recall of rewritten keys, the delta rule less Based", None, lead),
        *(mean(f"recall of rewritten keys, {NAMES[one]}", updated[one,]) for one in shown),
    ]


def of_extrapolation(rows: Sequence[Row]) -> Numbers:
    kept = {one: extrapolation.kept(answers)[1] for one, answers in extrapolation.asked(rows).items()}
    ways = {extrapolation.FREE: "no positions", extrapolation.BOUND: "learned positions"}
    return [
        mean(f"share of recall kept at 8 times the length, {NAMES[mixer]} with {way}", kept[mixer, positions])
        for positions, way in ways.items()
        for mixer in extrapolation.MIXERS
        if kept.get((mixer, positions))
    ]


NUMBERS: dict[str, Callable[[Sequence[Row]], Numbers]] = {
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
