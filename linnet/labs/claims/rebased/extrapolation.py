"""C11: does what was learned at 64 tokens hold at 512: without positions yes, with learned positions no?

    share kept = accuracy(8 N tokens, the same pairs) / accuracy(N tokens)        trained at N = 64 with 8 pairs

Without positions nothing in the model depends on the length; only the filler grows, and more pairs need more state. A
table of learned positions has rows for the longer sequences too, but training never reached them: they keep their
initial values. Rotary positions continue beyond training and run in the larger budgets. The probe "longer" tests 1, 2,
4 and 8 times the length, with proportionally more pairs or the same number.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core.claim import Number
from ...core.intervals import Interval, interval, paired
from ...core.results import Row
from ...core.verdicts import CONFIRMED, REFUTED, UNCLEAR, UNTESTED, Cell, Table, Verdict, missing, shown
from ...recall.cells import NAMES, Charts, Point, by_cell, grid, line_chart, mean, point
from ...recall.config import RecallConfig
from ...recall.study import SMALL, enlarged, recall_claim
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
        base = OURS.replace(steps=4, d_model=16, seq_len=16, pairs=2, vocab_size=256)
        return [fitting(config) for config in grid(base, mixer=MIXERS, positions=POSITIONS)]
    if budget == "hour":
        return enlarged(configs("quick"))
    if budget == "quick":
        # queries in any order: in the usual one, guessing by position alone is right 2 times of 3
        base = SMALL.replace(seq_len=8, pairs=2, vocab_size=72, power=1.0, key_dim=5, steps=400, batch_size=64)
        base = base.replace(probes=("longer",))
        return [fitting(config) for config in grid(base, mixer=MIXERS, positions=(FREE, BOUND), seed=range(3))]
    if budget == "paper":
        base = ZOOLOGY.replace(seq_len=64, pairs=8, key_dim=16, probes=("longer",))
        chosen = grid(base, mixer=MIXERS, positions=POSITIONS, lr=ZOOLOGY_RATES, seed=range(5))
    elif budget == "long":
        chosen = grid(OURS.replace(steps=1200), mixer=MIXERS, positions=(FREE, BOUND), lr=(1e-2, 3e-2), seed=range(3))
    else:
        chosen = grid(OURS.replace(steps=1600), mixer=MIXERS, positions=POSITIONS, lr=(3e-3, 1e-2, 3e-2), seed=range(5))
    return [fitting(config) for config in chosen]


def fitting(config: RecallConfig) -> RecallConfig:
    """Give softmax keys as wide as the model, and learned positions as many rows as the probe needs."""
    config = config.replace(max_length=8 * config.seq_len) if config.positions == BOUND else config
    return config.replace(key_dim=None) if config.mixer == "softmax" else config


def cell(config: RecallConfig) -> tuple[str, str]:
    return config.mixer, config.positions


def asked(rows: Sequence[Row]) -> dict[Cell, dict[Asked, dict[int, float | None]]]:
    """Return (mixer, positions) -> (tokens, pairs) -> seed -> accuracy, None for sequences beyond the model."""
    grouped: dict[Cell, dict[Asked, dict[int, float | None]]] = {}
    for one, seeds in by_cell(rows, cell, "longer").items():
        for seed, answers in seeds.items():
            for answer in answers:
                at = grouped.setdefault(one, {}).setdefault((answer["seq_len"], answer["pairs"]), {})
                at[seed] = answer["accuracy"]
    return grouped


def kept(answers: dict[Asked, dict[int, float | None]]) -> tuple[Interval, dict[int, float]]:
    """Return the accuracy at the training length, and for each seed the share kept at the longest with equal pairs."""
    length, pairs = min(answers)
    longest = max(tokens for tokens, p in answers if p == pairs)
    short, long = answers[length, pairs], answers[longest, pairs]
    trained = {seed: accuracy for seed, accuracy in short.items() if accuracy}
    shares = {seed: (long.get(seed) or 0.0) / accuracy for seed, accuracy in trained.items()}
    return interval([accuracy or 0.0 for accuracy in short.values()]), shares


def verdict(rows: Sequence[Row]) -> Verdict:
    results = {one: kept(answers) for one, answers in asked(rows).items()}
    shares = {one: of for one, (_, of) in results.items()}
    absent = missing(shares, [(mixer, positions) for mixer in MIXERS for positions in (FREE, BOUND)])
    if absent:
        return absent
    clauses, met, against = [], 0, 0
    for mixer in MIXERS:
        if min(results[mixer, positions][0].mean for positions in (FREE, BOUND)) < LEARNED:
            continue  # nothing to keep
        free, bound = (interval(list(shares[mixer, positions].values())) for positions in (FREE, BOUND))
        gap = paired(shares[mixer, FREE], shares[mixer, BOUND])
        met += free.mean >= KEEPS > bound.mean and gap.low > 0
        against += free.high < KEEPS or bound.low >= KEEPS
        clauses.append(f"{mixer}: {free} without positions, {bound} with learned ones")
    if not clauses:
        return Verdict(
            UNTESTED, f"no mixer has {LEARNED} or more at the length of training, with positions and without"
        )
    outcome = CONFIRMED if met == len(clauses) else REFUTED if 2 * against > len(clauses) else UNCLEAR
    return Verdict(outcome, "share of accuracy kept at 8 times the length, the same pairs: " + "; ".join(clauses))


def tables(rows: Sequence[Row]) -> list[Table]:
    grouped = asked(rows)
    columns = sorted({at for answers in grouped.values() for at in answers})
    order = [(mixer, positions) for mixer in MIXERS for positions in POSITIONS if (mixer, positions) in grouped]
    lines = [(*one, *(mean_text(grouped[one].get(at, {})) for at in columns), seeds(grouped[one])) for one in order]
    head = ("mixer", "positions", *(f"N={shown(n)}, K={shown(k)}" for n, k in columns), "seeds")
    return [Table(head, lines, "recall on longer sequences than those of training, the first column")]


def mean_text(answers: dict[int, float | None]) -> str:
    known = [accuracy for accuracy in answers.values() if accuracy is not None]
    return f"{sum(known) / len(known):.3f}" if known else "-"


def seeds(answers: dict[Asked, dict[int, float | None]]) -> str:
    return str(max(len(by_seed) for by_seed in answers.values()))


def numbers(rows: Sequence[Row]) -> list[Number]:
    shares = {one: kept(answers)[1] for one, answers in asked(rows).items()}
    ways = {FREE: "no positions", BOUND: "learned positions"}
    return [
        mean(f"share of recall kept at 8 times the length, {NAMES[mixer]} with {way}", shares[mixer, positions])
        for positions, way in ways.items()
        for mixer in MIXERS
        if shares.get((mixer, positions))
    ]


def charts(rows: Sequence[Row]) -> Charts:
    """Draw the accuracy with as many pairs as in training."""
    series: dict[str, list[Point]] = {}
    for (mixer, positions), answers in asked(rows).items():
        pairs = min(answers)[1]
        known = {
            n: {s: a for s, a in seeds.items() if a is not None} for (n, p), seeds in answers.items() if p == pairs
        }
        series[f"{NAMES[mixer]}, {positions}"] = [point(n, seeds) for n, seeds in known.items() if seeds]
    return line_chart("longer sequences than in training, the same pairs", "tokens", series)


CLAIM = recall_claim(
    name="extrapolation",
    number="C11",
    question="Does a model trained on short sequences look things up in sequences eight times as long?",
    statement="An argument that the papers do not test: without positions nothing in the model knows a length, while "
    "a table of learned positions has rows that training never reached. No number is printed.",
    rule=f"of mixers with {LEARNED} or more at the length of training: confirmed if at 8 times the length and as many "
    f"pairs all keep {KEEPS} of their accuracy without positions and less with learned ones, the difference with an "
    f"interval above 0; refuted if for most of them no positions keep less, or learned ones keep it, with the whole "
    "interval"
    ". Sizes of the quick and hour budgets: the size is the third that was tried: with pairs asked in the usual "
    "order no model with learned positions learned enough to count",
    configs=configs,
    verdict=verdict,
    numbers=numbers,
    tables=tables,
    charts=charts,
    meaning={
        CONFIRMED: "Leave learned positions out where sequences may grow: the short convolution is enough for order.",
        REFUTED: "Positions are not what decides at this size: models without them lose recall too, or learned ones "
        "keep it.",
        UNCLEAR: "Without positions recall is kept better, but not for every model by the margin that the rule asks "
        "for.",
    },
)
