"""One arm of a comparison: a model trained for so many steps, its held-out curve, and its score at the last step.

    metrics = train(made(model_config, seed), source, held_out, plan(steps=600, lr=1e-3, seed=seed), test=test)
    metrics == {"curve": [[step, loss], ...], "ending": "", "loss": ..., ..., "train_seconds": ..., "units": ...}

Arms of one seed see the same examples in the same order (linnet/train), so their differences are paired. A run that
diverges is a result: its ending says so, and it has no score.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...models import Model, ModelConfig, build
from ...train import Event, Source, TrainConfig, TrainingDiverged, evaluate, fit
from .claim import rounded

POINTS = 20  # of a curve


def plan(steps: int, *, points: int = POINTS, **how: Any) -> TrainConfig:
    """A TrainConfig for a claim: float32 throughout, and `points` evaluations on the way, the last step among them."""
    every = max(1, -(-steps // points))
    return TrainConfig(**{"steps": steps, "eval_every": every, "log_every": every, "autocast": "none", **how})


def made(config: ModelConfig, seed: int, build: Callable[[ModelConfig], Model] = build) -> Model:
    """The model with weights drawn from the seed; `build` may be a class of its own."""
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
    """Train in place. Points of the curve are [step, *watched]; scores are of all of `test`, by default `held_out`."""
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
    if result.stopped:  # half a run is no result
        raise KeyboardInterrupt(f"{result.stopped} after step {result.step} of {config.steps}")
    scores = evaluate(model, held_out if test is None else test, batch_size=config.batch_size)
    spent = {"train_seconds": round(result.seconds, 3), "units": result.units}
    return {**ending, **{name: rounded(value) for name, value in scores.items()}, **spent}
