"""C1: at the same bytes of state, do kernels of second order (Based, ReBased) recall more than elu + 1?

    lead = accuracy(Based or ReBased) - accuracy(elu + 1), seed by seed, at the bytes of Based with keys of width 8

The feature map expands keys of width f to about f^2 / 2 numbers, elu + 1 keeps f, so at the same bytes its keys are
five times as wide. Figure 3 of Arora et al. 2024 (arXiv:2402.18668) has the Taylor map best for its bytes; figure 1 of
Aksenov et al. 2024 (arXiv:2402.10644) has ReBased and Based level at 64 to 512 tokens. Every mixer has the same rates
to choose from. Softmax is the control: it can solve the task. q . k and convolutions alone are shown, and not judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from ...core.claim import Number, spread
from ...core.intervals import Interval, paired
from ...core.licence import learned, room, settled
from ...core.results import Row
from ...core.verdicts import NO, OPEN, YES, Cell, Table, Verdict, intervals, missing
from ...recall import bench, day
from ...recall.cells import NAMES, RECALL, Charts, bar_chart, by_cell, curves_of, point, recall
from ...recall.config import RecallConfig
from ...recall.day import Stage
from ...recall.sizes import mixer_bytes
from ...recall.study import SMALL, deciding, everywhere, judged, recall_claim
from ...recall.sweep import sized_grid
from .state_law import ZOOLOGY, ZOOLOGY_RATES

SECOND, FIRST = ("based", "rebased"), ("elu", "identity")
RIVAL = "elu"
EXACT, BLIND = "softmax", "conv"
MIXERS = (EXACT, *SECOND, *FIRST, BLIND)
PERFECT = 0.99  # floor of softmax
LEARNED = 0.3  # floor of the kernel that must be beaten: 1 in 16 is .06
WIDTH = 8  # of Based's keys, which set the bytes
OURS = RecallConfig()
EIGHT = SMALL.replace(seq_len=32, pairs=8, vocab_size=64, steps=500)  # with 4 pairs elu + 1 is close to Based


def configs(budget: str) -> list[RecallConfig]:
    if budget == "smoke":
        return same_bytes(OURS.replace(steps=4, seq_len=32, pairs=8), (16,), (1e-2,), 1)
    if budget == "quick":
        return same_bytes(EIGHT, (32,), (1e-2,), 3, keys=5)
    if budget == "paper":
        return same_bytes(ZOOLOGY.replace(seq_len=64, pairs=16), (64, 128), ZOOLOGY_RATES, 5)
    if budget in ("hour", "long"):
        return same_bytes(OURS, (64,), (1e-2, 3e-2), 3)
    return []


def same_bytes(
    base: RecallConfig, widths: Sequence[int], rates: Sequence[float], seeds: int, keys: int = WIDTH
) -> list[RecallConfig]:
    """Return the runs of all mixers at the bytes of Based with keys of width `keys`, for each model width."""
    sizes = {width: mixer_bytes("based", width, base.seq_len, {}, key_dim=keys) for width in widths}
    grids = [sized_grid(base.replace(d_model=width), MIXERS, (size,), rates, seeds) for width, size in sizes.items()]
    return [run for grid in grids for run in grid]


@cache
def stages() -> list[Stage]:
    """Return the day runs: width 64 at three lengths, then width 32."""
    return [Stage(day.same_bytes(MIXERS, tokens, width)) for width in (64, 32) for tokens in (128, 256, 512)]


def cell(config: RecallConfig) -> tuple[int, str]:
    return config.d_model, config.mixer


def verdict(rows: Sequence[Row]) -> Verdict:
    cells = by_cell(rows, cell)
    widths = sorted({width for width, _ in cells})
    absent = missing(cells, [(width, mixer) for width in widths for mixer in MIXERS])
    if absent:
        return absent
    gaps = leads(cells)
    state = everywhere([state_of(of_width) for of_width in by_width(gaps).values()])
    sentence = "recall at the same bytes of state, " + "; ".join(
        f"d = {width}: {NAMES[one]} less elu + 1 {gap}" for (width, one), gap in gaps.items()
    )
    means = {one: seeds.mean for one, seeds in intervals(cells).items()}
    rivals = {f"elu + 1 at width {width}": means[width, RIVAL] for width in widths}
    controls = [
        learned("softmax", min(means[width, EXACT] for width in widths), PERFECT),
        learned("elu + 1", min(rivals.values()), LEARNED),
        room(rivals),
        settled("elu + 1", curves_of(rows, cell, [(width, RIVAL) for width in widths])),
    ]
    return judged(state, sentence, rows, bench.ZOOLOGY, min(gap.seeds for gap in gaps.values()), controls)


def leads(cells: Mapping[Cell, Mapping[int, float]]) -> dict[tuple[int, str], Interval]:
    """Return (width, kernel) -> its accuracy less that of elu + 1."""
    widths = sorted({width for width, _ in cells})
    return {(width, one): paired(cells[width, one], cells[width, RIVAL]) for width in widths for one in SECOND}


def by_width(gaps: Mapping[tuple[int, str], Interval]) -> dict[int, dict[str, Interval]]:
    """Return width -> kernel -> lead."""
    return {width: {one: gap for (d, one), gap in gaps.items() if d == width} for width in sorted({d for d, _ in gaps})}


def state_of(gaps: Mapping[str, Interval]) -> str:
    """Return what the leads at one width say."""
    if all(gap.low > 0 for gap in gaps.values()):
        return YES
    return NO if any(gap.high < 0 for gap in gaps.values()) else OPEN


def tables(rows: Sequence[Row]) -> list[Table]:
    measured, stored = intervals(by_cell(rows, cell)), by_cell(rows, cell, "mixer_bytes")
    lines = [
        (str(width), mixer, f"{max(stored[width, mixer].values()):,}", str(one), str(one.seeds))
        for (width, mixer), one in sorted(measured.items(), key=lambda item: (item[0][0], MIXERS.index(item[0][1])))
    ]
    return [Table(("d", "mixer", "bytes of state", "accuracy", "seeds"), lines, "recall at the same bytes of state")]


def numbers(rows: Sequence[Row]) -> list[Number]:
    """Return the lead that decides, and the recalls of the widest model."""
    cells = by_cell(rows, cell)
    each = by_width(leads(cells))
    states = {width: state_of(gaps) for width, gaps in each.items()}
    weakest = {width: deciding(states[width], gaps, one_refutes=True) for width, gaps in each.items()}
    d = deciding(everywhere(list(states.values())), {width: each[width][one] for width, one in weakest.items()})
    one, lead, width = weakest[d], each[d][weakest[d]], max(each)
    same = "at the same bytes of state"
    return [
        spread(f"recall of {NAMES[one]} less that of elu + 1 {same}, d {d}, the smaller lead", None, lead),
        recall("recall of softmax, whose state grows", cells[width, "softmax"]),
        *(recall(f"recall of {NAMES[one]} {same}", cells[width, one]) for one in (*SECOND, *FIRST)),
    ]


def charts(rows: Sequence[Row]) -> Charts:
    cells = by_cell(rows, cell)
    series = {
        f"d {width}": [point(NAMES[m], cells[width, m]) for m in MIXERS if (width, m) in cells]
        for width in sorted({width for width, _ in cells})
    }
    return bar_chart("recall at the same bytes of state", "mixer", RECALL, series)


CLAIM = recall_claim(
    name="ranking",
    number="C1",
    statement="With the same bytes of memory, Based and ReBased look up more pairs than elu + 1.",
    source="Based's paper draws its map as the best for its bytes, and ReBased's draws Based and ReBased level up to "
    "512 tokens; softmax solves the task. The papers give no number at this size.",
    rule="yes if at every width the leads of Based and of ReBased over elu + 1 have intervals above 0; no if at every "
    f"width one of them has its interval below 0. Controls: softmax has {PERFECT} or more, elu + 1 {LEARNED} or more "
    f"and less than .99. Regime: {bench.ZOOLOGY.words}. Sizes of the quick budget: picked after smaller ones, of 2 or "
    "3 seeds: with 4 pairs elu + 1 came close to Based and ReBased, with 6 pairs softmax had not always learned",
    answers={YES: "Yes, both are ahead of elu + 1", NO: "No, elu + 1 is ahead of one"},
    change="Five seeds at the papers' sizes in which elu + 1, at its best learning rate, is level with Based or "
    "ReBased.",
    configs=configs,
    stages=stages,
    verdict=verdict,
    numbers=numbers,
    tables=tables,
    charts=charts,
    meaning={
        YES: "For looking things up with a small fixed memory take a second-order kernel before elu + 1, and "
        "softmax where its growing memory can be paid for.",
        NO: "At this size a second-order kernel buys nothing over elu + 1 of the same bytes: choose by speed.",
        OPEN: "The order is not settled by these seeds: do not choose by it.",
    },
)
