"""C3: which part of ReBased matters: the norm, the scale, the shift, or that its kernel can reach zero?

    x^2,  norm(x)^2,  (gamma x)^2,  (gamma x + beta)^2,  (gamma norm(x) + beta)^2       the paper's rows
    element-wise square, rms or l2 norm, per-head norm, shared or tied affine           controls nobody reported
    zero-floor (1 + s)^2 / 2: Based less its floor of 1/2, nothing learned

Table 1 of Aksenov et al. 2024 (arXiv:2402.10644), 32 pairs, means over widths 16 to 48 at 256 and 2,048 tokens: Based
.58 .51, x^2 .54 .44, norm^2 .57 .58, (gx)^2 .51 .48, (gx+b)^2 .61 .60, ReBased .63 .61. Rates are tuned for every
kernel here, so that a kernel does not lose by being hard to train at the rate of another.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....feature_maps.ablation import KERNELS
from ...results import Row
from ..config import RecallConfig
from ..stats import Interval, paired
from ..study import BRIEF, CONFIRMED, REFUTED, UNCLEAR, Study, Table, Verdict, by_cell, intervals, missing
from .length import BASE, PAPER

FULL, PLAIN, SHIFTED = "(gamma norm(x) + beta)^2", "x^2", "(gamma x + beta)^2"
FLOOR = "zero-floor"
FEW = ("based", *list(KERNELS)[1:7], FLOOR)  # the paper's rows, element-wise squares and the floor
ENOUGH = 0.05
OURS = BASE.but(d_model=24, seq_len=128)


def configs(budget: str) -> list[RecallConfig]:
    kernels = [RecallConfig.but(OURS, mixer=mixer, options=options) for mixer, options in KERNELS.values()]
    if budget == "smoke":
        return [config.but(steps=4, seq_len=32) for config in kernels]
    if budget == "brief":
        few = [BRIEF.but(mixer=k.mixer, options=k.options, key_dim=4) for k in kernels if name_of(k) in FEW]
        tuned = [config for config in few if name_of(config) in (FULL, PLAIN, "based")]  # their runs are those of C6
        found = [*few, *(config.but(lr=rate) for config in tuned for rate in (3e-3, 3e-2))]
        return [config.but(seed=seed) for config in found for seed in range(3)]
    if budget == "paper":
        return [
            PAPER.but(mixer=k.mixer, options=k.options, d_model=d, head_dim=d // 12, seq_len=n, lr=lr, seed=seed)
            for k in kernels for d in (16, 24, 32, 48) for n in (256, 2048) for lr in (5e-4, 1e-3, 3e-3, 1e-2)
            for seed in range(5)
        ]  # fmt: skip
    rates, seeds, length = ((1e-2, 3e-2), 3, 64) if budget == "quick" else ((3e-3, 1e-2, 3e-2), 5, 128)
    return [
        config.but(lr=rate, seed=seed, seq_len=length) for config in kernels for rate in rates for seed in range(seeds)
    ]


def name_of(config: RecallConfig) -> str:
    """The row of the table that a configuration belongs to."""
    for name, (mixer, options) in KERNELS.items():
        if config.mixer == mixer and dict(config.options) == dict(options):
            return name
    return config.mixer


def cell(config: RecallConfig) -> tuple[str]:
    return (name_of(config),)


def verdict(rows: Sequence[Row]) -> Verdict:
    cells = by_cell(rows, cell)
    absent = missing(cells, [(FULL,), (PLAIN,), (SHIFTED,), (FLOOR,), ("based",)])
    if absent:
        return absent
    against = {name: paired(cells[FULL,], cells[name,]) for name in (PLAIN, SHIFTED, FLOOR, "based")}
    plain, floor = against[PLAIN], against[FLOOR]
    said = "ReBased ahead of " + "; ".join(f"{name} by {gap}" for name, gap in against.items())
    if plain.low > 0 and plain.mean >= ENOUGH:
        why = "the zero-floor control matches it, so the floor is the cause" if near(floor) else ""
        return Verdict(CONFIRMED, said + ("; " + why if why else ""))
    if plain.high < ENOUGH:
        return Verdict(REFUTED, said + "; x^2 with a tuned rate matches it: the published gap measured trainability")
    return Verdict(UNCLEAR, said)


def near(gap: Interval) -> bool:
    return gap.low <= 0 <= gap.high or abs(gap.mean) < ENOUGH


def tables(rows: Sequence[Row]) -> list[Table]:
    found = intervals(by_cell(rows, cell))
    order = [*KERNELS, *(name for (name,) in found if name not in KERNELS)]
    spread = by_cell(rows, cell)
    lines = [
        (name, str(found[name,]), f"{min(spread[name,].values()):.3f} - {max(spread[name,].values()):.3f}")
        for name in order
        if (name,) in found
    ]
    return [Table(("kernel", "accuracy", "lowest - highest seed"), lines, "ablation of the kernel")]


STUDY = Study(
    name="ablation",
    claim="C3",
    question="Which part of ReBased matters: norm, scale, shift, or that its kernel can reach zero?",
    expected="the shift most, then the norm, which also narrows the spread over seeds; element-wise squares lose",
    rule=f"confirmed if ReBased is ahead of x^2 by {ENOUGH} or more with an interval above 0; refuted if x^2 with a "
    f"tuned rate is within {ENOUGH}",
    configs=configs,
    verdict=verdict,
    tables=tables,
    cost={"smoke": "seconds", "quick": "6 minutes"},
)
