"""C5: does the scale gamma of trained ReBased end where weight decay alone would leave it?

    beta = 0:  (gamma q . k)^2 / sum_j (gamma q . k_j)^2 is the same for every gamma: no gradient on its size
    then AdamW takes gamma from 1 to decay_alone = prod_t (1 - lr_t weight_decay) = exp(-weight_decay sum_t lr_t)

Figure 10 of Aksenov et al. 2024 (arXiv:2402.10644): mean gamma goes to about 0.13 at every length, beta to 0; their
schedule gives decay_alone = exp(-0.1 3e-3 0.5 12544) = 0.15. Runs without weight decay on vectors (`decay_all`: gamma
and beta, the gains of norms, the biases) should leave gamma at 1. Recall and beta are shown, and not judged.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core.claim import Number, spread
from ...core.intervals import Interval, interval, paired, share_interval
from ...core.licence import learned, settled
from ...core.results import Row
from ...core.verdicts import NO, OPEN, UNTESTED, YES, Cell, Table, Verdict, missing, shown
from ...recall import bench
from ...recall.cells import Charts, Point, bar_chart, by_cell, curves_of, grid, known, mean, point
from ...recall.config import RecallConfig
from ...recall.study import SMALL, judged, recall_claim
from .length import LEARNED, PAPER

CLOSE = 0.1  # of gamma to the prediction
OURS = RecallConfig(mixer="rebased", key_dim=8, d_model=32, probes=("gains",))


def configs(budget: str) -> list[RecallConfig]:
    both = (True, False)
    if budget == "smoke":
        return grid(OURS.replace(steps=4), decay_all=both)
    if budget == "quick":  # the rate and the steps leave gamma less than half by decay alone
        return grid(
            SMALL.replace(mixer="rebased", key_dim=8, lr=3e-2, steps=500, probes=("gains",)),
            decay_all=both,
            seed=range(3),
        )
    if budget == "paper":
        base = PAPER.replace(mixer="rebased", d_model=48, head_dim=4, lr=3e-3, probes=("gains",))
        return grid(base, decay_all=both, seq_len=(256, 2048), seed=range(5))
    return grid(OURS, decay_all=both, seq_len=(64, 128), lr=(1e-2, 3e-2), seed=range(3))


def cell(config: RecallConfig) -> tuple[int, float, bool]:
    return config.seq_len, config.lr, config.decay_all


def verdict(rows: Sequence[Row]) -> Verdict:
    accuracy = by_cell(rows, cell)
    gamma = known(by_cell(rows, cell, "gains"), "gamma_mean")
    if not accuracy:
        return Verdict(UNTESTED, "there are no rows")
    absent = missing(gamma, sorted(accuracy))
    if absent:
        return absent
    recall = {one: interval(list(seeds.values())).mean for one, seeds in accuracy.items()}
    off = {one: gap for one, gap in offsets(rows).items() if recall[one] >= LEARNED}
    controls = [
        learned("ReBased", max(recall.values()), LEARNED),
        settled("ReBased", curves_of(rows, cell, accuracy)),
    ]
    sentence = f"gamma less what decay alone leaves lies within {CLOSE} at {sum(map(inside, off.values()))} of "
    sentence += f"{len(off)} settings, with weight decay and without"
    if off:
        worst = furthest(off)
        sentence += f"; furthest {named(worst)}: {off[worst]}"
    return judged(
        state_of(off), sentence, rows, bench.TABLE_1, min((gap.seeds for gap in off.values()), default=0), controls
    )


def offsets(rows: Sequence[Row]) -> dict[Cell, Interval]:
    """Return setting -> gamma less what decay alone leaves of 1, over the seeds."""
    gains = by_cell(rows, cell, "gains")
    gamma, alone = known(gains, "gamma_mean"), known(gains, "decay_alone")
    return {one: paired(gamma[one], alone[one]) for one in sorted(gamma)}


def state_of(off: dict[Cell, Interval]) -> str:
    if off and all(map(inside, off.values())):
        return YES
    return NO if any(map(beyond, off.values())) else OPEN


def inside(gap: Interval) -> bool:
    return gap.low >= -CLOSE and gap.high <= CLOSE


def beyond(gap: Interval) -> bool:
    """Return whether the whole interval is further from 0 than CLOSE."""
    return gap.low > CLOSE or gap.high < -CLOSE


def furthest(off: dict[Cell, Interval]) -> Cell:
    """Return the setting that decides: of those beyond CLOSE, or else of all, that which reaches furthest from 0."""
    outside = [one for one in off if beyond(off[one])]
    return max(outside or off, key=lambda one: max(abs(off[one].low), abs(off[one].high)))


def named(setting: Cell) -> str:
    tokens, rate, decayed = setting
    return f"{tokens} tokens, rate {rate:g}, {'with' if decayed else 'without'} decay"


def tables(rows: Sequence[Row]) -> list[Table]:
    accuracy, gains = by_cell(rows, cell), by_cell(rows, cell, "gains")
    names = ("gamma_mean", "decay_alone", "gamma_std", "beta_mean", "beta_std")
    values = {name: known(gains, name) for name in names}
    lines = [
        (
            *(shown(part) for part in one[:2]),
            "yes" if one[2] else "no",
            *(f"{interval(list(values[name][one].values())).mean:.3f}" for name in names),
            str(share_interval(list(accuracy[one].values()))),
            str(len(accuracy[one])),
        )
        for one in sorted(values["gamma_mean"])
    ]
    head = ("N", "lr", "decay", "gamma", "decay alone", "gamma std", "beta", "beta std", "accuracy", "seeds")
    return [Table(head, lines, "gamma and beta with weight decay on vectors and without")]


def numbers(rows: Sequence[Row]) -> list[Number]:
    """Return the offset that decides, then the longest sequences and the highest rate, where decay is strongest."""
    accuracy, gains, off = by_cell(rows, cell), by_cell(rows, cell, "gains"), offsets(rows)
    gamma, alone, beta = (known(gains, name) for name in ("gamma_mean", "decay_alone", "beta_std"))
    able = {one: gap for one, gap in off.items() if interval(list(accuracy[one].values())).mean >= LEARNED} or off
    worst = furthest(able)
    tokens, rate, _ = max(gamma)
    decayed, free = (tokens, rate, True), (tokens, rate, False)
    return [
        spread(f"gamma less what decay alone leaves, furthest from 0: {named(worst)}", None, off[worst]),
        mean("mean gamma of ReBased trained with weight decay on it", gamma[decayed], "about 0.13"),
        mean("what decay alone would leave of a gamma of 1", alone[decayed], "0.15 by its schedule"),
        mean("mean gamma of ReBased trained without that decay", gamma[free]),
        spread("recall with that decay less recall without", None, paired(accuracy[decayed], accuracy[free])),
        mean("standard deviation of beta over its coordinates, with decay", beta[decayed]),
    ]


def charts(rows: Sequence[Row]) -> Charts:
    gains = by_cell(rows, cell, "gains")
    gamma, alone = known(gains, "gamma_mean"), known(gains, "decay_alone")
    series: dict[str, list[Point]] = {"gamma, decayed": [], "decay alone": [], "gamma, not decayed": []}
    for tokens, rate, decayed in sorted(gamma):
        where = f"{tokens} tokens, rate {rate:g}"
        series["gamma, decayed" if decayed else "gamma, not decayed"].append(point(where, gamma[tokens, rate, decayed]))
        if decayed:
            series["decay alone"].append(point(where, alone[tokens, rate, decayed]))
    return bar_chart("where the scale of ReBased ends, having begun at 1", "run", "mean gamma", series)


CLAIM = recall_claim(
    name="drift",
    number="C5",
    statement="The scale gamma of trained ReBased ends where weight decay alone would leave it.",
    source="The paper's figure has the scale gamma go to about 0.13 at every length and beta to 0. Its schedule would "
    "leave 0.15 of a scale that nothing holds.",
    rule=f"yes if at every length and rate that learns, with decay and without, the interval of gamma less what decay "
    f"alone leaves is within {CLOSE}; no if one of them lies beyond {CLOSE}. Controls: ReBased has {LEARNED} or more; "
    f"inside the regime its recall no longer rises. Regime: {bench.TABLE_1.words}",
    answers={YES: "Yes, gamma is left over by decay", NO: "No, gamma ends elsewhere"},
    change="Five seeds at the paper's schedule in which gamma ends .1 or more from the 0.15 of decay alone.",
    configs=configs,
    verdict=verdict,
    numbers=numbers,
    tables=tables,
    charts=charts,
    meaning={
        YES: "Do not read a meaning into a small gamma: it is what weight decay leaves of a scale that changes "
        "nothing.",
        NO: "The scale is not what decay leaves: something in the training holds it.",
        OPEN: "Partly left over: at some settings gamma may differ from what decay alone explains.",
    },
)
