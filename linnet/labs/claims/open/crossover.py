"""The crossover of linear and softmax attention: its one definition, its one measurement. T13 judges it, T4 uses it.

    crossover = fewest tokens from which one causal attention operation (forward and backward, 4 heads of width 64, the
                same number of tokens per batch at every length) is faster with linear attention (elu + 1) than with
                torch's fused softmax, and stays faster at every longer length measured

Rounds take turns, so that both sides of a ratio see the same machine; each round has its own crossover, interpolated in
logarithms between two measured lengths. Softmax does N / 2 products per token, linear attention a fixed number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import exp, inf, log
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from ...bench import timing
from ...bench.checks import cores
from ...bench.competitors import SDPA, Competitor, ours
from ...bench.inputs import Inputs
from ...bench.race import call_of
from ...bench.sizes import BOTH
from ...core.claim import Config, Number, Row, Unit, rounded, spread, unit
from ...core.intervals import Interval, median_interval

SPEED = "short speed"
SHAPE: dict[str, int] = {"heads": 4, "head_dim": 64}
LENGTHS = [8, 16, 32, 64, 128, 256, 512]
TOKENS = 4096  # of a batch, at every length
ROUNDS = {"smoke": 3, "quick": 7, "hour": 15, "paper": 31}
Calls = Callable[[Config, int], dict[str, Callable[[], Any]]]


def crossover_unit(budget: str, threads: int = 2) -> Unit:
    """Return the measurement of a budget; claims that name the crossover share its row."""
    if budget == "smoke":
        return timed("op", op_calls, SHAPE, [8, 16], 64, ROUNDS[budget], 1, 0.3)
    seconds = (0.4 if threads > 1 else 0.7) * ROUNDS[budget]
    return timed("op", op_calls, SHAPE, LENGTHS, TOKENS, ROUNDS[budget], threads, seconds)


def timed(
    what: str,
    calls_of: Calls,
    sizes: Mapping[str, int],
    lengths: Sequence[int],
    tokens: int,
    rounds: int,
    threads: int,
    seconds: float,
) -> Unit:
    """Return the work that times "linear" and "softmax" of `calls_of` at every length."""
    config = {"experiment": SPEED, "what": what, "lengths": [*lengths], "tokens": tokens, "rounds": rounds, **sizes}
    return unit(partial(time_rounds, calls_of), {**config, "threads": threads}, seconds, alone=True)


def time_rounds(calls_of: Calls, config: Config) -> dict[str, Any]:
    """Return {"linear", "softmax"}: for each length the seconds of every round."""
    torch.set_num_threads(min(config["threads"], cores()))
    calls: dict[str, Callable[[], Any]] = {}
    for length in config["lengths"]:
        calls |= {f"{name} {length}": call for name, call in calls_of(config, length).items()}
    times = timing.interleave(calls, config["rounds"], warm=1)
    return {
        name: [[rounded(seconds) for seconds in times[f"{name} {length}"]] for length in config["lengths"]]
        for name in ("linear", "softmax")
    }


def op_calls(config: Config, length: int) -> dict[str, Callable[[], Any]]:
    """Return forward and backward of the two operations, each in its fastest layout."""
    width = config["head_dim"]
    given = Inputs(config["tokens"] // length, length, config["heads"], width, width)
    softmax = Competitor(SDPA, "", partial(scaled_dot_product_attention, is_causal=True))
    linear = next(one for one in ours("elu") if one.run is not None)  # native if it is built
    return {"linear": call_of(linear, given, BOTH), "softmax": call_of(softmax, given, BOTH)}


def deciding(rows: Sequence[Row]) -> Row | None:
    """Return the row that the crossover is read from: of the operation, with the most threads."""
    timings = [row for row in rows if row["config"].get("experiment") == SPEED and row["config"]["what"] == "op"]
    return max(timings, key=lambda row: int(row["config"]["threads"]), default=None)


def ratios_of(row: Row) -> dict[int, list[float]]:
    """Return length -> linear / softmax of every round."""
    pairs = zip(row["config"]["lengths"], row["metrics"]["linear"], row["metrics"]["softmax"], strict=True)
    return {n: [a / b for a, b in zip(linear, softmax, strict=True)] for n, linear, softmax in pairs}


def rounds_of(row: Row) -> dict[str, list[float]]:
    """Return the seconds of every round by attention and length, for the control that the machine was quiet."""
    return {
        f"{name} at {n} tokens": seconds
        for name in ("linear", "softmax")
        for n, seconds in zip(row["config"]["lengths"], row["metrics"][name], strict=True)
    }


def crossing(ratios: Mapping[int, float]) -> float:
    """Return the length from which the ratio stays below 1.

    The shortest length where it is below 1 everywhere (the crossover is there or earlier), infinity where the longest
    length is not below 1.
    """
    lengths = sorted(ratios)
    slow = [n for n in lengths if ratios[n] >= 1]
    if not slow:
        return float(lengths[0])
    if slow[-1] == lengths[-1]:
        return inf
    low, high = slow[-1], lengths[lengths.index(slow[-1]) + 1]
    share = log(ratios[low]) / (log(ratios[low]) - log(ratios[high]))
    return exp(log(low) + share * (log(high) - log(low)))


def crossover(row: Row) -> Interval:
    """Return the median of the rounds' crossovers and its interval."""
    ratios = ratios_of(row)
    rounds = min(len(values) for values in ratios.values())
    return median_interval([crossing({n: values[turn] for n, values in ratios.items()}) for turn in range(rounds)])


def crossover_number(row: Row) -> Number:
    """Return the crossover as every claim shows it."""
    measured, lengths = crossover(row), row["config"]["lengths"]
    what = "tokens from which linear attention is faster than fused softmax and stays so"
    if measured.mean == inf:
        return Number(f"{what}: none up to {max(lengths)}", None, inf, unit="tokens")
    if measured.mean <= min(lengths):
        what += f" (or fewer: {min(lengths)} is the shortest timed)"
    return spread(what, None, measured, "rounds", "tokens")


def in_words(measured: Interval, lengths: Sequence[int]) -> str:
    """Return where linear attention overtakes: "from 47 tokens", or that it does so at every length or at none."""
    if measured.mean == inf:
        return f"at none of the lengths up to {max(lengths):,} tokens"
    if measured.mean <= min(lengths):
        return f"from {min(lengths)} tokens, the shortest length timed, or fewer"
    return f"from {measured.mean:.0f} tokens"
