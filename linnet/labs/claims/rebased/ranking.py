"""C1: at the same bytes of state, do kernels of second order (Based, ReBased) recall more than elu + 1?

    lead = accuracy(Based or ReBased) - accuracy(elu + 1), seed by seed, at the bytes of Based with keys of width 8

The feature map expands keys of width f to about f^2 / 2 numbers, elu + 1 keeps f, so at the same bytes its keys are
five times as wide. Figure 3 of Arora et al. 2024 (arXiv:2402.18668) has the Taylor map best for its bytes; figure 1 of
Aksenov et al. 2024 (arXiv:2402.10644) has ReBased and Based level at 64 to 512 tokens. Every mixer has the same rates
to choose from. Softmax is the control: it can solve the task. q . k and convolutions alone are shown, and not judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from ...core.verdicts import NO, OPEN, YES
from ...recall import bench, day
from ...recall.config import RecallConfig
from ...recall.day import Stage
from ...recall.lead import LEARNED, PERFECT, Race
from ...recall.sizes import mixer_bytes
from ...recall.study import SMALL, recall_claim
from ...recall.sweep import sized_grid
from .state_law import ZOOLOGY, ZOOLOGY_RATES

SECOND = ("based", "rebased")
RACE = Race(ahead=SECOND, rival="elu", shown=("identity", "conv"), bench=bench.ZOOLOGY)
MIXERS = RACE.mixers
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
    return same_bytes(OURS, (64,), (1e-2, 3e-2), 3)


def same_bytes(
    base: RecallConfig, widths: Sequence[int], rates: Sequence[float], seeds: int, keys: int = WIDTH
) -> list[RecallConfig]:
    """Return the runs of all mixers at the bytes of Based with keys of width `keys`, for each model width."""
    sizes = {width: mixer_bytes("based", width, base.seq_len, {}, key_dim=keys) for width in widths}
    grids = [sized_grid(base.replace(d_model=width), MIXERS, (size,), rates, seeds) for width, size in sizes.items()]
    return [run for grid in grids for run in grid]


@cache
def stages() -> list[Stage]:
    """Return the day runs: all mixers with 128 tokens at two widths, then those that are judged at other lengths."""
    first = [Stage(day.same_bytes(MIXERS, 128, width)) for width in (64, 32)]
    places = [(256, 64), (512, 64), (256, 32), (512, 32)]
    return [*first, *(Stage(day.same_bytes(RACE.judged, tokens, width)) for tokens, width in places)]


CLAIM = recall_claim(
    name="ranking",
    number="C1",
    statement="With the same bytes of memory, Based and ReBased look up more pairs than elu + 1.",
    source="Based's paper draws its map as the best for its bytes, and ReBased's draws Based and ReBased level up to "
    "512 tokens; softmax solves the task. The papers give no number at this size.",
    rule="yes if at every width and length the leads of Based and of ReBased over elu + 1 have intervals above 0; no "
    "if at every one of them a lead has its interval below 0. Those count where elu + 1 has learned and is below .99. "
    f"Controls: softmax has {PERFECT} or more, elu + 1 {LEARNED} or more and less than .99. Regime: "
    f"{bench.ZOOLOGY.words}, or until converged. Sizes of the quick budget: picked after smaller ones, of 2 or "
    "3 seeds: with 4 pairs elu + 1 came close to Based and ReBased, with 6 pairs softmax had not always learned",
    answers={YES: "Yes, both are ahead of elu + 1", NO: "No, elu + 1 is ahead of one"},
    change="Five seeds at the papers' sizes in which elu + 1, at its best learning rate, is level with Based or "
    "ReBased.",
    configs=configs,
    stages=stages,
    verdict=RACE.verdict,
    numbers=RACE.numbers,
    tables=RACE.tables,
    charts=RACE.charts,
    meaning={
        YES: "For looking things up with a small fixed memory take a second-order kernel before elu + 1, and "
        "softmax where its growing memory can be paid for.",
        NO: "At this size a second-order kernel buys nothing over elu + 1 of the same bytes: choose by speed.",
        OPEN: "The order is not settled by these seeds: do not choose by it.",
    },
)
