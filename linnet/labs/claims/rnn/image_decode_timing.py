"""Time the decoding of one image for each variant: seconds per step in every tenth of it, at the paper's model sizes.

    linear, engine    linnet's engine: native code where there is a library; the stream has read all earlier values
    linear, torch     the same step in plain torch, the state updated in place
    softmax, cached   the same plain torch with keys and values kept, the cache filled with random numbers

The weights are random, which does not change the time. The variants take turns, round by round, at the same positions.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from ....generate import Engine, sample_images
from ....models import ImageModel
from ...bench.decode_long import stream_engine
from ...bench.decode_race import softmax_model
from ...bench.decode_torch import LinearStep, SoftmaxStep
from ...core.claim import Config, rounded
from .generation import linear_model

ENGINE, TORCH, CACHE = "linear, engine", "linear, torch", "softmax, cached"
TENTHS = 10
AGE_STEPS, AGE_ROUNDS = 16, 5
Stepper = Callable[[int, int], float]  # first position, steps -> seconds


def time_image(config: Config) -> dict[str, Any]:
    """Return seconds per step by variant, tenth and round, and seconds of whole sampled images on the engine."""
    model, tokens = linear_model(config), config["tokens"]
    name, engine = stream_engine(model, "float32")
    drawn = torch.randint(model.levels, (tokens,), generator=torch.Generator().manual_seed(0))
    row, read = engine.add()[0], 0
    start = engine.fork(row)[0]
    plain = plain_steppers(config, drawn)
    fresh, variants = ({ENGINE: engine_stepper(engine, one, drawn), **plain} for one in (start, row))
    step_seconds: dict[str, list[list[float]]] = {variant: [] for variant in (ENGINE, *plain)}
    for first, steps in blocks(tokens, config["steps"]):
        if first > read:
            engine.read(drawn[read:first], row)
            read = first
        for variant, times in in_turns(variants, first, steps, config["rounds"]).items():
            step_seconds[variant].append(times)
    ages = by_age(fresh, variants, blocks(tokens, min(config["steps"], AGE_STEPS)))
    engine.remove([row, start])
    seconds = [whole_image(model, engine, tokens, seed) for seed in range(config["images"])]
    return {
        "engine": name,
        "threads": torch.get_num_threads(),
        "step_seconds": step_seconds,
        "ages": ages,
        "image_seconds": seconds,
    }


def blocks(tokens: int, steps: int) -> list[tuple[int, int]]:
    """Return (first position, steps) in the middle of every tenth of an image, at most the tenth itself."""
    edges = [round(i * tokens / TENTHS) for i in range(TENTHS + 1)]
    return [((a + b - min(steps, b - a)) // 2, min(steps, b - a)) for a, b in pairwise(edges)]


def plain_steppers(config: Config, drawn: Tensor) -> dict[str, Stepper]:
    model, tokens = linear_model(config), config["tokens"]
    inputs = drawn.split(1)
    linear, cached = LinearStep(model, 1), SoftmaxStep(softmax_model(model), 1, tokens)
    cached.fill(tokens)
    cached.advance = 1

    def stepper(one: LinearStep | SoftmaxStep) -> Stepper:
        def run(first: int, steps: int) -> float:
            one.position = first
            start = perf_counter()
            for x in inputs[first : first + steps]:
                one.step(x)
            return perf_counter() - start

        return run

    return {TORCH: stepper(linear), CACHE: stepper(cached)}


def engine_stepper(engine: Engine, row: int, drawn: Tensor) -> Stepper:
    """Return a stepper whose runs start at the position of `row` and leave it unchanged."""
    inputs = drawn.split(1)

    def run(first: int, steps: int) -> float:
        rows = engine.fork(row)
        start = perf_counter()
        for x in inputs[first : first + steps]:
            engine.step(x, rows)
        seconds = perf_counter() - start
        engine.remove(rows)
        return seconds

    return run


def in_turns(variants: dict[str, Stepper], first: int, steps: int, rounds: int) -> dict[str, list[float]]:
    """Return seconds per step, one number per round; a turn begins with an untimed step."""
    seconds: dict[str, list[float]] = {variant: [] for variant in variants}
    for _ in range(rounds):
        for variant, run in variants.items():
            run(first, 1)
            seconds[variant].append(rounded(run(first, steps) / steps))
    return seconds


def by_age(
    fresh: dict[str, Stepper], old: dict[str, Stepper], places: list[tuple[int, int]]
) -> dict[str, dict[str, list[float]]]:
    """Return seconds per step in the first tenth and in the last, in turn in every round."""
    ages: dict[str, dict[str, list[float]]] = {variant: {"first": [], "last": []} for variant in fresh}
    for _ in range(AGE_ROUNDS):
        for variant, times in ages.items():
            times["first"] += in_turns({variant: fresh[variant]}, *places[0], 1)[variant]
            times["last"] += in_turns({variant: old[variant]}, *places[-1], 1)[variant]
    return ages


def whole_image(model: ImageModel, engine: Engine, tokens: int, seed: int) -> float:
    start = perf_counter()
    sample_images(model, 1, length=tokens, engine=engine, seed=seed)
    return rounded(perf_counter() - start)
