"""C5: is the small gamma of trained ReBased learned, or what weight decay leaves of a scale that nothing holds?

    beta = 0:  (gamma q . k)^2 / sum_j (gamma q . k_j)^2 is the same for every gamma: no gradient on its size
    then AdamW takes gamma from 1 to decay_alone = prod_t (1 - lr_t weight_decay) = exp(-weight_decay sum_t lr_t)

Figure 10 of Aksenov et al. 2024 (arXiv:2402.10644): mean gamma goes to about 0.13 at every length, beta to 0; their
schedule gives decay_alone = exp(-0.1 3e-3 0.5 12544) = 0.15. The same runs with weight decay on vectors and without
tell: `decay_all` is about gamma and beta, and also about every other vector, the gains of norms and the biases.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...results import Row
from ..config import RecallConfig
from ..stats import Interval, interval, paired
from ..study import BRIEF, CONFIRMED, REFUTED, UNCLEAR, UNTESTED, Study, Table, Verdict, by_cell, grid, missing, shown
from .floor import known
from .length import LEARNED, PAPER

CLOSE = 0.1  # of gamma to what is predicted
EQUAL = 0.02  # of two accuracies
SPREAD = 0.1  # of beta over its coordinates, that is not small
OURS = RecallConfig(mixer="rebased", key_dim=8, d_model=32, probes=("gains",))


def configs(budget: str) -> list[RecallConfig]:
    both = (True, False)
    if budget == "smoke":
        return grid(OURS.but(steps=4), decay_all=both)
    if budget == "brief":  # the rate and the steps leave gamma less than half by decay alone
        return grid(
            BRIEF.but(mixer="rebased", key_dim=8, lr=3e-2, steps=500, probes=("gains",)), decay_all=both, seed=range(3)
        )
    if budget == "paper":
        base = PAPER.but(mixer="rebased", d_model=48, head_dim=4, lr=3e-3, probes=("gains",))
        return grid(base, decay_all=both, seq_len=(256, 2048), seed=range(5))
    if budget == "quick":
        return grid(OURS, decay_all=both, seq_len=(64, 128), lr=(1e-2, 3e-2), seed=range(3))
    return grid(
        OURS.but(key_dim=16, steps=1600, vocab_size=512),
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
    said, met, against = [], 0, 0
    for length, rate in sorted({(length, rate) for length, rate, _ in accuracy}):
        decayed, free = (length, rate, True), (length, rate, False)
        absent = missing(gamma, [decayed, free])
        if absent:
            return absent
        if max(interval(list(accuracy[one].values())).mean for one in (decayed, free)) < LEARNED:
            continue  # a gamma of a model that has learned nothing
        off, still = paired(gamma[decayed], alone[decayed]), paired(gamma[free], alone[free])
        gap, wide = paired(accuracy[decayed], accuracy[free]), interval(list(spread[decayed].values()))
        centred = abs(interval(list(beta[decayed].values())).mean) < wide.mean / 2 and wide.mean >= SPREAD
        met += within(off, CLOSE) and within(still, CLOSE) and alike(gap) and centred
        against += beyond(off, CLOSE) or beyond(still, CLOSE) or beyond(gap, EQUAL)
        said.append(
            f"N={length}, lr={rate:g}: gamma off by {off} and {still}, accuracy by {gap}, beta std {wide.mean:.2f}"
        )
    if not said:
        return Verdict(UNTESTED, f"no length and rate has an accuracy of {LEARNED} or more")
    sentence = "with decay and without, against decay alone and 1: " + "; ".join(said)
    return Verdict(CONFIRMED if met == len(said) else REFUTED if 2 * against > len(said) else UNCLEAR, sentence)


def within(gap: Interval, most: float) -> bool:
    return abs(gap.mean) <= most


def beyond(gap: Interval, most: float) -> bool:
    """The whole interval is further from 0."""
    return gap.low > most or gap.high < -most


def alike(gap: Interval) -> bool:
    """Accuracies that noise can explain: 0 is in the interval, or the difference is small."""
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


STUDY = Study(
    name="drift",
    claim="C5",
    question="Is the small gamma of trained ReBased learned, or left over by weight decay?",
    expected="left over: gamma ends at exp(-wd sum lr) with decay and near 1 without, at the same accuracy; beta near "
    "0 in the mean, not in its coordinates; the paper prints gamma of about 0.13, decay alone is 0.15 there",
    rule=f"confirmed if at every length and rate that learns gamma is within {CLOSE} of what decay alone leaves, with "
    f"decay and without, accuracies differ by noise or by {EQUAL} at most, and beta has a spread of {SPREAD} or more "
    "around a mean less than half of it; refuted if at most of them the interval of gamma is further than "
    f"{CLOSE} or that of accuracy further than {EQUAL}",
    configs=configs,
    verdict=verdict,
    tables=tables,
    cost={"smoke": "seconds", "quick": "2 minutes"},
)
