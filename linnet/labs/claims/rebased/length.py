"""C2: does ReBased lose less than Based when the same pairs are in a longer sequence?

    drop = accuracy(short) - accuracy(long), pairs fixed        claim: drop(Based) - drop(ReBased) >= 0.05

The headline of Aksenov et al. 2024 (arXiv:2402.10644): their table 1 has, at d_model 32 and 32 pairs, Based .82 -> .66
and ReBased .86 -> .83 from 256 to 2,048 tokens. With zero filler every distractor is the same token, one direction to
suppress; random filler, which is never a key or value of the sequence, is the fair test. Both are run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...core.claim import Number, spread
from ...core.intervals import interval, paired
from ...core.results import Row
from ...core.verdicts import CONFIRMED, REFUTED, UNCLEAR, UNTESTED, Table, Verdict, intervals, missing, table
from ...recall.cells import NAMES, Charts, Point, by_cell, grid, line_chart, point
from ...recall.config import RecallConfig
from ...recall.study import SMALL, enlarged, recall_claim

KERNELS = ("based", "rebased")
ENOUGH = 0.05
LEARNED = 0.3  # a cell below this at the short length has nothing to lose
BASE = RecallConfig(vocab_size=1024, pairs=8, key_dim=8, d_model=24, seq_len=32, steps=800)
PAPER = RecallConfig(
    vocab_size=8192, pairs=32, n_heads=12, key_dim=16, positions="learned", dropout=0.1, steps=12_544,
    batch_size=512, examples=100_000, warmup=0.0, beta2=0.999, d_model=32, head_dim=2, seq_len=256,
)  # fmt: skip
MOST = 6  # numbers


def configs(budget: str) -> list[RecallConfig]:
    if budget == "smoke":
        return grid(BASE.replace(steps=4), mixer=KERNELS, seq_len=(32, 64))
    if budget == "hour":
        return enlarged(configs("quick"))
    if budget == "quick":
        return [config for kernel in KERNELS for config in quick(kernel)]
    if budget == "paper":
        return [
            config.replace(head_dim=config.d_model // 12)
            for config in grid(
                PAPER, mixer=KERNELS, d_model=(16, 24, 32, 48), seq_len=(256, 2048), lr=(5e-4, 1e-3, 3e-3, 1e-2),
                seed=range(5),
            )
        ]  # fmt: skip
    widths, lengths, seeds = ((16, 24), (32, 128), 3) if budget == "long" else ((16, 24, 32), (32, 128, 512), 5)
    rates = (1e-2, 3e-2)
    return grid(
        BASE, mixer=KERNELS, filler=("zero", "random"), d_model=widths, seq_len=lengths, lr=rates, seed=range(seeds)
    )


def quick(kernel: str) -> list[RecallConfig]:
    """Return the quick runs; those of Based also probe its floor and are shared with that study."""
    keys, probes = (3, ("floor",)) if kernel == "based" else (4, ())  # 10 features each
    base = SMALL.replace(mixer=kernel, vocab_size=52, key_dim=keys, steps=400, probes=probes)
    return grid(base, filler=("zero", "random"), seq_len=(16, 48), seed=range(3))


def cell(config: RecallConfig) -> tuple[str, int, int, str]:
    return config.filler, config.d_model, config.seq_len, config.mixer


def verdict(rows: Sequence[Row]) -> Verdict:
    cells = by_cell(rows, cell)
    lengths = sorted({length for _, _, length, _ in cells})
    short, long = lengths[0], lengths[-1]
    clauses, met, against = [], 0, 0
    for filler, width in sorted({(f, d) for f, d, _, _ in cells}):
        wanted = [(filler, width, n, kernel) for n in (short, long) for kernel in KERNELS]
        absent = missing(cells, wanted)
        if absent:
            return absent
        if min(interval(list(cells[c].values())).mean for c in wanted[:2]) < LEARNED:
            continue  # nothing to lose
        gap = paired(*(drop(cells[filler, width, short, k], cells[filler, width, long, k]) for k in KERNELS))
        met += gap.mean >= ENOUGH and gap.low > 0
        against += gap.high < ENOUGH
        clauses.append(f"{filler} filler, d={width}: {gap}")
    if not clauses:
        return Verdict(UNTESTED, f"no width has an accuracy of {LEARNED} or more at {short} tokens with both kernels")
    sentence = f"drop(Based) - drop(ReBased) from {short} to {long} tokens: " + "; ".join(clauses)
    outcome = CONFIRMED if met >= 2 else REFUTED if against == len(clauses) else UNCLEAR
    return Verdict(outcome, sentence)


def drop(short: Mapping[int, float], long: Mapping[int, float]) -> dict[int, float]:
    """Return the drop of every seed that has both lengths."""
    return {seed: short[seed] - long[seed] for seed in short if seed in long}


def tables(rows: Sequence[Row]) -> list[Table]:
    measured = dict(sorted(intervals(by_cell(rows, cell)).items()))
    return [table("recall by length, the same pairs", ("filler", "d", "N", "kernel"), measured)]


def numbers(rows: Sequence[Row]) -> list[Number]:
    """Return the numbers with random filler, the fair test, first."""
    cells = by_cell(rows, cell)
    lengths = sorted({tokens for _, _, tokens, _ in cells})
    short, long = lengths[0], lengths[-1]
    lines = []
    for filler, width in sorted({(filler, width) for filler, width, _, _ in cells}):
        drops = [drop(cells[filler, width, short, k], cells[filler, width, long, k]) for k in KERNELS]
        what = f"recall lost by Based less that lost by ReBased, {short} to {long} tokens, {filler} filler, d {width}"
        lines.append(spread(what, ".16 - .03 = .13, 256 to 2,048 tokens, d 32", paired(*drops)))
    return lines[:MOST]


def charts(rows: Sequence[Row]) -> Charts:
    series: dict[str, list[Point]] = {}
    for (filler, width, tokens, kernel), seeds in sorted(by_cell(rows, cell).items()):
        series.setdefault(f"{NAMES[kernel]}, {filler}, d {width}", []).append(point(tokens, seeds))
    return line_chart("the same pairs in longer sequences", "tokens", series)


CLAIM = recall_claim(
    name="length",
    number="C2",
    question="Does ReBased lose less than Based when the same pairs stand in a longer sequence?",
    statement="The headline of ReBased: the paper prints a drop of .16 for Based (.82 to .66) and .03 for ReBased "
    "(.86 to .83) from 256 to 2,048 tokens with 32 pairs at width 32.",
    rule=f"confirmed if drop(Based) - drop(ReBased) >= {ENOUGH} with an interval above 0 at two widths or fillers; "
    f"refuted if the interval is below {ENOUGH} everywhere"
    ". Sizes of the quick and hour budgets: the size is the third that was tried: at width 16 the models had hardly "
    "learned and the rule was undecided; with keys of one width, 10 features for Based and 6 for ReBased, it said "
    "refuted",
    configs=configs,
    verdict=verdict,
    numbers=numbers,
    tables=tables,
    charts=charts,
    meaning={
        CONFIRMED: "For long sequences with much between the pairs ReBased is the safer of the two kernels.",
        REFUTED: "Longer sequences do not separate the two kernels at this size: choose by other things than length.",
        UNCLEAR: "The difference between the kernels is as large as that between seeds: at this size length is no "
        "reason to choose one of them.",
    },
)
