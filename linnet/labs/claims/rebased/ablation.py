"""C3: does the whole of ReBased's map recall more than a plain square, if both may choose their learning rate?

    x^2,  norm(x)^2,  (gamma x)^2,  (gamma x + beta)^2,  (gamma norm(x) + beta)^2       the paper's rows
    element-wise square, rms or l2 norm, per-head norm, shared or tied affine           unpublished controls
    zero-floor (1 + s)^2 / 2: Based minus its floor of 1/2, nothing learned

Table 1 of Aksenov et al. 2024 (arXiv:2402.10644), 32 pairs, means over widths 16 to 48 at 256 and 2,048 tokens: Based
.58 .51, x^2 .54 .44, norm^2 .57 .58, (gx)^2 .51 .48, (gx+b)^2 .61 .60, ReBased .63 .61. Rates are tuned for every
kernel here, so that a kernel does not lose by being hard to train at the rate of another. A square that recalls .95 or
more leaves nobody room to be ahead by .05.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from ...core.claim import Number, spread
from ...core.intervals import interval, paired, share_interval
from ...core.licence import learned, room, settled
from ...core.results import Row
from ...core.verdicts import NO, OPEN, YES, Cell, Table, Verdict, intervals, missing, shown
from ...recall import bench, day
from ...recall.cells import INTERVALS, NAMES, RECALL, Charts, Point, bar_chart, by_cell, curves_of, point
from ...recall.config import RecallConfig
from ...recall.day import Stage
from ...recall.kernels import KERNELS
from ...recall.study import SMALL, enlarged, judged, recall_claim
from .length import BASE, LEARNED, PAPER

FULL, PLAIN, SHIFTED = "(gamma norm(x) + beta)^2", "x^2", "(gamma x + beta)^2"
FLOOR = "zero-floor"
FEW = ("based", *list(KERNELS)[1:7], FLOOR)  # the paper's rows, element-wise squares and the floor
ENOUGH = 0.05
CEILING = 1 - ENOUGH  # of the plain square
OURS = BASE.replace(d_model=24, seq_len=128)
# Means over widths 16 to 48 at 256 and at 2,048 tokens: table 1 of Aksenov et al. 2024
TABLE_1 = {
    "based": (0.58, 0.51),
    "x^2": (0.54, 0.44),
    "norm(x)^2": (0.57, 0.58),
    "(gamma x)^2": (0.51, 0.48),
    "(gamma x + beta)^2": (0.61, 0.60),
    "(gamma norm(x) + beta)^2": (0.63, 0.61),
}


def configs(budget: str) -> list[RecallConfig]:
    kernels = [RecallConfig.replace(OURS, mixer=mixer, options=options) for mixer, options in KERNELS.values()]
    if budget == "smoke":
        return [config.replace(steps=4, seq_len=32) for config in kernels]
    if budget == "hour":
        return enlarged(configs("quick"))
    if budget == "quick":
        few = [SMALL.replace(mixer=k.mixer, options=k.options, key_dim=4) for k in kernels if name_of(k) in FEW]
        tuned = [config for config in few if name_of(config) in (FULL, PLAIN, "based")]  # their runs are those of C6
        chosen = [*few, *(config.replace(lr=rate) for config in tuned for rate in (3e-3, 3e-2))]
        return [config.replace(seed=seed) for config in chosen for seed in range(3)]
    if budget == "paper":
        return [
            PAPER.replace(mixer=k.mixer, options=k.options, d_model=d, head_dim=d // 12, seq_len=n, lr=lr, seed=seed)
            for k in kernels for d in (16, 24, 32, 48) for n in (256, 2048) for lr in (5e-4, 1e-3, 3e-3, 1e-2)
            for seed in range(5)
        ]  # fmt: skip
    longer = [config.replace(seq_len=64) for config in kernels]
    return [config.replace(lr=rate, seed=seed) for config in longer for rate in (1e-2, 3e-2) for seed in range(3)]


@cache
def stages() -> list[Stage]:
    """Return the day runs at width 32 and 256 tokens: the paper's rows and the floor, then the other controls."""
    base = day.DAY.replace(key_dim=day.WIDTH, d_model=32, seq_len=256)
    every = [base.replace(mixer=mixer, options=options) for mixer, options in KERNELS.values()]
    few = [one for one in every if name_of(one) in FEW]
    rest = [one for one in every if name_of(one) not in FEW]
    return [Stage(few), Stage(rest)]


def name_of(config: RecallConfig) -> str:
    """Return the row of the table that a configuration belongs to."""
    for name, (mixer, options) in KERNELS.items():
        if config.mixer == mixer and dict(config.options) == dict(options):
            return name
    return config.mixer


def cell(config: RecallConfig) -> tuple[str, int, int]:
    return name_of(config), config.d_model, config.seq_len


def recalls(rows: Sequence[Row]) -> dict[Cell, dict[int, float]]:
    """Return (kernel,) -> seed -> accuracy, the mean over widths and lengths as in the paper's table."""
    parts: dict[str, list[dict[int, float]]] = {}
    for (name, _, _), seeds in by_cell(rows, cell).items():
        parts.setdefault(name, []).append(seeds)
    return {
        (name,): {seed: sum(one[seed] for one in of) / len(of) for seed in sorted(set.intersection(*map(set, of)))}
        for name, of in parts.items()
    }


def verdict(rows: Sequence[Row]) -> Verdict:
    cells = recalls(rows)
    absent = missing(cells, [(FULL,), (PLAIN,), (SHIFTED,), (FLOOR,), ("based",)])
    if absent:
        return absent
    lead = paired(cells[FULL,], cells[PLAIN,])
    recall = {name: interval(list(cells[name,].values())) for name in (FULL, PLAIN)}
    places = [one for one in by_cell(rows, cell) if one[0] in recall]
    sentence = f"ReBased recalls {recall[FULL]}, x^2 with a tuned rate {recall[PLAIN]}; difference {lead}"
    controls = [
        learned("x^2", recall[PLAIN].mean, LEARNED),
        room({"x^2": recall[PLAIN].mean}, CEILING),
        settled("either kernel", curves_of(rows, cell, places)),
    ]
    state = YES if lead.low > 0 and lead.mean >= ENOUGH else NO if lead.high < ENOUGH else OPEN
    return judged(state, sentence, rows, bench.TABLE_1, lead.seeds, controls)


def tables(rows: Sequence[Row]) -> list[Table]:
    seeds = recalls(rows)
    measured = intervals(seeds)
    order = [*KERNELS, *(name for (name,) in measured if name not in KERNELS)]
    lines = [
        (name, str(measured[name,]), f"{min(seeds[name,].values()):.3f} - {max(seeds[name,].values()):.3f}")
        for name in order
        if (name,) in measured
    ]
    return [Table(("kernel", "accuracy", "lowest - highest seed"), lines, "ablation of the kernel")]


def numbers(rows: Sequence[Row]) -> list[Number]:
    cells = recalls(rows)
    names = [PLAIN, SHIFTED, "norm(x)^2", "based", FLOOR]
    return [
        spread(f"recall of ReBased less that of {NAMES.get(name, name)}", lead_of_table_1(name), gap)
        for name, gap in ((name, paired(cells[FULL,], cells[name,])) for name in names if (name,) in cells)
    ]


def lead_of_table_1(name: str) -> str | None:
    """Return ReBased minus this kernel in the paper's table, at both lengths."""
    if name not in TABLE_1:
        return None
    short, long = (a - b for a, b in zip(TABLE_1[FULL], TABLE_1[name], strict=True))
    return f"{short:.2f} at 256 tokens, {long:.2f} at 2,048"


def charts(rows: Sequence[Row]) -> Charts:
    cells = recalls(rows)
    names = [name for (name,) in cells]
    series: dict[str, list[Point]] = {"here": [point(NAMES.get(name, name), cells[name,]) for name in names]}
    for place, label in enumerate(("paper, 256 tokens", "paper, 2,048 tokens")):
        series[label] = [(NAMES.get(name, name), TABLE_1[name][place]) for name in names if name in TABLE_1]
    return bar_chart(
        "parts of ReBased taken away", "kernel", RECALL, series, f"here: {INTERVALS}; paper: mean over widths"
    )


def compare_table_1(rows: Sequence[Row]) -> list[Table]:
    """Return the ablation with the paper's means, where it has that kernel."""
    cells = recalls(rows)
    lines = [
        (name, str(share_interval(list(seeds.values()))), *(shown(x) for x in TABLE_1.get(name, ("-", "-"))))
        for (name,), seeds in cells.items()
    ]
    return [Table(("kernel", "recall here", "paper, 256 tokens", "paper, 2,048 tokens"), lines, "next to table 1")]


CLAIM = recall_claim(
    name="ablation",
    number="C3",
    statement="ReBased's norm, scale and shift recall clearly more pairs than a plain square whose learning rate is "
    "tuned.",
    source="The paper prints mean recalls at 2,048 tokens of .44 for x^2, .58 with the norm, .60 with scale and "
    "shift, .61 with all of it, and .51 for Based.",
    rule=f"clearly is {ENOUGH}: yes if ReBased is ahead of x^2 by {ENOUGH} or more with an interval above 0; no if the "
    f"interval is below {ENOUGH}. Controls: x^2 has {LEARNED} or more, and less than {CEILING:g}; inside the regime "
    f"neither recall still rises. Regime: {bench.TABLE_1.words}. Sizes of the quick and hour budgets: with one rate "
    "for every kernel the rule said no; ReBased, x^2 and Based then got three rates",
    answers={YES: "Yes, ReBased is clearly ahead of x^2", NO: "No, ReBased is not clearly ahead"},
    change="Five seeds at the paper's sizes, where it prints x^2 behind by .09 and .17.",
    configs=configs,
    stages=stages,
    verdict=verdict,
    numbers=numbers,
    tables=lambda rows: [*compare_table_1(rows), *tables(rows)],
    charts=charts,
    meaning={
        YES: "Keep the whole of ReBased's map: the plain square is clearly worse also with a learning rate that suits "
        "it.",
        NO: "The plain square does as well when its learning rate suits it: the published gap may be one of "
        "trainability.",
        OPEN: "The two are not told apart by these seeds.",
    },
)
