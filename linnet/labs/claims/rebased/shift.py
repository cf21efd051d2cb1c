"""C8: does recall need a layer that sees the previous token before the layer that looks up?

    conv, mixer     a learned filter of 3 tokens        shift, mixer    a filter fixed to the previous token
    mixer           one layer alone                     mixer, mixer    two of them, with learned positions or without

A query is a key, and its answer is the value after that key. The value must carry its key before one attention layer
can match the two, so one softmax layer without such a layer can only guess a value of the context: 1 in K. Two layers
can build the shift themselves (an induction head), if they can tell positions apart. Zoology
(Arora et al. 2023, arXiv:2312.04927) and ReBased (arXiv:2402.10644) always have the convolution.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core.claim import Number
from ...core.intervals import interval
from ...core.results import Row
from ...core.verdicts import CONFIRMED, REFUTED, UNCLEAR, Table, Verdict, intervals, missing, table
from ...recall.cells import RECALL, Charts, Point, bar_chart, by_cell, mean, point
from ...recall.config import RecallConfig
from ...recall.study import enlarged, recall_claim
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
        return settings_grid(OURS.replace(steps=4, d_model=16, seq_len=32, pairs=8), (1e-2,), 1)
    if budget == "hour":
        return enlarged(configs("quick"))
    if budget == "quick":  # the runs after a convolution are those of the ranking
        return settings_grid(EIGHT.replace(key_dim=6), (1e-2,), 3, FEW)
    if budget == "paper":
        return settings_grid(ZOOLOGY.replace(key_dim=16), ZOOLOGY_RATES, 5)
    if budget == "long":
        return settings_grid(OURS, (1e-2, 3e-2), 3)
    return settings_grid(OURS.replace(steps=2400), (1e-3, 3e-3, 1e-2, 3e-2), 5)


def settings_grid(
    base: RecallConfig, rates: Sequence[float], seeds: int, settings: Sequence[Before] = SETTINGS
) -> list[RecallConfig]:
    return [
        base.replace(
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
    sentence = (
        f"one softmax layer: {ahead} after a convolution, {alone} alone, {placed} alone with learned positions; "
        f"to pass is {PASSES}, to fail {FAILS}"
    )
    if ahead.mean >= PASSES and max(alone.high, placed.high) < FAILS:
        return Verdict(CONFIRMED, sentence)
    if max(alone.low, placed.low) >= PASSES or ahead.high < FAILS:
        return Verdict(REFUTED, sentence)
    return Verdict(UNCLEAR, sentence)


def tables(rows: Sequence[Row]) -> list[Table]:
    measured = intervals(by_cell(rows, cell))
    order = {one: measured[one] for one in SETTINGS if one in measured}
    return [table("recall by what comes first", ("mixer", "before it", "layers of it", "positions"), order)]


def numbers(rows: Sequence[Row]) -> list[Number]:
    cells = by_cell(rows, cell)
    named = {
        WITH: "recall of one softmax layer after a short convolution",
        WITHOUT: "recall of one softmax layer alone",
        PLACED: "recall of one softmax layer alone, with learned positions",
        ("rebased", "conv", 1, "none"): "recall of one ReBased layer after a short convolution",
        ("rebased", ALONE, 1, "none"): "recall of one ReBased layer alone",
    }
    return [mean(what, cells[one]) for one, what in named.items() if one in cells]


def charts(rows: Sequence[Row]) -> Charts:
    cells = by_cell(rows, cell)
    series: dict[str, list[Point]] = {"softmax": [], "rebased": []}
    for one in SETTINGS:
        if one in cells:
            mixer, first, depth, positions = one
            placed = ", learned positions" if positions == "learned" else ""
            series[mixer].append(point(f"{first} before, {depth} layer{'s' * (depth > 1)}{placed}", cells[one]))
    return bar_chart("recall by what comes before the layer", "before it", RECALL, series)


CLAIM = recall_claim(
    name="shift",
    number="C8",
    question="Does looking things up need a layer that looks one token back first?",
    statement="Zoology, Based and ReBased always put a short convolution before the layer under test; they give no "
    "number without it. A value must know its key before one layer can match the two.",
    rule=f"confirmed if one softmax layer after a convolution has {PASSES} or more in the mean and alone, with learned "
    f"positions or without, an interval below {FAILS}; refuted if alone its interval is above {PASSES}, or after a "
    f"convolution below {FAILS}",
    configs=configs,
    verdict=verdict,
    numbers=numbers,
    tables=tables,
    charts=charts,
    meaning={
        CONFIRMED: "Put a short convolution, or a shift by one token, before attention: one layer alone can only "
        "guess among the values of the context.",
        REFUTED: "One layer does without a look back here, or fails with it: the convolution is not what decides.",
        UNCLEAR: "The convolution helps, but not as cleanly as the argument says at this size.",
    },
)
