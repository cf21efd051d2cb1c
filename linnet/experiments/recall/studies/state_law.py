"""C7: does recall grow with the bytes of a state, whatever the mixer, and does the delta rule make most of them?

    accuracy(mixer, bytes)     rises with bytes;     delta > based, rebased, elu at the same bytes

Figure 2 of Arora et al. 2024 (arXiv:2402.18668), and zoology's later points, read off by eye: Based .67 at 9 k bytes,
.91 at 41 k, .99 at 169 k; DeltaNet .79 at 9 k, .96 at 34 k; GLA .53 at 5 k, .95 at 68 k. An additive state keeps the
sum of everything it read under all keys; the delta rule takes off what a key already has before it adds. Bytes are
those really stored (sizes.py), of one layer with one head. A window that ends before the pairs has nothing to look
up, however well it is trained: its sizes are a quarter, a half and three quarters of the sequence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ...results import Row
from ..config import RecallConfig
from ..sizes import CLOSE, sized
from ..stats import Interval, interval, paired
from ..study import BRIEF, CONFIRMED, REFUTED, UNCLEAR, UNTESTED, Study, Table, Verdict, by_cell, missing, shown
from ..sweep import OPTIONS

ADDITIVE = ("based", "rebased", "elu")
DELTA = "delta"
MIXERS = (*ADDITIVE, DELTA, "gla", "mamba2", "window")
FALL = 0.02  # a larger state may be this much worse
RISE = 0.05  # and from the smallest to the largest there has to be this much to see
SOLVED = 0.95  # two mixers above this are not told apart
OURS = RecallConfig(steps=600)
STATES = (2600, 5460, 11700)  # Based with keys of width 3, 5 and 8 at d_model 64
ZOOLOGY = RecallConfig(
    vocab_size=8192, seq_len=256, pairs=64, dropout=0.1, steps=12_500, batch_size=256, examples=100_000, warmup=0.0,
    beta2=0.999,
)  # fmt: skip
ZOOLOGY_RATES = (1e-3, 3.16e-3, 1e-2, 3.16e-2)


def configs(budget: str) -> list[RecallConfig]:
    if budget == "smoke":
        return made(OURS.but(steps=4, d_model=16, seq_len=32, pairs=8), (680, 1020), (1e-2,), 1)
    if budget == "brief":
        return made(BRIEF.but(d_model=16, steps=200), (680, 1320), (1e-2,), 3)
    if budget == "paper":
        states = tuple((1 + f + f * (f + 1) // 2) * 65 * 4 for f in (4, 6, 8, 12, 16))
        return made(ZOOLOGY, states, ZOOLOGY_RATES, 5)
    if budget == "quick":
        return made(OURS, STATES, (1e-2,), 3)
    return made(OURS.but(steps=800), (2600, 3900, 7280, 11700), (3e-3, 1e-2, 3e-2), 5)


def made(base: RecallConfig, states: Sequence[int], rates: Sequence[float], seeds: int) -> list[RecallConfig]:
    how: dict[str, Any] = {"d_model": base.d_model, "length": base.seq_len}
    found = [base.but(mixer="window", options={"window": base.seq_len * part // 4}) for part in (1, 2, 3)]
    for mixer in MIXERS[:-1]:
        options = OPTIONS.get(mixer, {})
        found += [base.but(mixer=mixer, **sized(mixer, size, options=options, **how)) for size in states]
    return [one.but(lr=rate, seed=seed) for one in found for rate in rates for seed in range(seeds)]


def cell(config: RecallConfig) -> tuple[str, Any]:
    """A mixer and what sets its size: the width of its keys, or its window."""
    return config.mixer, config.options.get("window", config.key_dim)


def curves(rows: Sequence[Row]) -> dict[str, dict[int, dict[int, float]]]:
    """mixer -> bytes of its state, rising -> seed -> accuracy."""
    accuracy, stored = by_cell(rows, cell), by_cell(rows, cell, "mixer_bytes")
    found: dict[str, dict[int, dict[int, float]]] = {}
    for one in sorted(accuracy, key=lambda one: (MIXERS.index(one[0]), max(stored[one].values()))):
        found.setdefault(one[0], {})[max(stored[one].values())] = accuracy[one]
    return found


def verdict(rows: Sequence[Row]) -> Verdict:
    found = curves(rows)
    cells = {(mixer, size): seeds for mixer, by_size in found.items() for size, seeds in by_size.items()}
    absent = missing(cells, [(mixer, size) for mixer in MIXERS for size in found.get(mixer) or ("any size",)])
    if absent:
        return absent
    if any(len(by_size) < 2 for by_size in found.values()):
        return Verdict(UNTESTED, "a mixer has one size of state only, and the rule wants two or more")
    laws = {mixer: law(by_size) for mixer, by_size in found.items()}
    leads = against_additive(found)
    falling = [mixer for mixer, (outcome, _) in laws.items() if outcome == REFUTED]
    said = "; ".join(f"{mixer} {rise} from its smallest to its largest state" for mixer, (_, rise) in laws.items())
    said += "; the delta rule ahead of " + (", ".join(f"{name} by {gap}" for name, gap in leads.items()) or "nobody")
    if falling or any(gap.high < 0 for gap in leads.values()):
        return Verdict(REFUTED, f"{said}; falls with bytes: {', '.join(falling) or 'none'}")
    grows = all(outcome == CONFIRMED for outcome, _ in laws.values())
    ahead = bool(leads) and all(gap.low > 0 for gap in leads.values())
    return Verdict(CONFIRMED if grows and ahead else UNCLEAR, said)


def law(by_size: Mapping[int, Mapping[int, float]]) -> tuple[str, Interval]:
    """Of one mixer: whether accuracy grows with bytes, and by how much from the smallest to the largest state."""
    sizes = sorted(by_size)
    steps = [paired(by_size[large], by_size[small]) for small, large in pairwise(sizes)]
    rise = paired(by_size[sizes[-1]], by_size[sizes[0]])
    if any(step.high < -FALL for step in steps):
        return REFUTED, rise
    solved = interval(list(by_size[sizes[0]].values())).mean >= SOLVED  # nothing left to gain
    rises = rise.low > 0 and rise.mean >= RISE
    return (CONFIRMED if all(s.mean >= -FALL for s in steps) and (rises or solved) else UNCLEAR), rise


def against_additive(found: Mapping[str, Mapping[int, Mapping[int, float]]]) -> dict[str, Interval]:
    """The delta rule less an additive state of the same bytes, where not both are solved."""
    leads = {}
    for size, seeds in found[DELTA].items():
        for mixer in ADDITIVE:
            near = min(found[mixer], key=lambda other: abs(other - size))
            same = found[mixer][near]
            if 1 / CLOSE <= near / size <= CLOSE and not min(_mean(seeds), _mean(same)) >= SOLVED:
                leads[f"{mixer} at {size:,} bytes"] = paired(seeds, same)
    return leads


def _mean(seeds: Mapping[int, float]) -> float:
    return sum(seeds.values()) / len(seeds)


def rank_correlation(by_size: Mapping[int, Mapping[int, float]]) -> float | None:
    """Spearman's, of bytes and mean accuracy; None where every mean is the same."""
    means = np.array([_mean(by_size[size]) for size in sorted(by_size)])
    ranks = np.array([((means < x).sum() + (means <= x).sum() - 1) / 2 for x in means])  # ties share their rank
    if len(ranks) < 2 or ranks.std() == 0:
        return None
    return float(np.corrcoef(np.arange(len(ranks)), ranks)[0, 1])


def tables(rows: Sequence[Row]) -> list[Table]:
    lines, ranks = [], []
    for mixer, by_size in curves(rows).items():
        lines += [(mixer, f"{size:,}", str(interval(list(s.values()))), str(len(s))) for size, s in by_size.items()]
        r = rank_correlation(by_size)
        ranks.append((mixer, str(len(by_size)), "" if r is None else shown(round(r, 3))))
    return [
        Table(("mixer", "bytes of state", "accuracy", "seeds"), lines, "recall by bytes of state"),
        Table(("mixer", "sizes", "rank correlation"), ranks, "bytes and mean accuracy"),
    ]


STUDY = Study(
    name="state_law",
    claim="C7",
    question="Does recall grow with the bytes of the state, whatever the mixer, and is the delta rule above additive "
    "states of the same size?",
    expected="yes to both, in Based's figure 2 and zoology's later points: DeltaNet .79 and Based .67 at 9 k bytes",
    rule=f"confirmed if for every mixer no larger state is worse by {FALL} or more in the mean, the largest is better "
    f"than the smallest by {RISE} with an interval above 0 (or all are above {SOLVED}), and the delta rule is ahead of "
    f"{', '.join(ADDITIVE)} at the same bytes with intervals above 0 wherever not both are above {SOLVED}; refuted if "
    f"a larger state is worse by more than {FALL}, or the delta rule behind, with the whole interval",
    configs=configs,
    verdict=verdict,
    tables=tables,
    cost={"smoke": "seconds", "quick": "7 minutes"},
)
