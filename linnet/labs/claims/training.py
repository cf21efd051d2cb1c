"""One variant of a comparison: a model trained for a number of steps, its held-out curve, and its final score.

    metrics = train(seeded_model(model_config, seed), source, held_out, plan(steps=600, lr=1e-3, seed=seed), test=test)
    metrics == {"curve": [[step, loss], ...], "ending": "", "loss": ..., ..., "train_seconds": ..., "units": ...}

Variants of one seed see the same examples in the same order (linnet/train), so their differences are paired. A run that
diverges is a result: its "ending" is "diverged", and it has no score.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...models import Model, ModelConfig, build
from ...train import Event, Source, TrainConfig, TrainingDiverged, evaluate, fit
from ..core.claim import rounded

POINTS = 20  # of a curve


def plan(steps: int, *, points: int = POINTS, **how: Any) -> TrainConfig:
    """Return a TrainConfig for a claim: float32 throughout, with `points` evaluations, the last at the last step."""
    every = max(1, -(-steps // points))
    return TrainConfig(**{"steps": steps, "eval_every": every, "log_every": every, "autocast": "none", **how})


def seeded_model(config: ModelConfig, seed: int, build: Callable[[ModelConfig], Model] = build) -> Model:
    """Return the model with weights drawn from the seed; `build` may be another class."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build(config)


def train(
    model: Model,
    source: Source,
    held_out: Source,
    config: TrainConfig,
    *,
    test: Source | None = None,
    watched: str | Sequence[str] = "loss",
) -> dict[str, Any]:
    """Train in place; return metrics. Points of the curve are [step, *watched]; scores are on `test` or `held_out`."""
    names = [watched] if isinstance(watched, str) else watched
    curve: list[list[float]] = []

    def watch(event: Event) -> None:
        if event.kind == "eval":
            curve.append([event.step, *(rounded(event.values[name]) for name in names)])

    ending: dict[str, Any] = {"curve": curve, "ending": "", "parameters": model.parameter_count()}
    try:
        result = fit(model, source, held_out, config, on_event=watch)
    except TrainingDiverged:
        return {**ending, "ending": "diverged"}
    if result.stopped:  # half a run is not a result
        raise KeyboardInterrupt(f"{result.stopped} after step {result.step} of {config.steps}")
    scores = evaluate(model, held_out if test is None else test, batch_size=config.batch_size)
    spent = {"train_seconds": round(result.seconds, 3), "units": result.units}
    return {**ending, **{name: rounded(value) for name, value in scores.items()}, **spent}
