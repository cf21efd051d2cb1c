"""C8: does recall need a layer that looks one token back before the layer that looks up?

    conv, mixer     a learned filter of 3 tokens        shift, mixer    a filter fixed to the token before
    mixer           one layer alone                     mixer, mixer    two of them, with learned positions or without

A query is a key, and what it has to find is the value that stands after that key. The value must know its key before
one attention can match the two, so one softmax layer without such a layer can only name a value of the context: 1 in
K. Two layers can build the look back themselves (an induction head), if they have a way to tell positions. Zoology
(Arora et al. 2023, arXiv:2312.04927) and ReBased (arXiv:2402.10644) always have the convolution.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...results import Row
from ..config import RecallConfig
from ..stats import interval
from ..study import (
    CONFIRMED,
    REFUTED,
    UNCLEAR,
    Study,
    Table,
    Verdict,
    by_cell,
    intervals,
    missing,
    table,
)
from .ranking import EIGHT
from .state_law import ZOOLOGY, ZOOLOGY_RATES

PASSES = 0.95
FAILS = 0.3  # 1 in K is .06 with 16 pairs
ALONE = "nothing"
Before = tuple[str, str, int, str]  # mixer, what is before it, layers of it, positions
SETTINGS: tuple[Before, ...] = (
    ("softmax", "conv", 1, "none"),
    ("softmax", "shift", 1, "none"),
    ("softmax", ALONE, 1, "none"),
    ("softmax", ALONE, 1, "learned"),
    ("softmax", ALONE, 2, "none"),
    ("softmax", ALONE, 2, "learned"),
    ("rebased", "conv", 1, "none"),
    ("rebased", "shift", 1, "none"),
    ("rebased", ALONE, 1, "none"),
)
WITH, WITHOUT, PLACED = SETTINGS[0], SETTINGS[2], SETTINGS[3]
FEW = (WITH, WITHOUT, PLACED, SETTINGS[6], SETTINGS[8])
OURS = RecallConfig(key_dim=9)


def configs(budget: str) -> list[RecallConfig]:
    if budget == "smoke":
        return made(OURS.but(steps=4, d_model=16, seq_len=32, pairs=8), (1e-2,), 1)
    if budget == "brief":  # the runs after a convolution are those of the ranking
        return made(EIGHT.but(key_dim=6), (1e-2,), 3, FEW)
    if budget == "paper":
        return made(ZOOLOGY.but(key_dim=16), ZOOLOGY_RATES, 5)
    if budget == "quick":
        return made(OURS, (1e-2, 3e-2), 3)
    return made(OURS.but(steps=2400), (1e-3, 3e-3, 1e-2, 3e-2), 5)


def made(
    base: RecallConfig, rates: Sequence[float], seeds: int, settings: Sequence[Before] = SETTINGS
) -> list[RecallConfig]:
    return [
        base.but(
            mixer=mixer,
            key_dim=base.key_dim if mixer == "rebased" else None,
            first="" if first == ALONE else first,
            depth=depth,
            positions=positions,
            lr=rate,
            seed=seed,
        )
        for mixer, first, depth, positions in settings
        for rate in rates
        for seed in range(seeds)
    ]


def cell(config: RecallConfig) -> Before:
    return config.mixer, config.first or ALONE, config.depth, config.positions


def verdict(rows: Sequence[Row]) -> Verdict:
    cells = by_cell(rows, cell)
    absent = missing(cells, [WITH, WITHOUT, PLACED])
    if absent:
        return absent
    ahead, alone, placed = (interval(list(cells[one].values())) for one in (WITH, WITHOUT, PLACED))
    said = (
        f"one softmax layer: {ahead} after a convolution, {alone} alone, {placed} alone with learned positions; "
        f"to pass is {PASSES}, to fail {FAILS}"
    )
    if ahead.mean >= PASSES and max(alone.high, placed.high) < FAILS:
        return Verdict(CONFIRMED, said)
    if max(alone.low, placed.low) >= PASSES or ahead.high < FAILS:
        return Verdict(REFUTED, said)
    return Verdict(UNCLEAR, said)


def tables(rows: Sequence[Row]) -> list[Table]:
    found = intervals(by_cell(rows, cell))
    order = {one: found[one] for one in SETTINGS if one in found}
    return [table("recall by what comes first", ("mixer", "before it", "layers of it", "positions"), order)]


STUDY = Study(
    name="shift",
    claim="C8",
    question="Does recall need a layer that looks one token back before the layer that looks up?",
    expected="yes: one layer of softmax alone fails, after a short convolution or a shift by one token it passes",
    rule=f"confirmed if one softmax layer after a convolution has {PASSES} or more in the mean and alone, with learned "
    f"positions or without, an interval below {FAILS}; refuted if alone its interval is above {PASSES}, or after a "
    f"convolution below {FAILS}",
    configs=configs,
    verdict=verdict,
    tables=tables,
    cost={"smoke": "seconds", "quick": "6 minutes"},
)
