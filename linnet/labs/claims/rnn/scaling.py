"""T4: time and memory of one attention operation, forward and backward, as the sequence grows; and where linear wins.

    log-log slope over the last lengths: linear attention 1, softmax 2        break-even: time equal

Figure 1 of arXiv:2006.16236. Three variants take turns: linear attention, softmax as torch computes it now (fused, no
T x T matrix) and softmax as it was computed then (explicit matrix). Each first agrees with a float64 reference. The
lengths of a slope are timed in turns too, so that a busy machine slows them all down.
Batch B = max(1, tokens // T), H = 8, D = V = 64; per sample: divided by B.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ...bench import timing
from ...bench.competitors import SDPA, Competitor, ours
from ...bench.inputs import inputs
from ...bench.race import call_of, check
from ...bench.sizes import BOTH, Case
from ...core.claim import (
    CONFIRMED,
    REFUTED,
    UNCLEAR,
    Chart,
    Claim,
    Config,
    Finding,
    Number,
    Row,
    Setting,
    Table,
    Unit,
    figures,
    number,
    rounded,
    unit,
    untested,
)
from .slopes import LAST, Curves, crossing

LINEAR, FUSED, MATRIX = "linear", "softmax, fused", "softmax, matrix"
FROM = 512  # tokens: the shortest of the paper's figure
NEAR, STEEP = 0.15, 1.7
LEAST = {LINEAR: 8192, FUSED: 2048, MATRIX: FROM}  # tokens that each must reach for a verdict
MIB = 2.0**20


def units(setting: Setting) -> list[Unit]:
    """Return three rows: short lengths, the longest lengths of softmax, the longest of linear attention alone."""
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
    return [
        unit(race, {"experiment": "scaling", "part": part, "arms": variants, **sizes}, 2.0 + rounds, alone=True)
        for part, variants in parts.items()
        if variants[LINEAR]
    ]


def race(config: Config) -> dict[str, Any]:
    """Return variant -> length -> milliseconds per sample of every round, peak bytes per sample, error."""
    measured: dict[str, dict[str, Any]] = {variant: {} for variant in config["arms"]}
    calls: dict[str, Callable[[], Any]] = {}
    for variant, lengths in config["arms"].items():
        for length in lengths:
            call, measured[variant][str(length)] = prepared(variant, length, config)
            calls[f"{variant} {length}"] = call
    seconds = timing.interleave(calls, config["rounds"])
    for variant, lengths in config["arms"].items():
        for length in lengths:
            per_sample = 1000 / batch_of(length, config)
            measured[variant][str(length)]["ms"] = [rounded(per_sample * s, 4) for s in seconds[f"{variant} {length}"]]
    return {"arms": measured, "threads": torch.get_num_threads()}


def prepared(variant: str, length: int, config: Config) -> tuple[Callable[[], Any], dict[str, Any]]:
    """Return the call to time, after it agrees with the reference, and the memory it adds."""
    batch, heads, width = batch_of(length, config), config["heads"], config["width"]
    given, one = inputs(batch, length, heads, width, width), competitor(variant)
    call = call_of(one, given, BOTH)
    checked = check(one, Case(torch.get_num_threads(), batch * heads, length, width, width), given, call)
    if checked["status"] != "ok":
        raise RuntimeError(f"{variant} at {length} tokens: {checked['reason']}")
    extra = checked["extra_bytes"]
    return call, {"bytes": None if extra is None else extra // batch, "error": float(f"{checked['error']:.2g}")}


def batch_of(length: int, config: Config) -> int:
    return max(1, int(config["tokens"]) // length)


def competitor(variant: str) -> Competitor:
    if variant == FUSED:
        return Competitor(SDPA, "", fused, kernel="softmax")
    if variant == MATRIX:
        return Competitor(MATRIX, "", matrix, kernel="softmax")
    native, torch_form = ours("elu")
    return native if native.run is not None else torch_form


def fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scaled_dot_product_attention(q, k, v, is_causal=True)


def matrix(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attend with the masked scores of all pairs, as the first implementations did; [B,H,T,D]."""
    scores = q @ k.mT / sqrt(q.shape[-1])  # [B,H,T,T]
    later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(later, float("-inf")).softmax(-1) @ v


def read(rows: Sequence[Row]) -> Finding:
    curves = Curves(rows)
    for variant, least in LEAST.items():
        longest = max(curves.ms.get(variant, {0: []}))
        if longest < least:
            return untested(f"{variant} was timed up to {longest:,} tokens, and the rule wants {least:,} or more")
    linear, steep = (number("", None, curves.time_slopes(variant)).ours for variant in (LINEAR, FUSED))
    worse = slower_or_larger(curves)
    last = max(curves.ms[FUSED])
    lead = curves.middle(FUSED)[last] / curves.middle(LINEAR)[last]
    no_bytes = not curves.bytes
    good = abs(linear - 1) <= NEAR and steep >= STEEP and not worse and not no_bytes
    outcome = CONFIRMED if good else REFUTED if linear >= STEEP or lead < 1 else UNCLEAR
    sentence = (
        f"Time grows with length to the power {figures(linear)} (linear) and {figures(steep)} (fused softmax); at "
        f"{last:,} tokens linear attention is {figures(lead)} times faster. "
        + (f"Linear is not ahead everywhere from {FROM} tokens on: {'; '.join(worse)}." if worse else "")
        + (f"From {FROM} tokens on it is the faster and the smaller one at every length." if good else "")
        + (" Memory was not measured: this system does not say." if no_bytes else "")
    ).strip()
    return Finding(outcome, sentence, numbers(curves), meaning(curves), [table(curves)], charts(curves))


def slower_or_larger(curves: Curves) -> list[str]:
    """Return where linear attention loses to a softmax at the lengths of the paper's figure."""
    losses = []
    for variant in (FUSED, MATRIX):
        for what, mine, other in (
            ("slower", curves.middle(LINEAR), curves.middle(variant)),
            ("larger", curves.bytes.get(LINEAR, {}), curves.bytes.get(variant, {})),
        ):
            lost = [length for length in other if length >= FROM and mine[length] >= other[length]]
            if lost:
                losses.append(f"{what} than {variant} at {', '.join(map(str, lost))}")
    return losses


def numbers(curves: Curves) -> list[Number]:
    last = max(curves.ms[FUSED])
    ratios = [a / b for a, b in zip(curves.ms[FUSED][last], curves.ms[LINEAR][last], strict=False)]
    lines = [even_number(curves)]
    lines += [
        number(f"log-log slope of time by length, {variant}", expected, curves.time_slopes(variant), "rounds")
        for variant, expected in ((LINEAR, "O(N)"), (FUSED, "O(N^2)"))
    ]
    lines.append(number(f"time of fused softmax / linear at {last:,} tokens, both passes", None, ratios, "rounds"))
    for variant in (FUSED, MATRIX):
        both = [length for length in curves.bytes.get(variant, {}) if length in curves.bytes.get(LINEAR, {})]
        if both:
            share = curves.bytes[variant][both[-1]] / curves.bytes[LINEAR][both[-1]]
            lines.append(Number(f"peak memory of {variant} / linear at {both[-1]:,} tokens", None, share))
    return lines


def even_number(curves: Curves) -> Number:
    what = "tokens from which linear attention is faster than fused softmax, forward and backward"
    evens = [even for even in curves.break_even(LINEAR, FUSED) if even is not None]
    shortest = min(curves.ms[FUSED])
    if evens and all(even <= shortest for even in evens):
        what += f" (or fewer: {shortest} was the shortest)"
    if len(evens) < curves.rounds:
        even = crossing(curves.middle(LINEAR), curves.middle(FUSED))
        return Number(what, None, float("nan") if even is None else even, unit="tokens")
    return number(what, None, evens, "rounds", "tokens")


def meaning(curves: Curves) -> str:
    even = crossing(curves.middle(LINEAR), curves.middle(FUSED))
    if even is None:
        return "Within the lengths measured, linear attention does not overtake the fused softmax on this machine."
    growth = curves.memory_slope(FUSED)
    text = (
        f"For training with sequences of more than about {even:,.0f} tokens on this machine, linear attention is the "
        "faster operation, and its lead grows with the length. "
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
    for length in curves.ms[LINEAR]:
        ms = [figures(curves.middle(variant).get(length)) for variant in variants]
        size = [curves.bytes.get(variant, {}).get(length) for variant in variants]
        body.append((f"{length:,}", *ms, *(figures(None if x is None else x / MIB) for x in size)))
    return Table(tuple(head), body, "One operation, forward and backward, per sample: median time, peak growth")


def charts(curves: Curves) -> list[Chart]:
    times = {
        variant: [[length, median(ms), min(ms), max(ms)] for length, ms in by.items()]
        for variant, by in curves.ms.items()
    }
    sizes = {variant: [[length, size / MIB] for length, size in by.items()] for variant, by in curves.bytes.items()}
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
    question="How do time and memory grow with the sequence, and from which length on is linear attention ahead?",
    statement=(
        "Figure 1: time and memory of linear attention grow linearly where softmax grows with the square, and linear "
        "is the fastest and smallest in every configuration from 512 to 65,536 tokens. The paper prints no point "
        "values and no break-even length; it measured on a GPU against a softmax that keeps the matrix of scores."
    ),
    rule=(
        "confirmed if the log-log slope of time over the last three lengths is 1 +- 0.15 for linear and at least 1.7 "
        "for fused softmax, and linear is faster and smaller than fused softmax and than the matrix written out at "
        "every common length from 512 tokens; refuted if linear's slope is 1.7 or more or fused softmax is faster at "
        "the longest common length; unclear between"
    ),
    units=units,
    read=read,
)
