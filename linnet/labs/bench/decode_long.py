"""One very long stream: does a token cost the same, in time and in memory, after millions of others?

    soak    one stream takes N steps; at 100, 1,000, ... tokens it alternates with a new stream
    curve   state and time per token at log-spaced positions, compared with softmax attention over as many tokens

Old and new stream alternate in blocks of steps on one engine, so they differ only in age. The linear stream of a curve
actually runs to each position; the softmax cache is filled with random numbers up to it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from resource import getpagesize
from statistics import median
from time import perf_counter, process_time
from typing import Any

import torch
from torch import Tensor

from ...errors import BackendError
from ...generate import Engine, open_engine
from ...models import ImageModel
from .decode_race import EAGER, native_engine, softmax_model
from .decode_torch import SoftmaxStep, cache_bytes
from .race import too_large

FIRST = 100  # the first measured token
BLOCK, TURNS = 16, 25  # steps per turn, and number of turns
CURVE_STEPS, CURVE_WARM, PER_DECADE = 4, 12, 4
FLAT_RATIO, FLAT_BYTES = 1.05, 4 << 20  # limits on processor time old / new, and on the growth of the process
STATM = Path("/proc/self/statm")
Report = Callable[[float], None]  # fraction done, 0 to 1


def resident() -> int | None:
    """Return the resident bytes of this process (Linux; None elsewhere)."""
    return int(STATM.read_text().split()[1]) * getpagesize() if STATM.is_file() else None


def stream_engine(model: ImageModel, weights: str) -> tuple[str, Engine]:
    """Return the name and the native engine, or the torch engine where there is none."""
    try:
        return f"linnet {weights}", native_engine(model, weights)
    except BackendError:
        return EAGER, open_engine(model, backend="torch")


class Stream:
    """A row of an engine that steps on random tokens."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.rows, self.position = engine, engine.add(), 0
        drawn = torch.randint(int(engine.model.config.vocab_size), (1024,), generator=torch.Generator().manual_seed(0))
        self.inputs: list[Tensor] = list(drawn.split(1))
        self.answer = torch.empty(0)

    def run(self, steps: int) -> float:
        """Take this many steps; return their seconds."""
        step, inputs, rows, first = self.engine.step, self.inputs, self.rows, self.position
        start = perf_counter()
        for i in range(first, first + steps):
            self.answer = step(inputs[i % 1024], rows)
        self.position += steps
        return perf_counter() - start

    def run_to(self, position: int, report: Callable[[int], None]) -> float:
        seconds = 0.0
        while self.position < position:
            seconds += self.run(min(1000, position - self.position))
            report(self.position)
        return seconds


def soak(
    model: ImageModel, *, tokens: int, threads: int, weights: str, report: Report = lambda done: None
) -> dict[str, Any]:
    """Step one stream to `tokens`, and slightly further for the last comparison."""
    torch.set_num_threads(threads)
    name, engine = stream_engine(model, weights)
    old = Stream(engine)
    row: dict[str, Any] = {"engine": name, "threads": threads, "tokens": tokens, "resident_bytes": resident()}
    marks: list[dict[str, Any]] = []
    for token in decades(tokens):
        steps = token - old.position
        seconds = old.run_to(token, lambda position: report(position / tokens))
        since = {"us_per_token_since": seconds / steps * 1e6 if steps > 0 else None}
        marks.append({"token": token, **compare(old), **since, "resident_bytes": resident()})
    sizes = [mark["resident_bytes"] for mark in marks]
    growth = None if sizes[0] is None else sizes[-1] - sizes[0]
    worst = max(mark["ratio"] for mark in marks)
    row |= {"marks": marks, "worst_ratio": worst, "growth_bytes": growth, "state_bytes": engine.state(old.rows).nbytes}
    return row | {"finite": bool(torch.isfinite(old.answer).all()), "flat": is_flat(worst, growth)}


def is_flat(worst_ratio: float, growth: int | None) -> bool:
    return worst_ratio <= FLAT_RATIO and (growth is None or growth <= FLAT_BYTES)


def decades(tokens: int) -> list[int]:
    """Return 100, 1,000, ... below `tokens`, then `tokens`."""
    marks = []
    token = FIRST
    while token < tokens:
        marks.append(token)
        token *= 10
    return [*marks, tokens]


def compare(old: Stream) -> dict[str, float]:
    """Time this stream and a new one in turns; return microseconds per token, medians of the blocks.

    The ratio is that of processor time, which other programs hardly affect; `ratio_clock` is that of wall time.
    """
    new = Stream(old.engine)
    clock: dict[str, list[float]] = {"old": [], "new": []}
    processor: dict[str, list[float]] = {"old": [], "new": []}
    for turn in range(TURNS):
        pair = [("old", old), ("new", new)]
        for name, stream in pair if turn % 2 else pair[::-1]:
            start = process_time()
            clock[name].append(stream.run(BLOCK) / BLOCK * 1e6)
            processor[name].append((process_time() - start) / BLOCK * 1e6)
    new.engine.remove(new.rows)
    times_us = {f"{name}_us": median(times) for name, times in clock.items()}
    times_us |= {f"{name}_cpu_us": median(times) for name, times in processor.items()}
    return times_us | {
        "ratio": times_us["old_cpu_us"] / times_us["new_cpu_us"],
        "ratio_clock": times_us["old_us"] / times_us["new_us"],
    }


def curve(
    model: ImageModel, *, context: int, threads: int, weights: str, rounds: int, report: Report = lambda done: None
) -> dict[str, Any]:
    """Return points of one linear stream, and of softmax attention if its cache fits in memory."""
    torch.set_num_threads(threads)
    name, engine = stream_engine(model, weights)
    stream = Stream(engine)
    reason = too_large(cache_bytes(model, 1, context))
    cache = None if reason else SoftmaxStep(softmax_model(model), 1, context)
    if cache is not None:
        cache.fill(context)
    points = []
    for token in positions(context):
        stream.run_to(token, lambda position: report(position / context))
        seconds = in_turns(stream, cache, token, rounds)
        held = {"linear": engine.state(stream.rows).nbytes, "softmax": cache and cache.state_bytes}
        points.append({"token": token, "seconds": seconds, "state_bytes": held})
    return {"engine": name, "threads": threads, "context": context, "left_out": reason, "points": points}


def positions(context: int) -> list[int]:
    """Return log-spaced positions from 100 to `context`, both included."""
    decades = torch.tensor(context / FIRST).log10().item()
    count = max(1, round(decades * PER_DECADE))
    return sorted({round(FIRST * 10 ** (decades * i / count)) for i in range(count + 1)})


def in_turns(stream: Stream, cache: SoftmaxStep | None, token: int, rounds: int) -> dict[str, float | None]:
    """Return median seconds per token at this position; the linear stream advances by a few dozen tokens.

    Each turn begins with untimed steps that bring the weights back into the cache.
    """
    linear, softmax = [], []
    if cache is not None:
        cache.hold(token)
    for _ in range(rounds):
        stream.run(CURVE_WARM)
        linear.append(stream.run(CURVE_STEPS) / CURVE_STEPS)
        if cache is not None:
            cache.step(stream.inputs[0])
            start = perf_counter()
            for x in stream.inputs[:CURVE_STEPS]:
                cache.step(x)
            softmax.append((perf_counter() - start) / CURVE_STEPS)
    return {"linear": median(linear), "softmax": median(softmax) if softmax else None}
