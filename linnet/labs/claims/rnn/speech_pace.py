"""Time a training step of each network of T11 on utterances of one length, alone and in turns.

    step = forward, CTC loss, backward and AdamW on `frames` frames, as frames / length utterances

The paper's utterances have 800 frames on average. Networks: the variants of speech.py at their sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ....models import ModelConfig, preset
from ....native.memory import keep_freed
from ....train import make_optimizer
from ...bench.timing import interleave
from ...core.claim import Config, Row, Unit, rounded, unit
from ...core.intervals import Interval, median_interval
from ..training import plan, seeded_model
from .variants import mixer_of

VARIANTS = ("softmax", "linear", "lsh", "bilstm")
FRAMES = 800  # the paper's mean utterance
LENGTHS = [100, FRAMES]


def pace(model: Config, rounds: int, seconds: float, lengths: Sequence[int] = LENGTHS) -> Unit:
    sizes = {"lengths": list(lengths), "frames": max(lengths), "rounds": rounds}
    return unit(paces, {"experiment": "speech-pace", **sizes, "model": model}, seconds, alone=True)


def shape_of(variant: str, length: int, model: Config) -> ModelConfig:
    """Return the configuration of a variant; without sizes, the paper's."""
    if variant == "bilstm":
        own = {name: value for name, value in model.items() if name not in ("n_heads", "d_ff")}
        return preset("speech-bilstm", **own)
    return preset("speech", **mixer_of(variant, length), **({**model, "norm_place": "pre"} if model else {}))


def paces(config: Config) -> dict[str, Any]:
    """Return the seconds of a training step for each length and variant, one per round; `frames` frames per step."""
    keep_freed()
    by_length = {}
    for length in config["lengths"]:
        calls = {variant: stepper(variant, length, config["frames"] // length, config["model"]) for variant in VARIANTS}
        taken = interleave(calls, config["rounds"])
        by_length[str(length)] = {variant: [rounded(one) for one in seconds] for variant, seconds in taken.items()}
    return {"seconds": by_length}


def stepper(variant: str, length: int, rows: int, model: Config) -> Callable[[], Any]:
    """Return one step on random frames with one phone per eight frames."""
    draw = torch.Generator().manual_seed(0)
    network = seeded_model(
        shape_of(variant, length, {"n_layers": 1 if variant == "bilstm" else 3, **model} if model else {}), 0
    )
    optimizer = make_optimizer(network, plan(1, lr=1e-4))
    batch = {
        "features": torch.randn(rows, length, network.config.input_dim, generator=draw),
        "lengths": torch.full((rows,), length),
        "targets": torch.randint(1, network.config.vocab_size, (rows, length // 8), generator=draw),
        "target_lengths": torch.full((rows,), length // 8),
    }

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        total, count = network.loss(batch)
        (total / count).backward()
        optimizer.step()

    return step


def timed(rows: Sequence[Row], length: int = FRAMES) -> dict[str, list[float]]:
    """Return variant -> seconds of each round."""
    measured = [row["metrics"]["seconds"] for row in rows if row["config"]["experiment"] == "speech-pace"]
    return dict(measured[0].get(str(length), {})) if measured else {}


def speed_ratio(rows: Sequence[Row]) -> Interval | None:
    """Return the median over the rounds of the time of softmax over that of linear."""
    seconds = timed(rows)
    if not seconds:
        return None
    return median_interval([a / b for a, b in zip(seconds["softmax"], seconds["linear"], strict=True)])
