"""C1: at the same bytes of state, do kernels of second order (Based, ReBased) recall more than elu + 1 and q . k?

    conv, softmax >= .99        based, rebased > elu, identity      at the bytes of Based with keys of width 8
    conv, conv far lower: filters of 3 tokens cannot look anything up

The feature map turns keys of width f into about f^2 / 2 numbers, elu + 1 and the identity leave them f, so at the same
bytes theirs have five times the width to begin with. Figure 3 of Arora et al. 2024 (arXiv:2402.18668) has the Taylor
map best for its bytes; figure 1 of Aksenov et al. 2024 (arXiv:2402.10644) has ReBased and Based level at 64 to 512
tokens. Every mixer has the same rates to choose from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...results import Row
from ..config import RecallConfig
from ..sizes import FIXED, mixer_bytes, sized
from ..stats import Interval
from ..study import (
    BRIEF,
    CONFIRMED,
    REFUTED,
    UNCLEAR,
    Study,
    Table,
    Verdict,
    by_cell,
    intervals,
    missing,
)
from .state_law import ZOOLOGY, ZOOLOGY_RATES

SECOND, FIRST = ("based", "rebased"), ("elu", "identity")
EXACT, BLIND = "softmax", "conv"
MIXERS = (EXACT, *SECOND, *FIRST, BLIND)
PERFECT = 0.99
FAR = 0.3  # of the convolution below the lower of the second order kernels
WIDTH = 8  # of Based's keys, which set the bytes
OURS = RecallConfig()
EIGHT = BRIEF.but(seq_len=32, pairs=8, vocab_size=64, steps=500)  # with 4 pairs elu + 1 is close to Based


def configs(budget: str) -> list[RecallConfig]:
    if budget == "smoke":
        return made(OURS.but(steps=4, seq_len=32, pairs=8), (16,), (1e-2,), 1)
    if budget == "brief":
        return made(EIGHT, (32,), (1e-2,), 3, keys=5)
    if budget == "paper":
        return made(ZOOLOGY.but(seq_len=64, pairs=16), (64, 128), ZOOLOGY_RATES, 5)
    if budget == "quick":
        return made(OURS, (64,), (1e-2, 3e-2), 3)
    return made(OURS.but(steps=1600), (32, 64), (1e-3, 3e-3, 1e-2, 3e-2), 5)


def made(
    base: RecallConfig, widths: Sequence[int], rates: Sequence[float], seeds: int, keys: int = WIDTH
) -> list[RecallConfig]:
    found = []
    for width in widths:
        size = mixer_bytes("based", width, base.seq_len, {}, key_dim=keys)
        for mixer in MIXERS:
            change: dict[str, Any] = {} if mixer in FIXED else sized(mixer, size, d_model=width, length=base.seq_len)
            cells = base.but(mixer=mixer, d_model=width, **change)
            found += [cells.but(lr=lr, seed=seed) for lr in rates for seed in range(seeds)]
    return found


def cell(config: RecallConfig) -> tuple[int, str]:
    return config.d_model, config.mixer


def verdict(rows: Sequence[Row]) -> Verdict:
    cells = by_cell(rows, cell)
    widths = sorted({width for width, _ in cells})
    absent = missing(cells, [(width, mixer) for width in widths for mixer in MIXERS])
    if absent:
        return absent
    found = intervals(cells)
    by_width = {width: {mixer: found[width, mixer] for mixer in MIXERS} for width in widths}
    outcomes = [outcome(of) for of in by_width.values()]
    said = "; ".join(
        f"d={width}: " + ", ".join(f"{mixer} {of[mixer]}" for mixer in MIXERS) for width, of in by_width.items()
    )
    return Verdict(outcomes[0] if len(set(outcomes)) == 1 else UNCLEAR, said)


def outcome(found: dict[str, Interval]) -> str:
    """Of one width."""
    second, first = [found[m] for m in SECOND], [found[m] for m in FIRST]
    lowest = min(one.mean for one in second)
    above = all(high.apart(low) and high.mean > low.mean for high in second for low in (*first, found[BLIND]))
    if found[EXACT].mean >= PERFECT and above and found[BLIND].mean <= lowest - FAR:
        return CONFIRMED
    below = any(low.apart(high) and low.mean > high.mean for high in second for low in (*first, found[BLIND]))
    return REFUTED if below or found[EXACT].high < PERFECT else UNCLEAR


def tables(rows: Sequence[Row]) -> list[Table]:
    found, stored = intervals(by_cell(rows, cell)), by_cell(rows, cell, "mixer_bytes")
    lines = [
        (str(width), mixer, f"{max(stored[width, mixer].values()):,}", str(one), str(one.seeds))
        for (width, mixer), one in sorted(found.items(), key=lambda item: (item[0][0], MIXERS.index(item[0][1])))
    ]
    return [Table(("d", "mixer", "bytes of state", "accuracy", "seeds"), lines, "recall at the same bytes of state")]


STUDY = Study(
    name="ranking",
    claim="C1",
    question="At the same bytes of state, do Based and ReBased recall more than elu + 1 and plain q . k?",
    expected="softmax solves it, Based and ReBased come next, elu + 1 and the identity below, convolutions alone last",
    rule=f"confirmed if at every width softmax has {PERFECT} or more in the mean, the intervals of Based and ReBased "
    f"lie above those of elu, the identity and convolutions alone, and convolutions are {FAR} or more below; refuted "
    f"if at every width the interval of one of these lies above that of Based or ReBased, or softmax is below "
    f"{PERFECT} with its whole interval",
    configs=configs,
    verdict=verdict,
    tables=tables,
    cost={"smoke": "seconds", "quick": "3 minutes"},
)
