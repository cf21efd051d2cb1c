"""C11: does what was learned at 64 tokens hold at 512: without positions yes, with learned positions no?

    share kept = accuracy(8 N tokens, the same pairs) / accuracy(N tokens)        trained at N = 64 with 8 pairs

Without positions nothing in the model knows how long a sequence is; only the filler grows, and more pairs ask for more
state. A table of learned positions has rows for the longer sequences too, but training never reached them: they are as
they began. Rotary positions go on beyond training and are run beside, but not in a quick study. The probe "longer" asks
at 1, 2, 4 and 8 times the length, with as many times the pairs or the same number.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...results import Row
from ..config import RecallConfig
from ..stats import Interval, interval, paired
from ..study import (
    BRIEF,
    CONFIRMED,
    REFUTED,
    UNCLEAR,
    UNTESTED,
    Cell,
    Study,
    Table,
    Verdict,
    by_cell,
    grid,
    missing,
    shown,
)
from .state_law import ZOOLOGY, ZOOLOGY_RATES

MIXERS = ("softmax", "based", "rebased")
FREE, BOUND = "none", "learned"
POSITIONS = (FREE, BOUND, "rotary")
LEARNED = 0.8  # at the length of training, for a mixer to count
KEEPS = 0.9  # share of that accuracy
OURS = RecallConfig(vocab_size=1024, pairs=8, key_dim=8, probes=("longer",))
Asked = tuple[int, int]  # tokens, pairs


def configs(budget: str) -> list[RecallConfig]:
    if budget == "smoke":
        base = OURS.but(steps=4, d_model=16, seq_len=16, pairs=2, vocab_size=256)
        return [fitting(config) for config in grid(base, mixer=MIXERS, positions=POSITIONS)]
    if budget == "brief":
        # pairs asked in any order: in the usual one a position alone is a guess that is right 2 times of 3
        base = BRIEF.but(seq_len=8, pairs=2, vocab_size=72, power=1.0, key_dim=5, steps=400, batch_size=64)
        base = base.but(probes=("longer",))
        return [fitting(config) for config in grid(base, mixer=MIXERS, positions=(FREE, BOUND), seed=range(3))]
    if budget == "paper":
        base = ZOOLOGY.but(seq_len=64, pairs=8, key_dim=16, probes=("longer",))
        found = grid(base, mixer=MIXERS, positions=POSITIONS, lr=ZOOLOGY_RATES, seed=range(5))
    elif budget == "quick":
        found = grid(OURS.but(steps=1200), mixer=MIXERS, positions=(FREE, BOUND), lr=(1e-2, 3e-2), seed=range(3))
    else:
        found = grid(OURS.but(steps=1600), mixer=MIXERS, positions=POSITIONS, lr=(3e-3, 1e-2, 3e-2), seed=range(5))
    return [fitting(config) for config in found]


def fitting(config: RecallConfig) -> RecallConfig:
    """Softmax with keys as wide as the model, its state is what it is; learned positions as far as the probe asks."""
    config = config.but(max_length=8 * config.seq_len) if config.positions == BOUND else config
    return config.but(key_dim=None) if config.mixer == "softmax" else config


def cell(config: RecallConfig) -> tuple[str, str]:
    return config.mixer, config.positions


def asked(rows: Sequence[Row]) -> dict[Cell, dict[Asked, dict[int, float | None]]]:
    """(mixer, positions) -> (tokens, pairs) -> seed -> accuracy, None where the model cannot read so many tokens."""
    found: dict[Cell, dict[Asked, dict[int, float | None]]] = {}
    for one, seeds in by_cell(rows, cell, "longer").items():
        for seed, answers in seeds.items():
            for answer in answers:
                at = found.setdefault(one, {}).setdefault((answer["seq_len"], answer["pairs"]), {})
                at[seed] = answer["accuracy"]
    return found


def kept(found: dict[Asked, dict[int, float | None]]) -> tuple[Interval, dict[int, float]]:
    """Accuracy at the length of training, and for each seed the share of it kept at the longest with as many pairs."""
    length, pairs = min(found)
    longest = max(tokens for tokens, p in found if p == pairs)
    short, long = found[length, pairs], found[longest, pairs]
    trained = {seed: accuracy for seed, accuracy in short.items() if accuracy}
    shares = {seed: (long.get(seed) or 0.0) / accuracy for seed, accuracy in trained.items()}
    return interval([accuracy or 0.0 for accuracy in short.values()]), shares


def verdict(rows: Sequence[Row]) -> Verdict:
    found = {one: kept(answers) for one, answers in asked(rows).items()}
    shares = {one: of for one, (_, of) in found.items()}
    absent = missing(shares, [(mixer, positions) for mixer in MIXERS for positions in (FREE, BOUND)])
    if absent:
        return absent
    said, met, against = [], 0, 0
    for mixer in MIXERS:
        if min(found[mixer, positions][0].mean for positions in (FREE, BOUND)) < LEARNED:
            continue  # nothing to keep
        free, bound = (interval(list(shares[mixer, positions].values())) for positions in (FREE, BOUND))
        gap = paired(shares[mixer, FREE], shares[mixer, BOUND])
        met += free.mean >= KEEPS > bound.mean and gap.low > 0
        against += free.high < KEEPS or bound.low >= KEEPS
        said.append(f"{mixer}: {free} without positions, {bound} with learned ones")
    if not said:
        return Verdict(
            UNTESTED, f"no mixer has {LEARNED} or more at the length of training, with positions and without"
        )
    outcome = CONFIRMED if met == len(said) else REFUTED if 2 * against > len(said) else UNCLEAR
    return Verdict(outcome, "share of accuracy kept at 8 times the length, the same pairs: " + "; ".join(said))


def tables(rows: Sequence[Row]) -> list[Table]:
    found = asked(rows)
    columns = sorted({at for answers in found.values() for at in answers})
    order = [(mixer, positions) for mixer in MIXERS for positions in POSITIONS if (mixer, positions) in found]
    lines = [(*one, *(mean(found[one].get(at, {})) for at in columns), seeds(found[one])) for one in order]
    head = ("mixer", "positions", *(f"N={shown(n)}, K={shown(k)}" for n, k in columns), "seeds")
    return [Table(head, lines, "recall on longer sequences than those of training, the first column")]


def mean(answers: dict[int, float | None]) -> str:
    known = [accuracy for accuracy in answers.values() if accuracy is not None]
    return f"{sum(known) / len(known):.3f}" if known else "-"


def seeds(answers: dict[Asked, dict[int, float | None]]) -> str:
    return str(max(len(by_seed) for by_seed in answers.values()))


STUDY = Study(
    name="extrapolation",
    claim="C11",
    question="Does a model trained on 64 tokens and 8 pairs recall in sequences of 512?",
    expected="yes without positions, which leave nothing that knows a length; no with learned positions, which end",
    rule=f"of mixers with {LEARNED} or more at the length of training: confirmed if at 8 times the length and as many "
    f"pairs all keep {KEEPS} of their accuracy without positions and less with learned ones, the difference with an "
    f"interval above 0; refuted if for most of them no positions keep less, or learned ones keep it, with the whole "
    "interval",
    configs=configs,
    verdict=verdict,
    tables=tables,
    cost={"smoke": "seconds"},
)
