"""One image walked through, arm beside arm: seconds per step in every tenth of it, at the paper's model sizes.

    linear, engine    linnet's engine: native code where there is a library; the stream has read all values before
    linear, torch     the same step in plain torch, the state altered in place
    softmax, cached   the same plain torch with keys and values kept, the cache filled with random numbers

Random weights: what they are does not change the time. The arms take turns, round by round, at the same positions.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from ....bench.decode_long import stream_engine
from ....bench.decode_race import softmax_model
from ....bench.decode_torch import LinearStep, SoftmaxStep
from ....generate import Engine, sample_images
from ....models import ImageModel
from ..claim import Config, rounded
from .generation import linear_model

ENGINE, TORCH, CACHE = "linear, engine", "linear, torch", "softmax, cached"
TENTHS = 10
AGE_STEPS, AGE_ROUNDS = 16, 5
Stepper = Callable[[int, int], float]  # first position, steps -> seconds


def walk(config: Config) -> dict[str, Any]:
    """Seconds per step by arm, tenth and round; and of whole images with their values drawn, on the engine."""
    model, tokens = linear_model(config), config["tokens"]
    name, engine = stream_engine(model, "float32")
    drawn = torch.randint(model.levels, (tokens,), generator=torch.Generator().manual_seed(0))
    row, read = engine.join()[0], 0
    start = engine.fork(row)[0]
    plain = plain_arms(config, drawn)
    fresh, arms = ({ENGINE: engine_arm(engine, one, drawn), **plain} for one in (start, row))
    found: dict[str, list[list[float]]] = {arm: [] for arm in (ENGINE, *plain)}
    for first, steps in blocks(tokens, config["steps"]):
        if first > read:
            engine.read(drawn[read:first], row)
            read = first
        for arm, times in in_turns(arms, first, steps, config["rounds"]).items():
            found[arm].append(times)
    ages = by_age(fresh, arms, blocks(tokens, min(config["steps"], AGE_STEPS)))
    engine.leave([row, start])
    seconds = [whole_image(model, engine, tokens, seed) for seed in range(config["images"])]
    return {
        "engine": name,
        "threads": torch.get_num_threads(),
        "step_seconds": found,
        "ages": ages,
        "image_seconds": seconds,
    }


def blocks(tokens: int, steps: int) -> list[tuple[int, int]]:
    """In the middle of every tenth of an image: the first position, and how many steps; at most the tenth itself."""
    edges = [round(i * tokens / TENTHS) for i in range(TENTHS + 1)]
    return [((a + b - min(steps, b - a)) // 2, min(steps, b - a)) for a, b in pairwise(edges)]


def plain_arms(config: Config, drawn: Tensor) -> dict[str, Stepper]:
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


def engine_arm(engine: Engine, row: int, drawn: Tensor) -> Stepper:
    """Each run goes on from where `row` is, and leaves it there."""
    inputs = drawn.split(1)

    def run(first: int, steps: int) -> float:
        rows = engine.fork(row)
        start = perf_counter()
        for x in inputs[first : first + steps]:
            engine.step(x, rows)
        seconds = perf_counter() - start
        engine.leave(rows)
        return seconds

    return run


def in_turns(arms: dict[str, Stepper], first: int, steps: int, rounds: int) -> dict[str, list[float]]:
    """Seconds per step, one number for each round; a turn begins with a step that does not count."""
    found: dict[str, list[float]] = {arm: [] for arm in arms}
    for _ in range(rounds):
        for arm, run in arms.items():
            run(first, 1)
            found[arm].append(rounded(run(first, steps) / steps))
    return found


def by_age(
    fresh: dict[str, Stepper], old: dict[str, Stepper], places: list[tuple[int, int]]
) -> dict[str, dict[str, list[float]]]:
    """Seconds per step in the first tenth and in the last, one after the other in every round."""
    found: dict[str, dict[str, list[float]]] = {arm: {"first": [], "last": []} for arm in fresh}
    for _ in range(AGE_ROUNDS):
        for arm, times in found.items():
            times["first"] += in_turns({arm: fresh[arm]}, *places[0], 1)[arm]
            times["last"] += in_turns({arm: old[arm]}, *places[-1], 1)[arm]
    return found


def whole_image(model: ImageModel, engine: Engine, tokens: int, seed: int) -> float:
    start = perf_counter()
    sample_images(model, 1, length=tokens, engine=engine, seed=seed)
    return rounded(perf_counter() - start)
