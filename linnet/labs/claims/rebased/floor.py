"""C4: does a trained Based model feel the floor of its kernel: does its recall change when the floor is taken off?

    kappa(s) = 1 + s + s^2 / 2 >= 1/2        rest(N) = weight on all tokens but the right one, of 1, at length N
    change = accuracy with kappa - 1/2 at test time only, minus accuracy with kappa: the same q, k and v

The argument of Aksenov et al. 2024 (arXiv:2402.10644): every further token costs Based a weight of 1/2 or more. They
report no measurement of it. A change of either sign shows an effect of the floor: a model that suffers from it gains
without it, one that has adapted to it loses. A model that recalls .98 or more could not gain .02 and is left out, as is
one that has not learned. Zero filler is one direction to suppress, random filler is many. How the weight elsewhere
grows with the length is shown, and not judged.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core.claim import Number, spread
from ...core.intervals import Interval, interval, paired, share_interval
from ...core.licence import learned, room, settled
from ...core.results import Row
from ...core.verdicts import NO, OPEN, UNTESTED, YES, Table, Verdict, missing, shown
from ...recall import bench
from ...recall.cells import Charts, Point, bar_chart, by_cell, curves_of, grid, known, point
from ...recall.config import RecallConfig
from ...recall.probe_floor import LEVELS
from ...recall.study import enlarged, everywhere, judged, recall_claim
from .length import BASE, LEARNED, PAPER, quick

MOVES = 0.02  # of accuracy, by the change of kernel
CEILING = 1 - MOVES  # of Based with its floor
OURS = BASE.replace(mixer="based", probes=("floor",))
MOST = 6  # numbers
Place = tuple[str, int]  # filler, width


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
    return grid(OURS, filler=("zero", "random"), d_model=(24,), seq_len=(32, 128), lr=(1e-2, 3e-2), seed=range(3))


def cell(config: RecallConfig) -> tuple[str, int, int]:
    return config.filler, config.d_model, config.seq_len


def verdict(rows: Sequence[Row]) -> Verdict:
    rest = known(by_cell(rows, cell, "floor"), "rest")
    lengths = sorted({length for _, _, length in rest})
    if len(lengths) < 2:
        return Verdict(UNTESTED, f"rows of two lengths are needed, there are {len(lengths)}")
    long = lengths[-1]
    places = sorted({(filler, width) for filler, width, _ in rest})
    absent = missing(rest, [(*one, length) for one in places for length in (lengths[0], long)])
    if absent:
        return absent
    recall, counts = recalls(rows), moves(rows)
    able = [one for one in places if recall[one] >= LEARNED] or places
    controls = [
        learned("Based", max(recall.values()), LEARNED, f"recall at {long} tokens"),
        room({"Based": min(recall[one] for one in able)}, CEILING),
        settled("Based", curves_of(rows, cell, [(*one, long) for one in places])),
    ]
    clauses = [f"{filler} filler, d = {width}: {gap}" for (filler, width), gap in counts.items()]
    sentence = f"change of recall at {long} tokens when the floor is taken off: " + "; ".join(clauses)
    seeds = min((gap.seeds for gap in counts.values()), default=0)
    state = everywhere([state_of(gap) for gap in counts.values()])
    return judged(state, sentence, rows, bench.LENGTHS, seeds, controls)


def recalls(rows: Sequence[Row]) -> dict[Place, float]:
    """Return (filler, width) -> mean accuracy at the longest length."""
    accuracy = by_cell(rows, cell)
    long = max(length for _, _, length in accuracy)
    return {(f, d): interval(list(seeds.values())).mean for (f, d, n), seeds in accuracy.items() if n == long}


def moves(rows: Sequence[Row], *, every: bool = False) -> dict[Place, Interval]:
    """Return (filler, width) -> change of accuracy without the floor, where it counts; every: elsewhere too."""
    accuracy, without = by_cell(rows, cell), known(by_cell(rows, cell, "floor"), "without")
    long = max(length for _, _, length in without)
    return {
        (f, d): paired(without[f, d, long], accuracy[f, d, long])
        for (f, d), recall in sorted(recalls(rows).items())
        if (f, d, long) in without and (every or LEARNED <= recall < CEILING)
    }


def state_of(gap: Interval) -> str:
    """Return whether recall moves, whatever its sign: by MOVES or more, or by less with the whole interval."""
    if (gap.low > 0 or gap.high < 0) and abs(gap.mean) >= MOVES:
        return YES
    return NO if reach(gap) < MOVES else OPEN


def reach(gap: Interval) -> float:
    return max(abs(gap.low), abs(gap.high))


def tables(rows: Sequence[Row]) -> list[Table]:
    probes, accuracy = by_cell(rows, cell, "floor"), by_cell(rows, cell)
    means = {name: known(probes, name) for name in ("rest", "weight", "floor", "near", "without")}
    weights, scores = [], []
    for one in sorted(means["rest"]):
        of = {name: share_interval(list(cells[one].values())) for name, cells in means.items()}
        about = tuple(map(shown, one))
        change = paired(means["without"][one], accuracy[one])
        line = (str(share_interval(list(accuracy[one].values()))), str(change), str(of["rest"]))
        weights.append((*about, *line, f"{of['weight'].mean:.4f}", str(of["floor"]), str(change.seeds)))
        quantiles = zip(
            *(probe["quantiles"] for probe in probes[one].values() if probe["rest"] is not None), strict=True
        )
        scores.append((*about, str(of["near"]), *(f"{sum(q) / len(q):.2f}" for q in quantiles)))
    head = ("filler", "d", "N", "accuracy", "without floor, change", "elsewhere", "one token", "of it floor", "seeds")
    levels = tuple(f"{level:.0%}" for level in LEVELS)
    return [
        Table(head, weights, "weight of Based on all tokens but the right one"),
        Table(("filler", "d", "N", "within .25 of -1", *levels), scores, "quantiles of s = q.k / sqrt(f) on them"),
    ]


def numbers(rows: Sequence[Row]) -> list[Number]:
    """Return the changes of recall, first the smallest of a yes or the largest of a no, then how the weight grows."""
    rest = known(by_cell(rows, cell, "floor"), "rest")
    lengths = sorted({tokens for _, _, tokens in rest})
    short, long = lengths[0], lengths[-1]
    gaps = moves(rows) or moves(rows, every=True)
    agree = all(state_of(gap) == YES for gap in gaps.values())
    ordered = sorted(gaps, key=lambda one: abs(gaps[one].mean) if agree else -reach(gaps[one]))
    what = f"recall of Based without its floor less with it, {long} tokens"
    lines = [spread(f"{what}, {filler} filler, d {d}", None, gaps[filler, d]) for filler, d in ordered]
    for filler, d in ordered:
        grown = paired(rest[filler, d, long], rest[filler, d, short])
        what = f"weight of Based on other tokens, {long} tokens less {short}, {filler} filler, d {d}"
        lines.append(spread(what, None, grown))
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
    statement="The floor of one half in its kernel clearly changes what a trained Based model recalls.",
    source="ReBased's paper argues that every further token costs Based a weight of one half or more. It gives no "
    "number.",
    rule=f"clearly is {MOVES}: yes if, with every filler and width that counts, kappa - 1/2 at test time moves recall "
    f"by {MOVES} or more either way with an interval without 0; no if everywhere the interval of the move is within "
    f"{MOVES}. They count where Based has {LEARNED} or more at the longest length, and less than {CEILING:g}. "
    "Controls: one has learned, and one leaves room; inside the regime recall no longer rises. Regime: "
    f"{bench.LENGTHS.words}. Sizes of the quick and hour budgets: those of the claim about length, the third that was "
    "tried: at the first nothing had learned",
    answers={YES: "Yes, its recall clearly changes", NO: "No, its recall hardly changes"},
    change="Five seeds at 2,048 tokens in which taking the floor off moves recall by .02 or more.",
    configs=configs,
    verdict=verdict,
    numbers=numbers,
    tables=tables,
    charts=charts,
    meaning={
        YES: "The floor is at work: a trained model notices when it is taken off.",
        NO: "Trained models live with the floor: taking it off changes nothing at this size. The floor alone is no "
        "reason against Based.",
        OPEN: "With some fillers the floor shows and with others it does not.",
    },
)
