"""One stream for very long: does a token cost the same, in time and in memory, after millions of others?

    soak    one stream is stepped N times; at 100, 1,000, ... tokens it takes turns with a stream that just began
    curve   state and time per token at log-spaced positions, beside softmax attention over as many tokens

Old and new stream alternate in blocks of steps in one engine, so what differs between them is their age alone. The
linear stream of a curve is really run to each position; the cache of softmax is filled with random numbers to it.
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

from ..errors import BackendError
from ..generate import Engine, open_engine
from ..models import ImageModel
from .decode_race import EAGER, native_engine, softmax_model
from .decode_torch import SoftmaxStep, cache_bytes
from .race import too_large

FIRST = 100  # the first token that is looked at
BLOCK, TURNS = 16, 25  # steps before old and new take turns, and how often they do
CURVE_STEPS, CURVE_WARM, PER_DECADE = 4, 12, 4
FLAT_RATIO, FLAT_BYTES = 1.05, 4 << 20  # processor time old / new, growth of the process: above is not flat
STATM = Path("/proc/self/statm")
Report = Callable[[float], None]  # how much of it is done, 0 to 1


def resident() -> int | None:
    """Bytes of this process in memory (Linux; None elsewhere)."""
    return int(STATM.read_text().split()[1]) * getpagesize() if STATM.is_file() else None


def stream_engine(model: ImageModel, weights: str) -> tuple[str, Engine]:
    """The native engine, or torch's where there is none, and its name."""
    try:
        return f"linnet {weights}", native_engine(model, weights)
    except BackendError:
        return EAGER, open_engine(model, backend="torch")


class Stream:
    """A row of an engine that is fed random tokens over and over."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.rows, self.position = engine, engine.join(), 0
        drawn = torch.randint(int(engine.model.config.vocab_size), (1024,), generator=torch.Generator().manual_seed(0))
        self.inputs: list[Tensor] = list(drawn.split(1))
        self.answer = torch.empty(0)

    def run(self, steps: int) -> float:
        """Seconds that many steps took."""
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
    """Step one stream to `tokens`, and a little further for the last comparison."""
    torch.set_num_threads(threads)
    name, engine = stream_engine(model, weights)
    old = Stream(engine)
    row: dict[str, Any] = {"engine": name, "threads": threads, "tokens": tokens, "resident_bytes": resident()}
    found: list[dict[str, Any]] = []
    for token in decades(tokens):
        steps = token - old.position
        seconds = old.run_to(token, lambda position: report(position / tokens))
        since = {"us_per_token_since": seconds / steps * 1e6 if steps > 0 else None}
        found.append({"token": token, **compare(old), **since, "resident_bytes": resident()})
    sizes = [mark["resident_bytes"] for mark in found]
    growth = None if sizes[0] is None else sizes[-1] - sizes[0]
    worst = max(mark["ratio"] for mark in found)
    row |= {"marks": found, "worst_ratio": worst, "growth_bytes": growth, "state_bytes": engine.state(old.rows).nbytes}
    return row | {"finite": bool(torch.isfinite(old.answer).all()), "flat": is_flat(worst, growth)}


def is_flat(worst_ratio: float, growth: int | None) -> bool:
    return worst_ratio <= FLAT_RATIO and (growth is None or growth <= FLAT_BYTES)


def decades(tokens: int) -> list[int]:
    """100, 1,000, ... below `tokens`, then `tokens`."""
    found = []
    token = FIRST
    while token < tokens:
        found.append(token)
        token *= 10
    return [*found, tokens]


def compare(old: Stream) -> dict[str, float]:
    """Microseconds per token of this stream and of one that begins now, in turns; medians of the blocks.

    The ratio is that of processor time, which other programs hardly change; that of the clock stands beside it.
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
    new.engine.leave(new.rows)
    found = {f"{name}_us": median(times) for name, times in clock.items()}
    found |= {f"{name}_cpu_us": median(times) for name, times in processor.items()}
    return found | {
        "ratio": found["old_cpu_us"] / found["new_cpu_us"],
        "ratio_clock": found["old_us"] / found["new_us"],
    }


def curve(
    model: ImageModel, *, context: int, threads: int, weights: str, rounds: int, report: Report = lambda done: None
) -> dict[str, Any]:
    """Points of one linear stream, and of softmax attention where its cache fits in memory."""
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
    """Log-spaced from 100 to `context`, both included."""
    decades = torch.tensor(context / FIRST).log10().item()
    count = max(1, round(decades * PER_DECADE))
    return sorted({round(FIRST * 10 ** (decades * i / count)) for i in range(count + 1)})


def in_turns(stream: Stream, cache: SoftmaxStep | None, token: int, rounds: int) -> dict[str, float | None]:
    """Median seconds per token from this position on; the linear stream moves on by a few dozen tokens.

    Each turn begins with steps that are not timed: they bring back the weights that the other one drove out of cache.
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
