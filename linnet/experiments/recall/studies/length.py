"""C2: does ReBased lose less than Based when the same pairs stand in a longer sequence?

    drop = accuracy(short) - accuracy(long), pairs fixed        claim: drop(Based) - drop(ReBased) >= 0.05

The headline of Aksenov et al. 2024 (arXiv:2402.10644): their table 1 has, at d_model 32 and 32 pairs, Based .82 -> .66
and ReBased .86 -> .83 from 256 to 2,048 tokens. With zero filler every distractor is the same token, one direction to
suppress; random filler, which never is a key or value of the sequence, is the honest test. Both are run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...results import Row
from ..config import RecallConfig
from ..stats import interval, paired
from ..study import (
    BRIEF,
    CONFIRMED,
    REFUTED,
    UNCLEAR,
    UNTESTED,
    Study,
    Table,
    Verdict,
    by_cell,
    grid,
    intervals,
    missing,
    table,
)

KERNELS = ("based", "rebased")
ENOUGH = 0.05
LEARNED = 0.3  # a cell below this at the short length has nothing to lose
BASE = RecallConfig(vocab_size=1024, pairs=8, key_dim=8, d_model=24, seq_len=32, steps=800)
PAPER = RecallConfig(
    vocab_size=8192, pairs=32, n_heads=12, key_dim=16, positions="learned", dropout=0.1, steps=12_544,
    batch_size=512, examples=100_000, warmup=0.0, beta2=0.999, d_model=32, head_dim=2, seq_len=256,
)  # fmt: skip


def configs(budget: str) -> list[RecallConfig]:
    if budget == "smoke":
        return grid(BASE.but(steps=4), mixer=KERNELS, seq_len=(32, 64))
    if budget == "brief":
        return [config for kernel in KERNELS for config in brief(kernel)]
    if budget == "paper":
        return [
            config.but(head_dim=config.d_model // 12)
            for config in grid(
                PAPER, mixer=KERNELS, d_model=(16, 24, 32, 48), seq_len=(256, 2048), lr=(5e-4, 1e-3, 3e-3, 1e-2),
                seed=range(5),
            )
        ]  # fmt: skip
    widths, lengths, seeds = ((16, 24), (32, 128), 3) if budget == "quick" else ((16, 24, 32), (32, 128, 512), 5)
    rates = (1e-2, 3e-2)
    return grid(
        BASE, mixer=KERNELS, filler=("zero", "random"), d_model=widths, seq_len=lengths, lr=rates, seed=range(seeds)
    )


def brief(kernel: str) -> list[RecallConfig]:
    """The runs of Based tell about its floor as well, and are shared with that study."""
    keys, probes = (3, ("floor",)) if kernel == "based" else (4, ())  # 10 features each
    base = BRIEF.but(mixer=kernel, vocab_size=52, key_dim=keys, steps=400, probes=probes)
    return grid(base, filler=("zero", "random"), seq_len=(16, 48), seed=range(3))


def cell(config: RecallConfig) -> tuple[str, int, int, str]:
    return config.filler, config.d_model, config.seq_len, config.mixer


def verdict(rows: Sequence[Row]) -> Verdict:
    cells = by_cell(rows, cell)
    lengths = sorted({length for _, _, length, _ in cells})
    short, long = lengths[0], lengths[-1]
    said, met, against = [], 0, 0
    for filler, width in sorted({(f, d) for f, d, _, _ in cells}):
        wanted = [(filler, width, n, kernel) for n in (short, long) for kernel in KERNELS]
        absent = missing(cells, wanted)
        if absent:
            return absent
        if min(interval(list(cells[c].values())).mean for c in wanted[:2]) < LEARNED:
            continue  # nothing to lose
        gap = paired(*(drop(cells[filler, width, short, k], cells[filler, width, long, k]) for k in KERNELS))
        met += gap.mean >= ENOUGH and gap.low > 0
        against += gap.high < ENOUGH
        said.append(f"{filler} filler, d={width}: {gap}")
    if not said:
        return Verdict(UNTESTED, f"no width has an accuracy of {LEARNED} or more at {short} tokens with both kernels")
    sentence = f"drop(Based) - drop(ReBased) from {short} to {long} tokens: " + "; ".join(said)
    outcome = CONFIRMED if met >= 2 else REFUTED if against == len(said) else UNCLEAR
    return Verdict(outcome, sentence)


def drop(short: Mapping[int, float], long: Mapping[int, float]) -> dict[int, float]:
    """Of every seed that has both lengths."""
    return {seed: short[seed] - long[seed] for seed in short if seed in long}


def tables(rows: Sequence[Row]) -> list[Table]:
    found = dict(sorted(intervals(by_cell(rows, cell)).items()))
    return [table("recall by length, the same pairs", ("filler", "d", "N", "kernel"), found)]


STUDY = Study(
    name="length",
    claim="C2",
    question="Does ReBased lose less than Based when the same pairs stand in a longer sequence?",
    expected="yes: the paper's drop is .16 for Based and .03 for ReBased at d_model 32, from 256 to 2,048 tokens",
    rule=f"confirmed if drop(Based) - drop(ReBased) >= {ENOUGH} with an interval above 0 at two widths or fillers; "
    f"refuted if the interval is below {ENOUGH} everywhere",
    configs=configs,
    verdict=verdict,
    tables=tables,
    cost={"smoke": "seconds", "quick": "9 minutes"},
)
