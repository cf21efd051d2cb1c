"""T3: does the backward pass keep every state, or none? Memory by length, measured in separate processes.

    keeping all states   T H F V numbers next to the inputs     cumulative sums   H F V, whatever the length

Section 3.3.1 of arXiv:2006.16236. Two measures for each length: the bytes that autograd holds between the passes in
addition to the inputs, and the peak growth of the process during both passes, with and without their results.
B = 1, H heads, T tokens, F features, V values:  q, k [B,T,H,F]   v [B,T,H,V]
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ....json_file import parse_json
from ...bench import timing
from ...bench.competitors import Competitor, ours
from ...bench.inputs import Inputs
from ...bench.race import call_of
from ...bench.sizes import BOTH
from ...bench.torch_forms import cumsum, elu_plus_one
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
    unit,
    untested,
)
from .slopes import slope

SUMS, NAIVE = "cumulative sums", "all states kept"
MOST = 0.05  # share of the states that the backward pass by sums may add
AT_SIZE = (0.9, 1.5)  # kept by the naive form / predicted
LINEAR = 0.15  # tolerance of the log-log slope of memory around 1
MIB = 2.0**20
CHILD = (
    "import json, sys, torch; torch.set_num_threads(1); "
    "from linnet.labs.claims.rnn.memory import measure, parse_json; "
    "print(json.dumps(measure(parse_json(sys.argv[1], 'the task', 'run it again'))))"
)


def units(setting: Setting) -> list[Unit]:
    lengths = {
        "smoke": {SUMS: [256, 512], NAIVE: [256, 512]},
        "quick": {SUMS: [512, 1024, 2048, 4096, 8192], NAIVE: [512, 1024, 2048]},
        "hour": {SUMS: [1024, 2048, 4096, 8192, 16384], NAIVE: [1024, 2048, 4096]},
        "paper": {SUMS: [1024, 4096, 16384, 65536], NAIVE: [1024, 4096, 16384]},
    }[setting.budget]
    sizes = {"heads": 8, "features": 32, "values": 32}
    return [
        unit(apart, {"experiment": "memory", "arm": variant, "lengths": lengths[variant], **sizes}, 4.0, alone=True)
        for variant in (SUMS, NAIVE)
    ]


def apart(config: Config) -> dict[str, Any]:
    """Run `measure` in a new process, free of memory left by other work."""
    command = [sys.executable, "-c", CHILD, json.dumps(config)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the process that measures memory ended with {done.returncode}: {done.stderr[-500:]}")
    metrics: dict[str, Any] = parse_json(done.stdout, "the measurement", "run it again")
    return metrics


def measure(config: Config) -> dict[str, Any]:
    """Return by length: bytes that autograd holds, growth of the process, bytes of out, dq, dk, dv."""
    one, sizes = competitor(config["arm"]), (config["heads"], config["features"], config["values"])
    call_of(one, Inputs(1, config["lengths"][0], *sizes), BOTH)()  # one-time costs of a first call
    metrics: dict[str, Any] = {"kept": [], "grown": [], "results": []}
    for length in config["lengths"]:
        given = Inputs(1, length, *sizes)
        metrics["kept"].append(held(one, given))
        result, grown = timing.extra_memory(call_of(one, given, BOTH))
        metrics["grown"].append(grown)
        metrics["results"].append(sum(x.numel() * x.element_size() for x in result))
        del result
    return metrics


def competitor(variant: str) -> Competitor:
    if variant == NAIVE:
        return Competitor(NAIVE, "", partial(cumsum, maps=(elu_plus_one, elu_plus_one)))
    native, torch_form = ours("elu")
    return native if native.run is not None else torch_form


def held(one: Competitor, given: Inputs) -> int:
    """Return the bytes that autograd keeps for the backward pass, each storage once, without the inputs."""
    q, k, v, _ = given.given(one.layout, BOTH)
    assert one.run is not None
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(x: Tensor) -> Tensor:
        kept[x.untyped_storage().data_ptr()] = x.untyped_storage()
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        one.run(q, k, v)
    for x in (q, k, v):
        kept.pop(x.untyped_storage().data_ptr(), None)
    return sum(storage.nbytes() for storage in kept.values())


def predicted(config: Config, length: int) -> int:
    """Return the bytes of a float32 state for every token."""
    return 4 * length * int(config["heads"]) * int(config["features"]) * int(config["values"])


def read(rows: Sequence[Row]) -> Finding:
    by_variant = {row["config"]["arm"]: row for row in rows}
    for variant in (SUMS, NAIVE):
        if variant not in by_variant:
            return untested(f"there is no row of {variant}")
        if None in by_variant[variant]["metrics"]["grown"]:
            return untested("this system does not say how much memory a process took (it is read from Linux's /proc)")
    sums, naive = by_variant[SUMS], by_variant[NAIVE]
    length = min(sums["config"]["lengths"][-1], naive["config"]["lengths"][-1])
    states = predicted(naive["config"], length)
    share = added(sums, length) / states
    size = at(naive, "kept", length) / states
    growth = slope(sums["config"]["lengths"], sums["metrics"]["grown"])
    naive_growth = slope(naive["config"]["lengths"], naive["metrics"]["kept"])
    as_predicted = AT_SIZE[0] <= size <= AT_SIZE[1] and abs(naive_growth - 1) <= LINEAR
    straight = abs(growth - 1) <= LINEAR
    state = YES if as_predicted and straight and share < MOST else NO if share >= 1 else OPEN
    sentence = (
        f"At {length:,} tokens keeping all states holds {at(naive, 'kept', length) / MIB:,.0f} MiB, {figures(size)} "
        f"times the predicted {states / MIB:,.0f}; cumulative sums add {100 * share:.1f} per cent of it to their "
        f"results (the rule allows 5), and their whole memory grows with length to the power {figures(growth)}."
    )
    numbers = [
        Number(
            f"memory added to the results, as a share of all states at {length:,} tokens", None, 100 * share, unit="%"
        ),
        Number("kept by autograd when all states are kept, times T H F V x 4 bytes", None, size),
        Number(
            "peak growth when all states are kept, times T H F V x 4 bytes", None, at(naive, "grown", length) / states
        ),
        Number("log-log slope by length of the whole memory of cumulative sums", "O(N)", growth),
    ]
    scope = f"one layer, {sums['config']['lengths'][0]:,} to {sums['config']['lengths'][-1]:,} tokens"
    advice = meaning(state, sums, naive, length)
    return Finding(Evidence(state), sentence, numbers, scope, advice, [table(by_variant)], [chart(by_variant)])


def at(row: Row, metric: str, length: int) -> float:
    return float(row["metrics"][metric][row["config"]["lengths"].index(length)])


def added(row: Row, length: int) -> float:
    """Return the peak bytes beyond the output and the three gradients, which every form needs."""
    return max(0.0, at(row, "grown", length) - at(row, "results", length))


def meaning(state: str, sums: Row, naive: Row, length: int) -> str:
    if state != YES:
        return "The backward pass takes other memory than derived here: measure before training on long sequences."
    times = at(naive, "grown", length) / at(sums, "grown", length)
    return (
        f"Long sequences can be trained on: one attention layer takes about {times:,.0f} times less memory at "
        f"{length:,} tokens than the same equation left to automatic differentiation, and twice the length takes "
        "twice the memory."
    )


def sizes_of(row: Row, length: int) -> tuple[float, ...]:
    sizes = at(row, "kept", length), at(row, "grown", length), added(row, length)
    return *sizes, predicted(row["config"], length)


def table(by_variant: dict[str, Row]) -> Table:
    body = [
        (variant, f"{length:,}", *(f"{size / MIB:,.1f}" for size in sizes_of(row, length)))
        for variant, row in by_variant.items()
        for length in row["config"]["lengths"]
    ]
    head = ("backward pass", "tokens", "kept, MiB", "peak growth, MiB", "added to results, MiB", "all states, MiB")
    return Table(head, body, "Memory of one forward and backward pass")


def chart(by_variant: dict[str, Row]) -> Chart:
    series = {
        variant: [[n, at(row, "grown", n) / MIB] for n in row["config"]["lengths"]]
        for variant, row in by_variant.items()
    }
    naive = by_variant[NAIVE]["config"]
    series["predicted states"] = [[n, predicted(naive, n) / MIB] for n in naive["lengths"]]
    return Chart(
        "Peak memory of one forward and backward pass", "tokens", "MiB", series, log_x=True, log_y=True,
        caption="Results included. Both grow in proportion to the length; what differs is the factor F V / (F + V).",
    )  # fmt: skip


CLAIM = Claim(
    name="memory",
    number="T3",
    paper="rnn",
    statement="Linear attention can be trained without keeping a state for every token.",
    source=(
        "With gradients as cumulative sums, training takes memory O(N max(C, M)) where automatic differentiation keeps "
        "every state, O(N C M). The paper gives no bytes for it."
    ),
    rule=(
        "holds if keeping all states holds 0.9 to 1.5 times T H F V x 4 bytes and grows linearly, cumulative sums add "
        "less than 5 per cent of that to their results, and their log-log slope is within 0.15 of 1; does not hold if "
        "they add as much as all states; too close to call between"
    ),
    answers={YES: "Yes, with a small share of their memory", NO: "No, as much memory is taken"},
    change="a length at which the backward pass takes memory in proportion to all states",
    units=units,
    read=read,
)
