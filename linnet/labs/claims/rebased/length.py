"""C2: when the same pairs are in a longer sequence, does ReBased lose less than Based?

    drop = accuracy(short) - accuracy(long), pairs fixed        claim: drop(Based) - drop(ReBased) >= 0.05

A kernel that has not learned has nothing to lose, and where Based keeps .95 or more at the long length it cannot lose
.05 more than another: such widths and fillers are left out.

The headline of Aksenov et al. 2024 (arXiv:2402.10644): their table 1 has, at d_model 32 and 32 pairs, Based .82 -> .66
and ReBased .86 -> .83 from 256 to 2,048 tokens. With zero filler every distractor is the same token, one direction to
suppress; random filler, which is never a key or value of the sequence, is the fair test. Both are run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from ...core.claim import Number, spread
from ...core.intervals import Interval, interval, paired
from ...core.licence import learned, room, settled
from ...core.results import Row
from ...core.verdicts import NO, OPEN, UNTESTED, YES, Cell, Table, Verdict, intervals, missing, table
from ...recall import bench, day
from ...recall.cells import NAMES, Charts, Point, by_cell, curves_of, grid, line_chart, point
from ...recall.config import RecallConfig
from ...recall.day import Stage
from ...recall.study import SMALL, deciding, enlarged, judged, recall_claim

KERNELS = ("based", "rebased")
ENOUGH = 0.05
CEILING = 1 - ENOUGH  # of Based at the long length
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
    fillers, rates = ("zero", "random"), (1e-2, 3e-2)
    return grid(BASE, mixer=KERNELS, filler=fillers, d_model=(16, 24), seq_len=(32, 128), lr=rates, seed=range(3))


@cache
def stages() -> list[Stage]:
    """Return the day runs: two fillers at width 32, then at width 16."""
    base = day.DAY.replace(key_dim=day.WIDTH)
    return [
        Stage(grid(base.replace(d_model=width), mixer=KERNELS, filler=("zero", "random"), seq_len=(128, 1024)))
        for width in (32, 16)
    ]


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
    if len(lengths) < 2:
        return Verdict(UNTESTED, f"rows of two lengths are needed, there are {len(lengths)}")
    short, long = lengths[0], lengths[-1]
    places = sorted({(filler, width) for filler, width, _, _ in cells})
    absent = missing(cells, [(*one, n, kernel) for one in places for n in (short, long) for kernel in KERNELS])
    if absent:
        return absent
    gaps = counted(cells)
    able = [one for one in places if start(cells, one) >= LEARNED] or places
    controls = [
        learned("the weaker kernel", max(start(cells, one) for one in places), LEARNED, f"recall at {short} tokens"),
        room({f"Based at {long} tokens": min(end(cells, one) for one in able)}, CEILING),
        settled("either kernel", curves_of(rows, cell, cells)),
    ]
    clauses = [f"{filler} filler, d = {width}: {gap}" for (filler, width), gap in gaps.items()]
    sentence = f"recall lost by Based less that lost by ReBased from {short} to {long} tokens: " + "; ".join(clauses)
    seeds = min((gap.seeds for gap in gaps.values()), default=0)
    return judged(state_of(list(gaps.values())), sentence, rows, bench.LENGTHS, seeds, controls)


def state_of(gaps: Sequence[Interval]) -> str:
    """Return what the differences of the drops say: two places must agree on a yes and none deny it, all on a no."""
    if sum(map(larger, gaps)) >= 2 and all(gap.high >= 0 for gap in gaps):
        return YES
    return NO if gaps and all(gap.high < ENOUGH for gap in gaps) else OPEN


def larger(gap: Interval) -> bool:
    """Return whether Based loses clearly more here."""
    return gap.mean >= ENOUGH and gap.low > 0


def counted(cells: Mapping[Cell, Mapping[int, float]]) -> dict[tuple[str, int], Interval]:
    """Return the differences of the drops where both kernels have something to lose, and Based lost enough."""
    return {one: gap for one, gap in drops(cells).items() if start(cells, one) >= LEARNED and end(cells, one) < CEILING}


def drops(cells: Mapping[Cell, Mapping[int, float]]) -> dict[tuple[str, int], Interval]:
    """Return (filler, width) -> what Based loses from the shortest to the longest less what ReBased loses."""
    lengths = sorted({length for _, _, length, _ in cells})
    short, long = lengths[0], lengths[-1]
    return {
        (f, d): paired(*(drop(cells[f, d, short, kernel], cells[f, d, long, kernel]) for kernel in KERNELS))
        for f, d in sorted({(filler, width) for filler, width, _, _ in cells})
    }


def start(cells: Mapping[Cell, Mapping[int, float]], place: tuple[str, int]) -> float:
    """Return the accuracy of the weaker kernel at the shortest length."""
    short = min(length for _, _, length, _ in cells)
    filler, width = place
    return min(_mean(cells[filler, width, short, kernel]) for kernel in KERNELS)


def end(cells: Mapping[Cell, Mapping[int, float]], place: tuple[str, int]) -> float:
    """Return the accuracy of Based at the longest length."""
    filler, width = place
    return _mean(cells[filler, width, max(length for _, _, length, _ in cells), "based"])


def _mean(seeds: Mapping[int, float]) -> float:
    return interval(list(seeds.values())).mean


def drop(short: Mapping[int, float], long: Mapping[int, float]) -> dict[int, float]:
    """Return the drop of every seed that has both lengths."""
    return {seed: short[seed] - long[seed] for seed in short if seed in long}


def tables(rows: Sequence[Row]) -> list[Table]:
    measured = dict(sorted(intervals(by_cell(rows, cell)).items()))
    return [table("recall by length, the same pairs", ("filler", "d", "N", "kernel"), measured)]


def numbers(rows: Sequence[Row]) -> list[Number]:
    """Return the differences of the drops that count, first the one that decides: of a yes the second largest."""
    cells = by_cell(rows, cell)
    lengths = sorted({tokens for _, _, tokens, _ in cells})
    short, long = lengths[0], lengths[-1]
    gaps = counted(cells) or drops(cells)
    state = state_of(list(gaps.values()))
    agreeing = sorted((one for one in gaps if larger(gaps[one])), key=lambda one: -gaps[one].low)
    first = agreeing[1] if state == YES else deciding(state, gaps)
    ordered = [first, *(one for one in gaps if one != first)]
    what = f"recall lost by Based less that lost by ReBased, {short} to {long} tokens"
    paper = ".16 - .03 = .13, 256 to 2,048 tokens, d 32"
    return [spread(f"{what}, {filler} filler, d {d}", paper, gaps[filler, d]) for filler, d in ordered[:MOST]]


def charts(rows: Sequence[Row]) -> Charts:
    series: dict[str, list[Point]] = {}
    for (filler, width, tokens, kernel), seeds in sorted(by_cell(rows, cell).items()):
        series.setdefault(f"{NAMES[kernel]}, {filler}, d {width}", []).append(point(tokens, seeds))
    return line_chart("the same pairs in longer sequences", "tokens", series)


CLAIM = recall_claim(
    name="length",
    number="C2",
    statement="When the same pairs stand in a longer sequence, ReBased loses clearly less recall than Based.",
    source="The headline of ReBased: the paper prints a drop of .16 for Based (.82 to .66) and .03 for ReBased (.86 to "
    ".83) from 256 to 2,048 tokens with 32 pairs at width 32.",
    rule=f"clearly is {ENOUGH}: yes if drop(Based) - drop(ReBased) is {ENOUGH} or more with an interval above 0 at two "
    f"widths or fillers, and below 0 at none; no if its interval is below {ENOUGH} at all of them. Widths and fillers "
    f"count where both kernels have {LEARNED} or more at the short length and Based less than {CEILING:g} at the long "
    "one. Controls: there is one that has learned, and one that leaves room; inside the regime no recall still rises. "
    f"Regime: {bench.LENGTHS.words}. Sizes of the quick and hour budgets: the third that was tried: at width 16 the "
    "models had hardly learned; with keys of one width, 10 features for Based and 6 for ReBased, the rule said no",
    answers={YES: "Yes, ReBased loses clearly less", NO: "No, it does not lose clearly less"},
    change="Five seeds at 256 and 2,048 tokens, where the paper prints a difference of .13.",
    configs=configs,
    stages=stages,
    verdict=verdict,
    numbers=numbers,
    tables=tables,
    charts=charts,
    meaning={
        YES: "For long sequences with much between the pairs ReBased is the safer of the two kernels.",
        NO: "Longer sequences do not separate the two kernels at this size: choose by other things than length.",
        OPEN: "The difference between the kernels is as large as that between seeds: length is no reason to choose "
        "one of them.",
    },
)
