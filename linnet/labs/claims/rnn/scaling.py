"""T4: time and memory of one attention operation, forward and backward, as the sequence grows; and where linear wins.

    log-log slope over the last lengths: linear attention 1, softmax 2        from 512 tokens: faster and smaller

Figure 1 of arXiv:2006.16236. Linear attention, softmax as torch computes it now and softmax as it was computed then
take turns (scaling_timing.py). The crossover is that of T13, from the same row (open/crossover.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from statistics import median

from ...core.claim import (
    NO,
    OPEN,
    YES,
    Chart,
    Claim,
    Evidence,
    Finding,
    Number,
    Regime,
    Row,
    Setting,
    Table,
    Unit,
    figures,
    spread,
    unit,
    untested,
)
from ...core.intervals import Interval, median_interval
from ...core.licence import quiet
from ..open.crossover import crossover, crossover_number, crossover_unit, deciding, in_words, rounds_of
from ..open.verdict_logic import above, below, between
from .scaling_timing import FUSED, LINEAR, MATRIX, race
from .slopes import LAST, Curves

FROM = 512  # tokens: the shortest of the paper's figure
NEAR, STEEP = 0.15, 1.7
LEAST = {LINEAR: 8192, FUSED: 2048, MATRIX: FROM}  # tokens that each must reach for a verdict
MIB = 2.0**20


def units(setting: Setting) -> list[Unit]:
    """Return the crossover and three rows: short lengths, the longest of softmax, the longest of linear alone."""
    shortest, fused_last, matrix_last, linear_last, tokens, rounds = {
        "smoke": (64, 256, 128, 256, 128, 2),
        "quick": (16, 4096, 1024, 16384, 1024, 5),
        "hour": (16, 8192, 2048, 65536, 4096, 7),
        "paper": (16, 16384, 4096, 65536, 8192, 9),
    }[setting.budget]
    lengths = [2**i for i in range(17) if shortest <= 2**i <= linear_last]
    middle = [length for length in lengths if length <= fused_last][-LAST:]
    short = [length for length in lengths if length < middle[0]]
    parts = {
        "short": dict.fromkeys((LINEAR, FUSED, MATRIX), short),
        "middle": {LINEAR: middle, FUSED: middle, MATRIX: [length for length in middle if length <= matrix_last]},
        "long": {LINEAR: lengths[-LAST:]},
    }
    sizes = {"heads": 8, "width": 64, "tokens": tokens, "rounds": rounds}
    return [crossover_unit(setting.budget)] + [
        unit(race, {"experiment": "scaling", "part": part, "arms": variants, **sizes}, 2.0 + rounds, alone=True)
        for part, variants in parts.items()
        if variants[LINEAR]
    ]


def read(rows: Sequence[Row]) -> Finding:
    curves, row = Curves([one for one in rows if "arms" in one["metrics"]]), deciding(rows)
    for variant, least in LEAST.items():
        longest = max(curves.ms.get(variant, {0: []}))
        if longest < least:
            return untested(f"{variant} was timed up to {longest:,} tokens, and the rule wants {least:,} or more")
    if row is None:
        return untested("the crossover was not timed")
    growth = curves.memory_slope(LINEAR)
    if growth is None:
        return untested("memory was not measured: this system does not say how much a process took")
    linear, fused = (median_interval(curves.time_slopes(variant)) for variant in (LINEAR, FUSED))
    cross, behind = crossover(row), losses(curves)
    parts = [between(linear, 1 - NEAR, 1 + NEAR), above(fused, STEEP), below(cross, FROM), *behind.values()]
    parts.append(YES if abs(growth - 1) <= NEAR else NO)
    state = NO if NO in parts else OPEN if OPEN in parts else YES
    worse = [what for what, answer in behind.items() if answer != YES]
    sentence = (
        f"Time grows with the length to the power {linear} (linear; the rule allows {1 - NEAR:g} to {1 + NEAR:g}) and "
        f"{fused} (fused softmax; {STEEP:g} or more), memory of linear attention to the power {figures(growth)}; "
        f"linear is the faster operation {in_words(cross, row['config']['lengths'])}."
    )
    sentence += f" Not shown from {FROM} tokens on: linear is {'; '.join(worse)}." if worse else ""
    evidence = Evidence(state, regime_of(curves), (quiet(timings(curves, row)),), curves.rounds, "rounds")
    scope = (
        f"8 heads of width 64, {FROM} to {max(curves.ms[LINEAR]):,} tokens (fused softmax up to "
        f"{max(curves.ms[FUSED]):,}), {curves.rounds} rounds"
    )
    words = meaning(curves, cross, row["config"]["lengths"])
    return Finding(evidence, sentence, numbers(curves, row), scope, words, [table(curves)], charts(curves))


def regime_of(curves: Curves) -> Regime:
    here = f"{FROM} to {max(curves.ms[LINEAR]):,} tokens, on a CPU"
    return Regime("512 to 65,536 tokens, on a GPU", here)


def timings(curves: Curves, row: Row) -> dict[str, Sequence[float]]:
    """Return the rounds of everything that decides, for the control that the machine was quiet."""
    rounds: dict[str, Sequence[float]] = {
        f"{variant} at {length} tokens": ms
        for variant, by_length in curves.ms.items()
        for length, ms in by_length.items()
        if length >= FROM
    }
    return rounds | {f"{name} (crossover)": seconds for name, seconds in rounds_of(row).items()}


def losses(curves: Curves) -> dict[str, str]:
    """Return for both softmaxes at each length from FROM whether linear attention is faster, and whether smaller."""
    answers = {}
    for variant in (FUSED, MATRIX):
        for length in curves.ms[variant]:
            if length >= FROM:
                lead = median_interval(ratios(curves, variant, length))
                answers[f"faster than {variant} at {length:,} tokens"] = above(lead, 1.0)
        for length, size in curves.bytes.get(variant, {}).items():
            if length >= FROM:
                small = curves.bytes[LINEAR].get(length, inf) < size
                answers[f"smaller than {variant} at {length:,} tokens"] = YES if small else NO
    return answers


def ratios(curves: Curves, variant: str, length: int) -> list[float]:
    """Return time of `variant` / time of linear attention, round by round."""
    return [a / b for a, b in zip(curves.ms[variant][length], curves.ms[LINEAR][length], strict=False)]


def numbers(curves: Curves, row: Row) -> list[Number]:
    lines = [
        spread(
            f"log-log slope of time by length, {variant}",
            expected,
            median_interval(curves.time_slopes(variant)),
            "rounds",
        )
        for variant, expected in ((LINEAR, "O(N)"), (FUSED, "O(N^2)"), (MATRIX, "O(N^2)"))
        if variant in curves.last
    ]
    last = max(curves.ms[FUSED])
    lead = median_interval(ratios(curves, FUSED, last))
    lines.append(crossover_number(row))
    lines.append(spread(f"time of fused softmax / linear at {last:,} tokens, both passes", None, lead, "rounds"))
    for variant, expected in ((LINEAR, "O(N)"), (FUSED, None), (MATRIX, "O(N^2)")):
        growth = curves.memory_slope(variant)
        if growth is not None:
            lines.append(Number(f"log-log slope of peak memory by length, {variant}", expected, growth))
    for variant in (FUSED, MATRIX):
        both = [length for length in curves.bytes.get(variant, {}) if length in curves.bytes[LINEAR]]
        if both:
            share = curves.bytes[variant][both[-1]] / curves.bytes[LINEAR][both[-1]]
            lines.append(Number(f"peak memory of {variant} / linear at {both[-1]:,} tokens", None, share))
    return lines


def meaning(curves: Curves, cross: Interval, lengths: Sequence[int]) -> str:
    if cross.mean == inf:
        return f"Linear attention is the faster operation {in_words(cross, lengths)} on this machine."
    growth = curves.memory_slope(FUSED)
    text = (
        f"For training on this machine linear attention is the faster operation {in_words(cross, lengths)}, and its "
        "lead grows with the length. "
    )
    if growth is not None and growth < 1.5:
        text += (
            "Memory is no longer the argument it was: the fused softmax of today does not keep the T x T matrix, and "
            "its memory grows linearly too; against the matrix written out, the gap is the paper's."
        )
    return text.strip()


def table(curves: Curves) -> Table:
    variants = list(curves.ms)
    head = ["tokens", *(f"{variant}, ms" for variant in variants), *(f"{variant}, MiB" for variant in variants)]
    body = []
    for length in (length for length in curves.ms[LINEAR] if length >= FROM):
        ms = [figures(curves.middle(variant).get(length)) for variant in variants]
        size = [curves.bytes.get(variant, {}).get(length) for variant in variants]
        body.append((f"{length:,}", *ms, *(figures(None if x is None else x / MIB) for x in size)))
    return Table(tuple(head), body, "One operation, forward and backward, per sample: median time, peak growth")


def charts(curves: Curves) -> list[Chart]:
    times = {
        variant: [[length, median(ms), min(ms), max(ms)] for length, ms in by.items() if length >= FROM]
        for variant, by in curves.ms.items()
    }
    sizes = {
        variant: [[length, size / MIB] for length, size in by.items() if length >= FROM]
        for variant, by in curves.bytes.items()
    }
    both = "One attention operation, forward and backward, 8 heads of width 64, per sample"
    drawn = [
        Chart("Time by length", "tokens", "ms per sample", times, log_x=True, log_y=True,
              caption=f"{both}; median, fastest and slowest of {curves.rounds} rounds in turns.")
    ]  # fmt: skip
    if sizes:
        drawn.append(
            Chart("Memory by length", "tokens", "MiB per sample", sizes, log_x=True, log_y=True,
                  caption=f"{both}; what the process grows by, output and gradients included.")
        )  # fmt: skip
    return drawn


CLAIM = Claim(
    name="scaling",
    number="T4",
    paper="rnn",
    statement=(
        "Time and memory of linear attention grow linearly with the length, softmax's time with its square, and from "
        f"{FROM} tokens on linear is faster and smaller."
    ),
    source=(
        "Figure 1: time and memory of linear attention grow linearly where softmax grows with the square, and linear "
        "is the fastest and smallest in every configuration from 512 to 65,536 tokens. The paper prints no point "
        "values and no crossover; it measured on a GPU against a softmax that keeps the matrix of scores."
    ),
    rule=(
        "holds if the interval over rounds of the log-log slope of time over the last three lengths lies within 1 +- "
        "0.15 for linear and above 1.7 for fused softmax, linear's memory has a slope of 1 +- 0.15, the crossover of "
        "T13 is at 512 tokens or fewer, and at every common length from 512 tokens linear is faster and smaller than "
        "fused softmax and than the matrix written out; does not hold if one of these is false with its whole "
        "interval; too close to call between; control: a quiet machine"
    ),
    answers={YES: "Yes, linear against quadratic, ahead from 512", NO: "No, it grows or compares otherwise"},
    change="rounds on a quiet machine in which a slope, the crossover or the memory lies on the other side",
    units=units,
    read=read,
)
