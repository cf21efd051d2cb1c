"""C13: at the same bytes of state, does Based recall more than Mamba?

    lead = accuracy(Based) - accuracy(Mamba), seed by seed, at the bytes of Based with keys of width 8

Figure 2 of Arora et al. 2024 (arXiv:2402.18668) puts Based above Mamba at every size of state, and figure 1 of Aksenov
et al. 2024 (arXiv:2402.10644) has Mamba at .73 where Based solves the task. Okpekpe and Orvieto 2025 (arXiv:2508.19029)
find that Mamba learns recall in a narrow window of learning rates only, so that such zeros may measure the tuning: here
the rate of every mixer is searched on another seed, a run ends when it has converged, and a Mamba that has not learned
decides nothing. Mamba-2, RWKV-7, the delta rules and convolutions alone run beside them, and are not judged; the state
of RWKV-7 has a size of its own. Every mixer follows the same short convolution.
"""

from __future__ import annotations

from functools import cache

from ...core.verdicts import NO, OPEN, YES
from ...recall import bench, day
from ...recall.config import RecallConfig
from ...recall.day import Stage
from ...recall.lead import LEARNED, PERFECT, Race
from ...recall.sizes import mixer_bytes
from ...recall.study import recall_claim
from ...recall.sweep import sized_grid
from .ranking import EIGHT, OURS
from .state_law import ZOOLOGY, ZOOLOGY_RATES

RACE = Race(
    ahead=("based",), rival="mamba", shown=("gated_delta", "mamba2", "delta", "rwkv7", "conv"), bench=bench.ZOOLOGY
)


def configs(budget: str) -> list[RecallConfig]:
    if budget == "smoke":
        return same_bytes(OURS.replace(steps=4, d_model=16, seq_len=32, pairs=8), (1e-2,), 1)
    if budget == "hour":
        return same_bytes(EIGHT.replace(steps=1000), (1e-2,), 5)
    if budget == "quick":  # too short for most of them
        return []
    if budget == "paper":
        return same_bytes(ZOOLOGY.replace(seq_len=128, pairs=32), ZOOLOGY_RATES, 5)
    return same_bytes(OURS, (1e-2, 3e-2), 3)


def same_bytes(base: RecallConfig, rates: tuple[float, ...], seeds: int) -> list[RecallConfig]:
    """Return the runs of all mixers at the bytes of Based with keys of width 8."""
    size = mixer_bytes("based", base.d_model, base.seq_len, {}, key_dim=day.WIDTH)
    return sized_grid(base, RACE.mixers, (size,), rates, seeds)


@cache
def stages() -> list[Stage]:
    """Return the day runs: all mixers with 128 tokens at two widths, then fewer at other lengths."""
    first = [Stage(day.same_bytes(RACE.mixers, 128, width)) for width in (64, 32)]
    fewer = (*RACE.judged, "mamba2", "gated_delta")
    return [*first, *(Stage(day.same_bytes(fewer, tokens, 64)) for tokens in (256, 512))]


CLAIM = recall_claim(
    name="mamba",
    number="C13",
    statement="With the same bytes of memory, Based looks up more pairs than Mamba.",
    source="Based's paper draws it above Mamba at every size of state, and ReBased's has Mamba at .73 with 128 tokens "
    "and width 64, where Based solves the task.",
    rule="yes if at every width and length the lead of Based over Mamba has an interval above 0; no if at every one it "
    "lies below 0. Those count where Mamba has learned and is below .99. Controls: softmax has "
    f"{PERFECT} or more, Mamba {LEARNED} or more and less than .99. Regime: {bench.ZOOLOGY.words}, or until converged",
    answers={YES: "Yes, Based is ahead", NO: "No, Mamba is ahead"},
    change="Five seeds at the papers' sizes in which Mamba, at its best learning rate, is level with Based.",
    configs=configs,
    stages=stages,
    verdict=RACE.verdict,
    numbers=RACE.numbers,
    tables=RACE.tables,
    charts=RACE.charts,
    meaning={
        YES: "For looking things up with a small fixed memory take Based before Mamba, and see the table for the delta "
        "rules.",
        NO: "Mamba's selective state recalls more than Based's feature map for its bytes here: choose by it.",
        OPEN: "The order is not settled by these seeds: do not choose by it.",
    },
)
