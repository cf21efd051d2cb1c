"""T5: how much faster is the chunked kernel than the algorithm of the first CPU kernel, one token at a time?

    per token   s += k v^T, out = q s           chunked   tril(q k^T) v + q S inside a chunk, one product of matrices

Algorithm 1 of arXiv:2006.16236 as in its authors' library, reimplemented in linnet/labs/bench/per_token.c and compiled
with that library's flags, and again for this processor. Shapes: the library's own benchmark
(B = H = 10, T = 1000, F = 32, V = 64), and one long sequence (B = H = 1, T = 65,536, F = V = 64), which cannot be
split into tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any

import torch

from ...bench import per_token, timing
from ...bench.competitors import Competitor, ours
from ...bench.inputs import Inputs
from ...bench.race import call_of
from ...bench.reference import error, tolerance
from ...bench.sizes import BOTH, FORWARD
from ...bench.torch_forms import normalised
from ...core.claim import (
    NO,
    OPEN,
    YES,
    Chart,
    Claim,
    Config,
    Evidence,
    Finding,
    Number,
    Row,
    Setting,
    Table,
    Unit,
    figures,
    rounded,
    spread,
    unit,
    untested,
)
from ...core.intervals import median_interval
from ...core.licence import quiet

CHUNKED, TOKEN, TUNED = "chunked", "per token", "per token, tuned"
MANY, LONG = "many short", "one long"
SHAPES = {MANY: {"batch": 10, "length": 1000, "heads": 10, "features": 32, "values": 64}}
SHAPES[LONG] = {"batch": 1, "length": 65536, "heads": 1, "features": 64, "values": 64}
LEAST = {MANY: 2.0, LONG: 3.0}  # times faster: the rule
BACKWARD = "backward"
PASSES = (FORWARD, BACKWARD)
Calls = dict[str, Callable[[], Any]]


def units(setting: Setting) -> list[Unit]:
    rounds = {"smoke": 2, "quick": 5, "hour": 15, "paper": 25}[setting.budget]
    work = []
    for name, shape in SHAPES.items():
        sizes = {**shape, "length": 128, "batch": 1} if setting.budget == "smoke" else shape
        config = {"experiment": "per-token", "shape": name, **sizes, "rounds": rounds}
        work.append(unit(race, config, 1.0 + 0.7 * rounds, alone=True))
    return work


def race(config: Config) -> dict[str, Any]:
    """Return pass -> variant -> milliseconds of every round, or why it could not run."""
    given = Inputs(config["batch"], config["length"], config["heads"], config["features"], config["values"])
    try:
        variants = competitors()
    except per_token.Unavailable as missing:
        return {"missing": str(missing)}
    errors = {name: error("elu", given, one.layout, call_of(one, given, BOTH)()) for name, one in variants.items()}
    wrong = {name: off for name, off in errors.items() if not off <= tolerance("elu")}
    if wrong:
        raise RuntimeError(f"these disagree with the float64 reference and are not timed: {wrong}")
    forward: Calls = {name: call_of(one, given, FORWARD) for name, one in variants.items()}
    backward: Calls = {name: backward_of(variants[name], given) for name in (CHUNKED, TOKEN)}
    times = {FORWARD: timing.interleave(forward, config["rounds"])}
    times[BACKWARD] = timing.interleave(backward, config["rounds"])
    milliseconds = {
        of: {variant: [rounded(1000 * s) for s in seconds] for variant, seconds in by.items()}
        for of, by in times.items()
    }
    return {"ms": milliseconds, "threads": torch.get_num_threads(), "flags": " ".join(per_token.its_flags())}


def competitors() -> dict[str, Competitor]:
    """Return the competitors; raise Unavailable without a C compiler or the native library."""
    native = ours("elu")[0]
    if native.run is None:
        raise per_token.Unavailable(f"the native library is not there: {native.about}")
    products = {
        TOKEN: per_token.causal_product(per_token.its_flags()),
        TUNED: per_token.causal_product(per_token.TUNED),
    }
    slow = {name: Competitor(name, "", partial(normalised, product)) for name, product in products.items()}
    return {CHUNKED: native, **slow}


def backward_of(one: Competitor, given: Inputs) -> Callable[[], Any]:
    """Return the backward pass alone, of a forward pass done once."""
    q, k, v, g = given.given(one.layout, BOTH)
    assert one.run is not None
    out = one.run(q, k, v)
    return lambda: torch.autograd.grad(out, (q, k, v), g, retain_graph=True)


def read(rows: Sequence[Row]) -> Finding:
    missing = next((row["metrics"]["missing"] for row in rows if row["metrics"].get("missing")), None)
    if missing:
        return untested(f"the per-token algorithm could not be compared: {missing}")
    by_shape = {row["config"]["shape"]: row for row in rows}
    absent = [name for name in SHAPES if name not in by_shape]
    if absent:
        return untested(f"there is no row of the shape {' nor of '.join(absent)}")
    gains = {(name, of): speedup(by_shape[name], of, TOKEN) for name in SHAPES for of in PASSES}
    if any(by_shape[name]["config"]["length"] != shape["length"] for name, shape in SHAPES.items()):
        return untested("only sequences too short to time were run")
    reached = [(one.low or one.ours) >= LEAST[name] for (name, _), one in gains.items()]
    state = YES if all(reached) else NO if any(slower(one) for one in gains.values()) else OPEN
    sentence = (
        f"Against one token at a time the chunked kernel is {figures(gains[MANY, FORWARD].ours)} times faster forward "
        f"and {figures(gains[MANY, BACKWARD].ours)} backward on many short sequences (the rule asks for 2), and "
        f"{figures(gains[LONG, FORWARD].ours)} and {figures(gains[LONG, BACKWARD].ours)} on one long sequence (3)."
    )
    tuned = [speedup(by_shape[name], FORWARD, TUNED) for name in SHAPES]
    numbers = [gains[LONG, FORWARD], gains[LONG, BACKWARD], gains[MANY, FORWARD], gains[MANY, BACKWARD], *tuned]
    rounds = {f"{name}, {of}, {variant}": by_shape[name]["metrics"]["ms"][of][variant]
              for name in SHAPES for of in PASSES for variant in (TOKEN, CHUNKED)}  # fmt: skip
    count = min(map(len, rounds.values()))
    scope = f"100 x 1,000 and 1 x 65,536 tokens, {count} rounds, 2 passes"
    evidence = Evidence(state, controls=[quiet(rounds)], repeats=count, of="rounds")
    return Finding(evidence, sentence, numbers, scope, meaning(gains), [table(by_shape)], [chart(by_shape)])


def slower(ratio: Number) -> bool:
    return (ratio.ours if ratio.high is None else ratio.high) < 1


def speedup(row: Row, of: str, variant: str) -> Number:
    """Return time of `variant` / time of the chunked kernel, one ratio per round."""
    ms = row["metrics"]["ms"][of]
    ratios = [slow / fast for slow, fast in zip(ms[variant], ms[CHUNKED], strict=True)]
    config = row["config"]
    what = f"{of}: time {variant} / chunked, {config['batch'] * config['heads']} x {config['length']:,} tokens"
    return spread(what, None, median_interval(ratios), "rounds")


def meaning(speedups: Mapping[tuple[str, str], Number]) -> str:
    low, high = min(one.ours for one in speedups.values()), max(one.ours for one in speedups.values())
    if low <= 1:
        return "On this machine the chunked kernel is not always ahead of one token at a time; measure your own shape."
    return (
        f"The same function costs {figures(low)} to {figures(high)} times less here when it is computed in chunks. CPU "
        "timings of linear attention in the literature that used the first kernel are that much too pessimistic."
    )


def table(by_shape: Mapping[str, Row]) -> Table:
    body = []
    for name, row in by_shape.items():
        for of in PASSES:
            ms = row["metrics"]["ms"][of]
            for variant in ms:
                one = speedup(row, of, variant)
                body.append((f"{name}, {of}", variant, figures(median(ms[variant])), one.shown(), one.spread()))
    head = ("shape and pass", "algorithm", "ms", "time / chunked", "interval")
    return Table(head, body, "Median time, and ratios of rounds")


def chart(by_shape: Mapping[str, Row]) -> Chart:
    series = {
        variant: [
            [f"{name}, {of}", one.ours, *((one.low, one.high) if one.low is not None else ())]
            for name, row in by_shape.items()
            for of in PASSES
            if variant in row["metrics"]["ms"][of]
            for one in [speedup(row, of, variant)]
        ]
        for variant in (TOKEN, TUNED)
    }
    return Chart(
        "How many times slower one token at a time is", "shape and pass", "time / time of the chunked kernel", series,
        "bars", caption="Same function, same threads; feature map and denominator included. Tuned: for this processor.",
    )  # fmt: skip


CLAIM = Claim(
    name="per-token",
    number="T5",
    paper="rnn",
    statement="On a CPU, chunks are at least twice as fast as walking through the tokens one by one.",
    source=(
        "Algorithm 1 of the paper updates the state and reads it once per token, and so does its authors' CPU kernel. "
        "Computing in chunks is the same sum as products of matrices. The statement is ours; the paper gives no "
        "number."
    ),
    rule=(
        "holds if the whole interval of the median ratio of rounds is at least 2 (100 x 1,000 tokens) and 3 (1 x "
        "65,536), forward and backward, against the library's compiler flags; does not hold if the chunked kernel is "
        "slower somewhere with its whole interval; too close to call between; control: a quiet machine"
    ),
    answers={YES: "Yes, on short and long sequences", NO: "No, one by one is faster"},
    change="a shape or processor on which the first kernel is less than twice as slow",
    units=units,
    read=read,
    needs="a C compiler, for the algorithm to compare with",
)
