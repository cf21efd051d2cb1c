"""C11: at eight times its training length, does a model without positions keep more recall than one that learned them?

    share kept = accuracy(8 N tokens, the same pairs) / accuracy(N tokens)
    gap = share kept without positions - share kept with learned positions, seed by seed: what the rule judges

Without positions nothing in the model depends on the length; only the filler grows, and more pairs need more state. A
table of learned positions has rows for the longer sequences too, but training never reached them: they keep their
initial values. Rotary positions continue beyond training and run in the larger budgets. The probe "longer" tests 1, 2,
4 and 8 times the length, with proportionally more pairs or the same number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...core.claim import Number, spread
from ...core.intervals import Interval, interval, paired
from ...core.licence import learned, room, settled
from ...core.results import Row
from ...core.verdicts import NO, OPEN, YES, Cell, Table, Verdict, missing, shown
from ...recall import bench
from ...recall.cells import NAMES, Charts, Point, by_cell, curves_of, grid, line_chart, mean, point
from ...recall.config import RecallConfig
from ...recall.study import SMALL, deciding, enlarged, everywhere, judged, recall_claim
from .state_law import ZOOLOGY, ZOOLOGY_RATES

MIXERS = ("softmax", "based", "rebased")
FREE, BOUND = "none", "learned"
POSITIONS = (FREE, BOUND, "rotary")
LEARNED = 0.8  # at the length of training, for a mixer to count
OURS = RecallConfig(vocab_size=1024, pairs=8, key_dim=8, probes=("longer",))
MOST = 6  # numbers
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
    else:
        chosen = grid(OURS.replace(steps=1200), mixer=MIXERS, positions=(FREE, BOUND), lr=(1e-2, 3e-2), seed=range(3))
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
    scores = {mixer: min(results[mixer, way][0].mean for way in (FREE, BOUND)) for mixer in MIXERS}
    able = able_mixers(results)
    gaps = {mixer: paired(shares[mixer, FREE], shares[mixer, BOUND]) for mixer in able}
    best = max(scores, key=lambda mixer: scores[mixer])
    rivals = {NAMES[mixer]: interval(list(shares[mixer, BOUND].values())).mean for mixer in able or MIXERS}
    controls = [
        learned(NAMES[best], scores[best], LEARNED, "recall at its training length"),
        room(rivals, what="share kept with learned positions"),
        settled("a model", curves_of(rows, cell, [(mixer, way) for mixer in able for way in (FREE, BOUND)])),
    ]
    clauses = [f"{NAMES[mixer]} {gap}" for mixer, gap in gaps.items()]
    left = [NAMES[mixer] for mixer in MIXERS if mixer not in able]
    note = f"; left out, because it had not learned its training length: {', '.join(left)}" if left else ""
    seeds = min((gap.seeds for gap in gaps.values()), default=0)
    sentence = (
        "share of recall kept at 8 times the length, without positions less with learned ones: "
        + "; ".join(clauses)
        + note
    )
    result = judged(state_of(gaps), sentence, rows, bench.ZOOLOGY, seeds, controls)
    return replace(result, scope=f"{' and '.join(NAMES[mixer] for mixer in able or MIXERS)}, trained at {result.scope}")


def state_of(gaps: Mapping[str, Interval]) -> str:
    return everywhere([YES if gap.low > 0 else NO if gap.high < 0 else OPEN for gap in gaps.values()])


def able_mixers(results: Mapping[Cell, tuple[Interval, dict[int, float]]]) -> list[str]:
    """Return the mixers that learned their training length with positions and without: others have nothing to keep."""
    return [mixer for mixer in MIXERS if min(results[mixer, way][0].mean for way in (FREE, BOUND)) >= LEARNED]


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
    """Return the gap that decides, and the shares of the mixers that count."""
    results = {one: kept(answers) for one, answers in asked(rows).items()}
    shares = {one: of for one, (_, of) in results.items()}
    counted = able_mixers(results) or MIXERS
    gaps = {mixer: paired(shares[mixer, FREE], shares[mixer, BOUND]) for mixer in counted}
    mixer = deciding(state_of(gaps), gaps)
    what = f"share of recall kept at 8 times the length, {NAMES[mixer]}, no positions less learned ones"
    ways = {FREE: "no positions", BOUND: "learned positions"}
    return [
        spread(what, None, gaps[mixer]),
        *(
            mean(f"share of recall kept at 8 times the length, {NAMES[one]} with {way}", shares[one, positions])
            for one in counted
            for positions, way in ways.items()
        ),
    ][:MOST]


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
    statement="At eight times its training length a model without positions keeps more recall than one with learned "
    "positions.",
    source="An argument that the papers do not test: without positions nothing in the model knows a length, while a "
    "table of learned positions has rows that training never reached. No number is printed.",
    rule=f"of mixers with {LEARNED} or more at the length of training, with positions and without: yes if for each the "
    "share of recall kept at 8 times the length and as many pairs is larger without positions, the difference with an "
    f"interval above 0; no if for each it lies below 0. Controls: one of them reaches {LEARNED}, and learned positions "
    f"keep less than .99; inside the regime no recall still rises. Regime: {bench.ZOOLOGY.words}. Sizes of the quick "
    "and hour budgets: the third that was tried: with pairs asked in the usual order no model with learned positions "
    "learned enough to count",
    answers={YES: "Yes, learned positions keep less", NO: "No, learned positions keep more"},
    change="Five seeds trained at 64 tokens in which learned positions keep as much at 512.",
    configs=configs,
    verdict=verdict,
    numbers=numbers,
    tables=tables,
    charts=charts,
    meaning={
        YES: "Leave learned positions out where sequences may grow: the short convolution is enough for order.",
        NO: "Positions are not what decides at this size: learned ones keep recall.",
        OPEN: "Without positions recall is not kept better by every model.",
    },
)
