"""C10: can a state unlearn: what is answered when a key was written twice, and the last value counts?

    additive   S = sum_j phi(k_j) v_j^T                       old and new value of a key stand there alike
    delta      S = (I - beta k k^T) S + beta k v^T            what the key had is taken off first

An additive normalised kernel answers a rewritten key with the mean of its two values and has nothing to choose by: it
is right about half of the time. Softmax without positions is in the same place, however much it keeps. The keys written
once (kept) show what a mixer can hold, the keys written twice (updated) what it can replace.
Delta rule: Schlag et al. 2021, arXiv:2102.11174; Yang et al. 2024, arXiv:2406.06484.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...results import Row
from ..config import RecallConfig
from ..score import ratio
from ..sizes import FIXED, sized
from ..stats import interval, paired
from ..study import BRIEF, CONFIRMED, REFUTED, UNCLEAR, UNTESTED, Cell, Study, Table, Verdict, by_cell, missing
from ..sweep import OPTIONS
from .length import LEARNED
from .state_law import ADDITIVE, ZOOLOGY, ZOOLOGY_RATES

OVERWRITING = ("delta", "gated_delta")
MIXERS = ("softmax", *ADDITIVE, *OVERWRITING)
AHEAD = 0.2  # on updated keys, for a split that is clear
LITTLE = 0.05  # a lead below this is none
OURS = RecallConfig(task="forgetting", pairs=12, updates=8)
STATE = 11700  # bytes: Based with keys of width 8 at d_model 64
Slices = dict[Cell, dict[int, float]]


def configs(budget: str) -> list[RecallConfig]:
    if budget == "smoke":
        return made(OURS.but(steps=4, d_model=16, seq_len=32, pairs=4, updates=4), 1020, (1e-2,), 1)
    if budget == "brief":
        # half of the quick sizes; with 4 pairs a convolution tells most old values, being first or rewritten at once
        brief = BRIEF.but(task="forgetting", seq_len=32, pairs=6, updates=4, vocab_size=48, steps=500)
        return made(brief, 2772, (1e-2,), 3)
    if budget == "paper":  # nobody published this task: zoology's sizes, half of the keys rewritten
        return made(ZOOLOGY.but(task="forgetting", pairs=48, updates=24), 39780, ZOOLOGY_RATES, 5)
    if budget == "quick":
        return made(OURS, STATE, (1e-2, 3e-2), 3)
    return made(OURS.but(steps=1600), STATE, (3e-3, 1e-2, 3e-2), 5)


def made(base: RecallConfig, size: int, rates: Sequence[float], seeds: int) -> list[RecallConfig]:
    found = []
    for mixer in MIXERS:
        change: dict[str, Any] = {}
        if mixer not in FIXED:
            options = OPTIONS.get(mixer, {})
            change = sized(mixer, size, d_model=base.d_model, length=base.seq_len, options=options)
        found += [base.but(mixer=mixer, lr=lr, seed=seed, **change) for lr in rates for seed in range(seeds)]
    return found


def cell(config: RecallConfig) -> tuple[str]:
    return (config.mixer,)


def part(rows: Sequence[Row], name: str) -> Slices:
    """Accuracy on the keys of one slice, by mixer and seed."""
    slices = by_cell(rows, cell, "slices")
    return {
        one: {s: ratio(found[name]) for s, found in seeds.items() if name in found} for one, seeds in slices.items()
    }


def verdict(rows: Sequence[Row]) -> Verdict:
    updated, kept = part(rows, "updated"), part(rows, "kept")
    absent = missing(updated, [(mixer,) for mixer in (*ADDITIVE, *OVERWRITING)])
    if absent:
        return absent
    able = {mixer: interval(list(kept[mixer,].values())).mean >= LEARNED for mixer in (*ADDITIVE, *OVERWRITING)}
    if not (any(able[m] for m in ADDITIVE) and any(able[m] for m in OVERWRITING)):
        return Verdict(UNTESTED, f"no additive state, or no delta rule, has {LEARNED} or more on keys written once")
    said, met, against = [], [], []
    for rule in OVERWRITING:
        for mixer in ADDITIVE:
            if able[rule] and able[mixer]:
                lead, before = (paired(of[rule,], of[mixer,]) for of in (updated, kept))
                more = paired(
                    *({s: u[s] - k[s] for s in u} for u, k in ((updated[m,], kept[m,]) for m in (rule, mixer)))
                )
                met.append(lead.mean >= AHEAD and lead.low > 0 and more.low > 0)
                against.append(lead.high < LITTLE)
                said.append(f"{rule} - {mixer}: {lead} on updated keys, {before} on kept ones")
    outcome = CONFIRMED if all(met) else REFUTED if any(against) else UNCLEAR
    return Verdict(outcome, "; ".join(said))


def tables(rows: Sequence[Row]) -> list[Table]:
    everything, updated, kept = by_cell(rows, cell), part(rows, "updated"), part(rows, "kept")
    lines = []
    for one in sorted(everything, key=lambda one: MIXERS.index(one[0])):
        lost = paired(kept[one], updated[one]) if updated[one] else None
        shares = [str(interval(list(of[one].values()))) if of[one] else "" for of in (kept, updated)]
        seeds = everything[one]
        lines.append(
            (*one, *shares, "" if lost is None else str(lost), str(interval(list(seeds.values()))), str(len(seeds)))
        )
    head = ("mixer", "kept keys", "updated keys", "kept - updated", "all keys", "seeds")
    return [Table(head, lines, "recall of keys written once and keys written twice")]


STUDY = Study(
    name="forgetting",
    claim="C10",
    question="When a key was written twice, which mixers answer with its last value?",
    expected="the delta rules do; additive normalised states, which hold both values alike, are right about half of "
    "the time, and so is softmax without positions",
    rule=f"among mixers with {LEARNED} or more on keys written once: confirmed if every delta rule is ahead of every "
    f"additive state on updated keys by {AHEAD} or more, with an interval above 0, and by more than on kept keys; "
    f"refuted if one of these leads is below {LITTLE} with its whole interval",
    configs=configs,
    verdict=verdict,
    tables=tables,
    cost={"smoke": "seconds", "quick": "5 minutes"},
)
