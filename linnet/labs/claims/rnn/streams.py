"""Time a step of many streams for each variant, at the beginning and near the end of an image.

    linear, engine and torch   the state of each stream is updated; on the engine it has read all earlier values
    softmax, cached            keys and values of each stream; the cache is filled with random numbers

The variants are those of image_decode_timing.py. The cache is kept below `cache_bytes`, which limits its streams.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ....generate import Engine
from ....models import ImageModel
from ...bench import timing
from ...bench.decode_long import stream_engine
from ...bench.decode_race import TURN, softmax_model
from ...bench.decode_torch import LinearStep, SoftmaxStep
from ...core.claim import Config, rounded
from .generation import linear_model
from .image_decode_timing import CACHE, ENGINE, TORCH

EARLY, LATE = "early", "late"
PLACES = (EARLY, LATE)
WINDOW = 128  # values from a place on; a cached step there sees on average half of them in addition to the earlier ones


def measure(config: Config) -> dict[str, Any]:
    """Return seconds per step by variant and place, round by round, and the bytes of a stream at the end."""
    model, tokens, batch = linear_model(config), config["tokens"], config["batch"]
    name, engine = stream_engine(model, "float32")
    places = dict(zip(PLACES, (0, max(1, tokens - WINDOW)), strict=True))
    inputs = torch.randint(model.levels, (batch,), generator=torch.Generator().manual_seed(0))
    calls = engine_calls(engine, model, places, inputs) | linear_calls(model, places, inputs)
    cached, streams = cache(config, model)
    calls |= cache_calls(cached, tokens, places, inputs[:streams])
    seconds = timing.interleave(calls, config["rounds"], shortest=TURN, warm=1)
    cached.hold(tokens)
    held = {"linear": engine.state(engine.rows[:1]).nbytes, "cached": cached.state_bytes // streams}
    times = {
        variant: {at: [*map(rounded, seconds[f"{variant} {at}"])] for at in PLACES}
        for variant in (ENGINE, TORCH, CACHE)
    }
    return {
        "engine": name,
        "threads": torch.get_num_threads(),
        "cached_streams": streams,
        "bytes": held,
        "step_seconds": times,
    }


def engine_calls(
    engine: Engine, model: ImageModel, places: Mapping[str, int], inputs: Tensor
) -> dict[str, Callable[[], Any]]:
    """Return steps of streams that have read all values before each place."""
    calls: dict[str, Callable[[], Any]] = {}
    for place, first in places.items():
        (row,) = engine.add()
        if first:
            engine.read(torch.arange(first) % model.levels, row)
        rows = [row, *(engine.fork(row, len(inputs) - 1) if len(inputs) > 1 else [])]
        calls[f"{ENGINE} {place}"] = partial(engine.step, inputs, rows)
    return calls


def linear_calls(model: ImageModel, places: Mapping[str, int], inputs: Tensor) -> dict[str, Callable[[], Any]]:
    calls: dict[str, Callable[[], Any]] = {}
    for place, first in places.items():
        one = LinearStep(model, len(inputs))
        one.position = first
        calls[f"{TORCH} {place}"] = partial(one.step, inputs)
    return calls


def cache(config: Config, model: ImageModel) -> tuple[SoftmaxStep, int]:
    """Return a filled cache and its number of streams: `batch`, or as many as fit."""
    other = softmax_model(model)
    streams = max(1, min(config["batch"], config["cache_bytes"] // other.state_bytes(config["tokens"])))
    cached = SoftmaxStep(other, streams, config["tokens"])
    cached.fill(config["tokens"])
    return cached, streams


def cache_calls(
    cached: SoftmaxStep, tokens: int, places: Mapping[str, int], inputs: Tensor
) -> dict[str, Callable[[], Any]]:
    def at(length: int) -> None:
        cached.hold(length)
        cached.step(inputs)

    middle = min(WINDOW, tokens) // 2
    return {f"{CACHE} {place}": partial(at, min(tokens, first + middle)) for place, first in places.items()}
