"""How long a training step of each network of T11 takes on utterances of one length, measured alone and in turns.

    step = forward, CTC loss, backward and AdamW on `frames` frames, as frames / length utterances

The paper's utterances have 800 frames in the mean. Networks: the arms of speech.py in the sizes that it trains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ....bench.timing import interleave
from ....models import ModelConfig, preset
from ....native.memory import keep_freed
from ....train import make_optimizer
from ...recall.stats import Interval, interval
from ..claim import Config, Row, Unit, rounded, unit
from ..training import made, plan
from .arms import mixer_of

ARMS = ("softmax", "linear", "lsh", "bilstm")
FRAMES = 800  # the paper's mean utterance
LENGTHS = [100, FRAMES]


def pace(model: Config, rounds: int, seconds: float, lengths: Sequence[int] = LENGTHS) -> Unit:
    sizes = {"lengths": list(lengths), "frames": max(lengths), "rounds": rounds}
    return unit(paces, {"experiment": "speech-pace", **sizes, "model": model}, seconds, alone=True)


def shape_of(arm: str, length: int, model: Config) -> ModelConfig:
    """Of an arm; without sizes, the paper's."""
    if arm == "bilstm":
        own = {name: value for name, value in model.items() if name not in ("n_heads", "d_ff")}
        return preset("speech-bilstm", **own)
    return preset("speech", **mixer_of(arm, length), **({**model, "norm_place": "pre"} if model else {}))


def paces(config: Config) -> dict[str, Any]:
    """Seconds of a training step for each length and arm, one for each round; `frames` of speech in every step."""
    keep_freed()
    found = {}
    for length in config["lengths"]:
        calls = {arm: stepper(arm, length, config["frames"] // length, config["model"]) for arm in ARMS}
        taken = interleave(calls, config["rounds"])
        found[str(length)] = {arm: [rounded(one) for one in seconds] for arm, seconds in taken.items()}
    return {"seconds": found}


def stepper(arm: str, length: int, rows: int, model: Config) -> Callable[[], Any]:
    """One step on random frames with a phone for every eight of them."""
    draw = torch.Generator().manual_seed(0)
    network = made(shape_of(arm, length, {"n_layers": 1 if arm == "bilstm" else 3, **model} if model else {}), 0)
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
    """arm -> seconds of each round."""
    found = [row["metrics"]["seconds"] for row in rows if row["config"]["experiment"] == "speech-pace"]
    return dict(found[0].get(str(length), {})) if found else {}


def speed_ratio(rows: Sequence[Row]) -> Interval | None:
    """softmax over linear, over the rounds."""
    seconds = timed(rows)
    if not seconds:
        return None
    return interval([a / b for a, b in zip(seconds["softmax"], seconds["linear"], strict=True)])
