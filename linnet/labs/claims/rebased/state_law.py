"""C7: does recall grow with the bytes of a state, whatever the mixer?

    rise(mixer) = accuracy(largest state) - accuracy(smallest state), seed by seed

Figure 2 of Arora et al. 2024 (arXiv:2402.18668), and zoology's later points, read off by eye: Based .67 at 9 k bytes,
.91 at 41 k, .99 at 169 k; DeltaNet .79 at 9 k, .96 at 34 k; GLA .53 at 5 k, .95 at 68 k. An additive state keeps the
sum of everything written under all keys; the delta rule removes the old value of a key before it adds: its leads at the
same bytes are shown, and not judged. Bytes are those actually stored (sizes.py), for one layer with one head. A window
that ends before the pairs has nothing to look up: its sizes are a quarter, a half and three quarters of the sequence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ...core.claim import Number, spread
from ...core.intervals import Interval, paired, share_interval
from ...core.licence import learned, room, settled
from ...core.results import Row
from ...core.verdicts import NO, OPEN, UNTESTED, YES, Table, Verdict, missing, shown
from ...recall import bench
from ...recall.cells import NAMES, Charts, by_cell, curves_of, line_chart, point
from ...recall.config import RecallConfig
from ...recall.sizes import CLOSE
from ...recall.study import SMALL, deciding, enlarged, judged, recall_claim
from ...recall.sweep import sized_grid

ADDITIVE = ("based", "rebased", "elu")
DELTA = "delta"
MIXERS = (*ADDITIVE, DELTA, "gla", "mamba2", "window")
FALL = 0.02  # a larger state may be this much worse
RISE = 0.05  # required gain from the smallest to the largest state
LEARNED = 0.3  # floor of the largest state of every mixer
SOLVED = 1 - RISE  # a smallest state that reaches it cannot gain as much; two mixers above it are not compared
OURS = RecallConfig(steps=600)
STATES = (2600, 5460, 11700)  # Based with keys of width 3, 5 and 8 at d_model 64
ZOOLOGY = RecallConfig(
    vocab_size=8192, seq_len=256, pairs=64, dropout=0.1, steps=12_500, batch_size=256, examples=100_000, warmup=0.0,
    beta2=0.999,
)  # fmt: skip
ZOOLOGY_RATES = (1e-3, 3.16e-3, 1e-2, 3.16e-2)


def configs(budget: str) -> list[RecallConfig]:
    if budget == "smoke":
        return grid(OURS.replace(steps=4, d_model=16, seq_len=32, pairs=8), (680, 1020), (1e-2,), 1)
    if budget == "quick":  # leaves most mixers undertrained, and decides nothing
        return []
    if budget == "hour":
        return enlarged(small())
    if budget == "paper":
        states = tuple((1 + f + f * (f + 1) // 2) * 65 * 4 for f in (4, 6, 8, 12, 16))
        return grid(ZOOLOGY, states, ZOOLOGY_RATES, 5)
    return grid(OURS, STATES, (1e-2,), 3)


def small() -> list[RecallConfig]:
    """Return the smallest runs in which states of two sizes can differ."""
    return grid(SMALL.replace(d_model=16, steps=200), (680, 1320), (1e-2,), 3)


def grid(base: RecallConfig, states: Sequence[int], rates: Sequence[float], seeds: int) -> list[RecallConfig]:
    """Return windows of a quarter, a half and three quarters of the sequence, and the other mixers at every state."""
    windows = [base.replace(mixer="window", options={"window": base.seq_len * part // 4}) for part in (1, 2, 3)]
    runs = [one.replace(lr=rate, seed=seed) for one in windows for rate in rates for seed in range(seeds)]
    return runs + sized_grid(base, MIXERS[:-1], states, rates, seeds)


def cell(config: RecallConfig) -> tuple[str, Any]:
    """Return a mixer and what sets its size: the width of its keys, or its window."""
    return config.mixer, config.options.get("window", config.key_dim)


def curves(rows: Sequence[Row]) -> dict[str, dict[int, dict[int, float]]]:
    """Return mixer -> bytes of its state, increasing -> seed -> accuracy."""
    accuracy, stored = by_cell(rows, cell), by_cell(rows, cell, "mixer_bytes")
    by_mixer: dict[str, dict[int, dict[int, float]]] = {}
    for one in sorted(accuracy, key=lambda one: (MIXERS.index(one[0]), max(stored[one].values()))):
        by_mixer.setdefault(one[0], {})[max(stored[one].values())] = accuracy[one]
    return by_mixer


def verdict(rows: Sequence[Row]) -> Verdict:
    by_mixer = curves(rows)
    cells = {(mixer, size): seeds for mixer, by_size in by_mixer.items() for size, seeds in by_size.items()}
    absent = missing(cells, [(mixer, size) for mixer in MIXERS for size in by_mixer.get(mixer) or ("any size",)])
    if absent:
        return absent
    if any(len(by_size) < 2 for by_size in by_mixer.values()):
        return Verdict(UNTESTED, "a mixer has one size of state only, and the rule needs two or more")
    laws = {mixer: law(by_size) for mixer, by_size in by_mixer.items()}
    states = [one.state for one in laws.values()]
    state = NO if NO in states else YES if all(one == YES for one in states) else OPEN
    gains = [f"{NAMES[m]} {one.gain}" + f" {one.where}" * (one.where != WHOLE) for m, one in laws.items()]
    sentence = f"gain of recall {WHOLE}: {', '.join(gains)}"
    ends = {mixer: (_mean(by_size[min(by_size)]), _mean(by_size[max(by_size)])) for mixer, by_size in by_mixer.items()}
    weakest = min(ends, key=lambda mixer: ends[mixer][1])
    controls = [
        learned("the weakest mixer", ends[weakest][1], LEARNED, f"recall at its largest state ({NAMES[weakest]})"),
        room({f"the smallest state of {NAMES[mixer]}": small for mixer, (small, _) in ends.items()}, SOLVED),
        settled("a mixer", curves_of(rows, cell, by_cell(rows, cell))),
    ]
    return judged(state, sentence, rows, bench.ZOOLOGY, min(one.gain.seeds for one in laws.values()), controls)


WHOLE = "from the smallest to the largest state"


class Law(NamedTuple):
    """Whether accuracy of a mixer grows with bytes, and the gain that decides, with where it lies in words."""

    state: str
    gain: Interval
    where: str = WHOLE


def law(by_size: Mapping[int, Mapping[int, float]]) -> Law:
    """Return what the sizes of one mixer say; a step to a larger state that falls decides, else the whole gain."""
    sizes = sorted(by_size)
    steps = {(small, large): paired(by_size[large], by_size[small]) for small, large in pairwise(sizes)}
    small, large = deciding(NO, steps, one_refutes=True)
    if steps[small, large].high < -FALL:
        return Law(NO, steps[small, large], f"from {small:,} to {large:,} bytes")
    gain = paired(by_size[sizes[-1]], by_size[sizes[0]])
    if gain.high < RISE:
        return Law(NO, gain)
    rises = gain.low > 0 and gain.mean >= RISE
    return Law(YES if rises and all(step.mean >= -FALL for step in steps.values()) else OPEN, gain)


def against_additive(by_mixer: Mapping[str, Mapping[int, Mapping[int, float]]]) -> dict[str, Interval]:
    """Return the delta rule minus an additive state of the same bytes, where not both are solved."""
    leads = {}
    for size, seeds in by_mixer[DELTA].items():
        for mixer in ADDITIVE:
            near = min(by_mixer[mixer], key=lambda other: abs(other - size))
            same = by_mixer[mixer][near]
            if 1 / CLOSE <= near / size <= CLOSE and not min(_mean(seeds), _mean(same)) >= SOLVED:
                leads[f"{NAMES[mixer]} at {size:,} bytes"] = paired(seeds, same)
    return leads


def _mean(seeds: Mapping[int, float]) -> float:
    return sum(seeds.values()) / len(seeds)


def rank_correlation(by_size: Mapping[int, Mapping[int, float]]) -> float | None:
    """Return Spearman's correlation of bytes and mean accuracy; None if every mean is the same."""
    means = np.array([_mean(by_size[size]) for size in sorted(by_size)])
    ranks = np.array([((means < x).sum() + (means <= x).sum() - 1) / 2 for x in means])  # ties share their rank
    if len(ranks) < 2 or ranks.std() == 0:
        return None
    return float(np.corrcoef(np.arange(len(ranks)), ranks)[0, 1])


def tables(rows: Sequence[Row]) -> list[Table]:
    lines, ranks = [], []
    for mixer, by_size in curves(rows).items():
        recall = {size: share_interval(list(seeds.values())) for size, seeds in by_size.items()}
        lines += [(mixer, f"{size:,}", str(one), str(one.seeds)) for size, one in recall.items()]
        r = rank_correlation(by_size)
        ranks.append((mixer, str(len(by_size)), "" if r is None else shown(round(r, 3))))
    return [
        Table(("mixer", "bytes of state", "accuracy", "seeds"), lines, "recall by bytes of state"),
        Table(("mixer", "sizes", "rank correlation"), ranks, "bytes and mean accuracy"),
    ]


def numbers(rows: Sequence[Row]) -> list[Number]:
    """Return the gain that decides, those of other mixers, and a lead of the delta rule."""
    by_mixer = curves(rows)
    laws = {mixer: law(by_size) for mixer, by_size in by_mixer.items()}
    ordered = sorted(laws, key=lambda mixer: (laws[mixer].state != NO, laws[mixer].gain.low))
    rises = [spread(f"gain of recall {laws[m].where}, {NAMES[m]}", None, laws[m].gain) for m in ordered]
    paper = ".79 - .67 = .12 at 9 k bytes, off a figure"
    leads = [
        spread(f"recall of the delta rule less that of {name}", paper, gap)
        for name, gap in against_additive(by_mixer).items()
        if name.startswith("Based")
    ]
    return [*rises[:4], *leads[:2]]


def charts(rows: Sequence[Row]) -> Charts:
    series = {mixer: [point(size, seeds) for size, seeds in by_size.items()] for mixer, by_size in curves(rows).items()}
    return line_chart("what a byte of state buys", "bytes of state", series)


CLAIM = recall_claim(
    name="state-law",
    number="C7",
    statement="In every mixer a larger memory looks up clearly more pairs.",
    source="Based's figure and later points of its bench, read off by eye, have Based at .67 and DeltaNet at .79 with "
    "9 k bytes, Based at .91 with 41 k and DeltaNet at .96 with 34 k.",
    rule=f"clearly is {RISE}: yes if in every mixer the largest state recalls {RISE} more than the smallest with an "
    f"interval above 0, and no larger state is worse by {FALL} or more in the mean; no if in one of them that gain is "
    f"below {RISE}, or a larger state worse by more than {FALL}, with the whole interval. Controls: every mixer has "
    f"{LEARNED} or more at its largest state, and less than {SOLVED:g} at its smallest; inside the regime no recall "
    f"still rises. Regime: {bench.ZOOLOGY.words}",
    answers={YES: "Yes, in all seven mixers", NO: "No, one gains nothing or falls"},
    change="Five seeds at the papers' sizes in which one mixer does not gain from more bytes.",
    configs=configs,
    verdict=verdict,
    numbers=numbers,
    tables=tables,
    charts=charts,
    meaning={
        YES: "Count bytes of state first: more of them recall more in every model here.",
        NO: "Bytes alone do not say how much a model recalls here: a larger state did no better. At a short training, "
        "a state that is harder to train can lose.",
        OPEN: "Recall grows with bytes for some models and not clearly for others at this length of training.",
    },
)
