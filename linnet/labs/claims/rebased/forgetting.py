"""C10: can a state forget: what is recalled when a key was written twice, and the last value counts?

    additive   S = sum_j phi(k_j) v_j^T                       old and new value of a key count equally
    delta      S = (I - beta k k^T) S + beta k v^T            the old value of the key is removed first

An additive normalised kernel returns the mean of the two values of a rewritten key and cannot tell them apart: it is
right about half of the time. The same holds for softmax without positions, however much it keeps. The keys written once
(kept) show what a mixer can hold, the keys written twice (updated) what it can replace.
Delta rule: Schlag et al. 2021, arXiv:2102.11174; Yang et al. 2024, arXiv:2406.06484.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core.claim import Number, spread
from ...core.intervals import interval, paired
from ...core.results import Row
from ...core.verdicts import CONFIRMED, REFUTED, UNCLEAR, UNTESTED, Cell, Table, Verdict, missing
from ...recall.cells import NAMES, RECALL, Charts, Point, bar_chart, by_cell, mean, point
from ...recall.config import RecallConfig
from ...recall.score import ratio
from ...recall.study import SMALL, recall_claim
from ...recall.sweep import sized_grid
from .length import LEARNED
from .state_law import ADDITIVE, ZOOLOGY, ZOOLOGY_RATES

OVERWRITING = ("delta", "gated_delta")
MIXERS = ("softmax", *ADDITIVE, *OVERWRITING)
AHEAD = 0.2  # on updated keys, for a clear separation
LITTLE = 0.05  # a smaller lead does not count
OURS = RecallConfig(task="forgetting", pairs=12, updates=8)
STATE = 11700  # bytes: Based with keys of width 8 at d_model 64
Slices = dict[Cell, dict[int, float]]


def configs(budget: str) -> list[RecallConfig]:
    if budget == "smoke":
        return sized_grid(
            OURS.replace(steps=4, d_model=16, seq_len=32, pairs=4, updates=4), MIXERS, (1020,), (1e-2,), 1
        )
    if budget == "quick":
        # half of the long sizes; with 4 pairs a convolution detects most old values, first or soon rewritten
        base = SMALL.replace(task="forgetting", seq_len=32, pairs=6, updates=4, vocab_size=48, steps=500)
        return sized_grid(base, MIXERS, (2772,), (1e-2,), 3)
    if budget == "paper":  # an unpublished task: zoology's sizes, half of the keys rewritten
        return sized_grid(ZOOLOGY.replace(task="forgetting", pairs=48, updates=24), MIXERS, (39780,), ZOOLOGY_RATES, 5)
    if budget in ("hour", "long"):
        return sized_grid(OURS, MIXERS, (STATE,), (1e-2, 3e-2), 3)
    return sized_grid(OURS.replace(steps=1600), MIXERS, (STATE,), (3e-3, 1e-2, 3e-2), 5)


def cell(config: RecallConfig) -> tuple[str]:
    return (config.mixer,)


def part(rows: Sequence[Row], name: str) -> Slices:
    """Return the accuracy on the keys of one slice, by mixer and seed."""
    slices = by_cell(rows, cell, "slices")
    return {
        one: {s: ratio(scores[name]) for s, scores in seeds.items() if name in scores} for one, seeds in slices.items()
    }


def verdict(rows: Sequence[Row]) -> Verdict:
    updated, kept = part(rows, "updated"), part(rows, "kept")
    absent = missing(updated, [(mixer,) for mixer in (*ADDITIVE, *OVERWRITING)])
    if absent:
        return absent
    able = {mixer: interval(list(kept[mixer,].values())).mean >= LEARNED for mixer in (*ADDITIVE, *OVERWRITING)}
    if not (any(able[m] for m in ADDITIVE) and any(able[m] for m in OVERWRITING)):
        return Verdict(UNTESTED, f"no additive state, or no delta rule, has {LEARNED} or more on keys written once")
    clauses, met, against = [], [], []
    for rule in OVERWRITING:
        for mixer in ADDITIVE:
            if able[rule] and able[mixer]:
                lead, before = (paired(of[rule,], of[mixer,]) for of in (updated, kept))
                more = paired(
                    *({s: u[s] - k[s] for s in u} for u, k in ((updated[m,], kept[m,]) for m in (rule, mixer)))
                )
                met.append(lead.mean >= AHEAD and lead.low > 0 and more.low > 0)
                against.append(lead.high < LITTLE)
                clauses.append(f"{rule} - {mixer}: {lead} on updated keys, {before} on kept ones")
    outcome = CONFIRMED if all(met) else REFUTED if any(against) else UNCLEAR
    return Verdict(outcome, "; ".join(clauses))


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


def numbers(rows: Sequence[Row]) -> list[Number]:
    updated = part(rows, "updated")
    lead = paired(updated["delta",], updated["based",])
    shown = [one for one in ("delta", "based", "rebased", "elu", "softmax") if updated.get((one,))]
    return [
        spread("recall of rewritten keys, the delta rule less Based", None, lead),
        *(mean(f"recall of rewritten keys, {NAMES[one]}", updated[one,]) for one in shown),
    ]


def charts(rows: Sequence[Row]) -> Charts:
    series: dict[str, list[Point]] = {}
    for name, label in (("kept", "written once"), ("updated", "written twice")):
        cells = part(rows, name)
        series[label] = [point(NAMES[m], cells[m,]) for m in MIXERS if cells.get((m,))]
    return bar_chart("keys written once and keys written twice", "mixer", RECALL, series)


CLAIM = recall_claim(
    name="forgetting",
    number="C10",
    question="When a key is given a new value, which models answer with the new one?",
    statement="Nobody published this at these sizes. A sum keeps old and new value alike and is right half of the "
    "time; the delta rule takes the old one off first.",
    rule=f"among mixers with {LEARNED} or more on keys written once: confirmed if every delta rule is ahead of every "
    f"additive state on updated keys by {AHEAD} or more, with an interval above 0, and by more than on kept keys; "
    f"refuted if one of these leads is below {LITTLE} with its whole interval"
    ". Sizes of the quick budget: the size is the third that was tried: with 4 pairs, 2 of them rewritten, the rule "
    "was undecided after 300 steps and after 600, where additive states had learned to tell many old values",
    configs=configs,
    verdict=verdict,
    numbers=numbers,
    tables=tables,
    charts=charts,
    meaning={
        CONFIRMED: "If what is remembered changes, as in dialogue or with sensors, take a delta rule: additive "
        "states, and softmax without positions, cannot tell old from new.",
        REFUTED: "A delta rule is no better at replacing a value here than an additive state: look at how well it "
        "trained.",
        UNCLEAR: "The delta rules are ahead on rewritten keys, but not everywhere by as much as the argument says.",
    },
)
