"""C5: is the small gamma of trained ReBased learned, or what weight decay leaves of a scale without gradient?

    beta = 0:  (gamma q . k)^2 / sum_j (gamma q . k_j)^2 is the same for every gamma: no gradient on its size
    then AdamW takes gamma from 1 to decay_alone = prod_t (1 - lr_t weight_decay) = exp(-weight_decay sum_t lr_t)

Figure 10 of Aksenov et al. 2024 (arXiv:2402.10644): mean gamma goes to about 0.13 at every length, beta to 0; their
schedule gives decay_alone = exp(-0.1 3e-3 0.5 12544) = 0.15. The same runs with weight decay on vectors and without
tell: `decay_all` is about gamma and beta, and also about every other vector, the gains of norms and the biases.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core.claim import Number
from ...core.intervals import Interval, interval, paired
from ...core.results import Row
from ...core.verdicts import CONFIRMED, REFUTED, UNCLEAR, UNTESTED, Table, Verdict, missing, shown
from ...recall.cells import Charts, Point, bar_chart, by_cell, grid, known, mean, point
from ...recall.config import RecallConfig
from ...recall.study import SMALL, recall_claim
from .length import LEARNED, PAPER

CLOSE = 0.1  # of gamma to the prediction
EQUAL = 0.02  # of two accuracies
SPREAD = 0.1  # of beta over its coordinates, from which it is not small
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
    if budget in ("hour", "long"):
        return grid(OURS, decay_all=both, seq_len=(64, 128), lr=(1e-2, 3e-2), seed=range(3))
    return grid(
        OURS.replace(key_dim=16, steps=1600, vocab_size=512),
        decay_all=both,
        seq_len=(64, 128, 256),
        lr=(3e-3, 1e-2, 3e-2),
        seed=range(5),
    )


def cell(config: RecallConfig) -> tuple[int, float, bool]:
    return config.seq_len, config.lr, config.decay_all


def verdict(rows: Sequence[Row]) -> Verdict:
    accuracy, gains = by_cell(rows, cell), by_cell(rows, cell, "gains")
    gamma, alone = known(gains, "gamma_mean"), known(gains, "decay_alone")
    beta, spread = known(gains, "beta_mean"), known(gains, "beta_std")
    clauses, met, against = [], 0, 0
    for length, rate in sorted({(length, rate) for length, rate, _ in accuracy}):
        decayed, free = (length, rate, True), (length, rate, False)
        absent = missing(gamma, [decayed, free])
        if absent:
            return absent
        if max(interval(list(accuracy[one].values())).mean for one in (decayed, free)) < LEARNED:
            continue  # the model has learned nothing
        off, still = paired(gamma[decayed], alone[decayed]), paired(gamma[free], alone[free])
        gap, wide = paired(accuracy[decayed], accuracy[free]), interval(list(spread[decayed].values()))
        centred = abs(interval(list(beta[decayed].values())).mean) < wide.mean / 2 and wide.mean >= SPREAD
        met += within(off, CLOSE) and within(still, CLOSE) and alike(gap) and centred
        against += beyond(off, CLOSE) or beyond(still, CLOSE) or beyond(gap, EQUAL)
        clauses.append(
            f"N={length}, lr={rate:g}: gamma off by {off} and {still}, accuracy by {gap}, beta std {wide.mean:.2f}"
        )
    if not clauses:
        return Verdict(UNTESTED, f"no length and rate has an accuracy of {LEARNED} or more")
    sentence = "with decay and without, against decay alone and 1: " + "; ".join(clauses)
    return Verdict(CONFIRMED if met == len(clauses) else REFUTED if 2 * against > len(clauses) else UNCLEAR, sentence)


def within(gap: Interval, most: float) -> bool:
    return abs(gap.mean) <= most


def beyond(gap: Interval, most: float) -> bool:
    """Return whether the whole interval is further from 0."""
    return gap.low > most or gap.high < -most


def alike(gap: Interval) -> bool:
    """Return whether noise can explain the difference: 0 is in the interval, or it is small."""
    return gap.low <= 0 <= gap.high or within(gap, EQUAL)


def tables(rows: Sequence[Row]) -> list[Table]:
    accuracy, gains = by_cell(rows, cell), by_cell(rows, cell, "gains")
    names = ("gamma_mean", "decay_alone", "gamma_std", "beta_mean", "beta_std")
    values = {name: known(gains, name) for name in names}
    lines = [
        (
            *(shown(part) for part in one[:2]),
            "yes" if one[2] else "no",
            *(f"{interval(list(values[name][one].values())).mean:.3f}" for name in names),
            str(interval(list(accuracy[one].values()))),
            str(len(accuracy[one])),
        )
        for one in sorted(values["gamma_mean"])
    ]
    head = ("N", "lr", "decay", "gamma", "decay alone", "gamma std", "beta", "beta std", "accuracy", "seeds")
    return [Table(head, lines, "gamma and beta with weight decay on vectors and without")]


def numbers(rows: Sequence[Row]) -> list[Number]:
    """Return the numbers of the longest sequences and the highest rate, where decay is strongest."""
    gains = by_cell(rows, cell, "gains")
    gamma, alone, beta = (known(gains, name) for name in ("gamma_mean", "decay_alone", "beta_std"))
    tokens, rate, _ = max(gamma)
    decayed, free = (tokens, rate, True), (tokens, rate, False)
    return [
        mean("mean gamma of ReBased trained with weight decay on it", gamma[decayed], "about 0.13"),
        mean("what decay alone would leave of a gamma of 1", alone[decayed], "0.15 by its schedule"),
        mean("mean gamma of ReBased trained without that decay", gamma[free]),
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
    question="Is the small scale that trained ReBased models show learned, or left over by weight decay?",
    statement="The paper's figure has the scale gamma go to about 0.13 at every length and beta to 0. Its schedule "
    "would leave 0.15 of a scale that nothing holds.",
    rule=f"confirmed if at every length and rate that learns gamma is within {CLOSE} of what decay alone leaves, with "
    f"decay and without, accuracies differ by noise or by {EQUAL} at most, and beta has a spread of {SPREAD} or more "
    "around a mean less than half of it; refuted if at most of them the interval of gamma is further than "
    f"{CLOSE} or that of accuracy further than {EQUAL}",
    configs=configs,
    verdict=verdict,
    numbers=numbers,
    tables=tables,
    charts=charts,
    meaning={
        CONFIRMED: "Left over. Do not read a meaning into a small gamma, and do not spend time on tuning its decay: "
        "recall is the same with and without.",
        REFUTED: "The scale is not what decay leaves, or decay changes recall: it is worth a setting of its own.",
        UNCLEAR: "Partly left over: at some settings gamma or the recall differs from what decay alone explains.",
    },
)
