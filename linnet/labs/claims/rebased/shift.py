"""C8: does one attention layer look things up only after a layer that sees the previous token?

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
from ...core.licence import learned, settled
from ...core.results import Row
from ...core.verdicts import NO, OPEN, YES, Table, Verdict, intervals, missing, table
from ...recall import bench
from ...recall.cells import RECALL, Charts, Point, bar_chart, by_cell, curves_of, point, recall
from ...recall.config import RecallConfig
from ...recall.study import enlarged, judged, recall_claim
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
    return settings_grid(OURS, (1e-2, 3e-2), 3)


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
    sentence = f"one softmax layer recalls {ahead} after a convolution, {alone} alone, {placed} with learned positions"
    state = YES if max(alone.high, placed.high) < FAILS else NO if max(alone.low, placed.low) >= FAILS else OPEN
    controls = [
        learned("softmax", ahead.mean, PASSES, "recall after a convolution"),
        settled("softmax alone", curves_of(rows, cell, [WITHOUT, PLACED])),
    ]
    seeds = min(one.seeds for one in (ahead, alone, placed))
    return judged(state, sentence, rows, bench.ZOOLOGY, seeds, controls)


def tables(rows: Sequence[Row]) -> list[Table]:
    measured = intervals(by_cell(rows, cell))
    order = {one: measured[one] for one in SETTINGS if one in measured}
    return [table("recall by what comes first", ("mixer", "before it", "layers of it", "positions"), order)]


def numbers(rows: Sequence[Row]) -> list[Number]:
    """Return the recall of one layer alone, the higher first, which decides; then that after a convolution."""
    cells = by_cell(rows, cell)
    named = {
        WITHOUT: "recall of one softmax layer alone",
        PLACED: "recall of one softmax layer alone, with learned positions",
        WITH: "recall of one softmax layer after a short convolution",
        ("rebased", "conv", 1, "none"): "recall of one ReBased layer after a short convolution",
        ("rebased", ALONE, 1, "none"): "recall of one ReBased layer alone",
    }
    lines = [recall(what, cells[one]) for one, what in named.items() if one in cells]
    return [*sorted(lines[:2], key=lambda one: -one.ours), *lines[2:]]


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
    statement="One attention layer looks things up only after a layer that sees the previous token.",
    source="Zoology, Based and ReBased always put a short convolution before the layer under test; they give no "
    "number without it. A value must know its key before one layer can match the two.",
    rule=f"yes if one softmax layer alone, with learned positions and without, has an interval below {FAILS}; no if "
    f"one of the two has it above. Controls: after a convolution it has {PASSES} or more; inside the regime the recall "
    f"of the layer alone no longer rises. Regime: {bench.ZOOLOGY.words}",
    answers={YES: "Yes, alone it only guesses", NO: "No, one layer alone suffices"},
    change="A longer training in which one softmax layer alone recalls .3 or more.",
    configs=configs,
    verdict=verdict,
    numbers=numbers,
    tables=tables,
    charts=charts,
    meaning={
        YES: "Put a short convolution, or a shift by one token, before attention: one layer alone can only guess among "
        "the values of the context.",
        NO: "One layer does without a look back here: the convolution is not what decides.",
        OPEN: "The convolution helps, but not as cleanly as the argument says at this size.",
    },
)
