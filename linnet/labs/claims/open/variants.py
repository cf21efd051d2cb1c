"""One variant of the open questions: a small model with some mixer, trained on some task, all else equal.

    config = variant("recall", "elu", length=32, steps=400, seed=0)      plain values, the key of the row
    metrics = run_variant(config)        {"score", "state_bytes", "dead", "parameters", "curve", ...}

Tasks: copy, recall, majority (score: share of answers that are right), text (bits per character), digits (bits per
pixel). Queries and keys have width 16 whatever the mixer, so variants differ in parameters only where a map has its
own, and in the size of the state. Recall uses the model of linnet/labs/recall: a short convolution, then the mixer, no
MLP; the others have positions, two layers of the mixer and an MLP.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ....layers import LinearAttention
from ....models import Model, ModelConfig, build
from ....train import Source, TrainConfig
from ....train.jobs import open_data
from ...core.claim import Config, Unit, rounded, unit
from ...recall.config import RecallConfig
from ...recall.run import Recaller
from ...recall.score import Kept
from ...recall.tasks import CopyTask
from ..training import plan, seeded_model, train
from .sequences import Flipped, Majority

EXPERIMENT = "arm"
KEY_DIM = 16
HELD_OUT = 256  # scored sequences
METRICS = {"copy": "accuracy", "recall": "accuracy", "majority": "accuracy", "text": "bits", "digits": "bits_per_dim"}
WORDS = {
    "copy": "copied symbols right",
    "recall": "recalled values right",
    "majority": "majorities right",
    "text": "bits per character",
    "digits": "bits per pixel",
}
LOWER = ("text", "digits")  # lower is better
DEFAULTS: dict[str, dict[str, Any]] = {
    "copy": {"length": 32, "d_model": 64, "lr": 3e-3, "batch_size": 32},
    "recall": {"length": 32, "d_model": 32, "lr": 1e-2, "batch_size": 64},
    "majority": {"length": 32, "d_model": 32, "lr": 3e-3, "batch_size": 32},
    "text": {"length": 64, "d_model": 32, "lr": 1e-2, "batch_size": 16},
    "digits": {"length": 64, "d_model": 32, "lr": 5e-3, "batch_size": 16},
}


class Parts(NamedTuple):
    """What a variant is trained with."""

    model: Model
    train: Source
    held_out: Source
    plan: TrainConfig


def variant(task: str, mixer: str | Sequence[str], *, seed: int, steps: int, **changes: Any) -> Config:
    """Return the configuration of a variant: the defaults of its task, with changes."""
    named = mixer if isinstance(mixer, str) else list(mixer)
    values = {"task": task, "mixer": named, **DEFAULTS[task], **changes}
    return {"experiment": EXPERIMENT, **values, "steps": steps, "seed": seed}


def variant_unit(config: Config, seconds: float) -> Unit:
    return unit(run_variant, config, seconds)


def run_variant(config: Config) -> dict[str, Any]:
    """Train it; return its score, its bytes of state after one sequence, and its share of dead features."""
    parts = PARTS[config["task"]](config)
    metrics = train(*parts, watched=METRICS[config["task"]])
    metrics.pop("train_seconds", None)
    worst = None if config["task"] in LOWER else 0.0  # of a run that diverged
    model, score = parts.model, metrics.get(METRICS[config["task"]], worst)
    metrics |= {"score": score, "state_bytes": model.state_bytes(config["length"])}
    return metrics | {"dead": dead_features(model, parts.held_out.batch(range(32)))}


@torch.no_grad()
def dead_features(model: Model, batch: dict[str, Tensor]) -> float | None:
    """Return the share of features of all linear layers that are 0 for every query, or every key, of the batch.

    Such a feature has no gradient on either side and stays dead. None without a linear layer.
    """
    dead: list[Tensor] = []

    def look(layer: nn.Module, given: tuple[Tensor, ...]) -> None:
        assert isinstance(layer, LinearAttention)
        q, k, *_ = layer.project(given[0], None)
        used = [(phi != 0).flatten(0, 1).any(0) for phi in (layer.feature_map.map_q(q), layer.feature_map.map_k(k))]
        dead.append(~(used[0] & used[1]).flatten())

    hooks = [m.register_forward_pre_hook(look) for m in model.modules() if isinstance(m, LinearAttention)]
    model.eval().loss(batch)
    for hook in hooks:
        hook.remove()
    return rounded(float(torch.cat(dead).float().mean())) if dead else None


def _recall(config: Config) -> Parts:
    length, mixer = config["length"], config["mixer"]
    hybrid = not isinstance(mixer, str)
    about: dict[str, Any] = {
        "seq_len": length,
        "pairs": config.get("pairs", length // 4),
        "vocab_size": max(32, 2 * length),
    }
    about["power"] = config.get("power", RecallConfig.power)
    lab = RecallConfig(
        mixer=mixer[-1] if hybrid else mixer, key_dim=KEY_DIM, **about, **_pick(config, "d_model", "lr", "batch_size"),
        **_pick(config, "steps", "seed"),
    )  # fmt: skip
    model = lab.model().replace(**_shape(config)) if hybrid or not config.get("causal", True) else lab.model()
    sides: tuple[Source, Source] = (lab.source("train"), First(Kept(lab.source("test")), HELD_OUT))
    if not model.causal:
        sides = Flipped(sides[0]), Flipped(sides[1])
    return Parts(seeded_model(model, lab.seed, Recaller), *sides, lab.training())


def _shape(config: Config) -> dict[str, Any]:
    """Return the fields of ModelConfig in which a recall variant differs from the model of linnet/labs/recall."""
    if isinstance(config["mixer"], str):
        return {"causal": config["causal"]}
    mixers = tuple(config["mixer"])
    options = {"mixer_options": {"window": {"window": config["window"]}}} if "window" in mixers else {}
    return {"mixer": mixers, "n_layers": len(mixers), **options}


def _model(config: Config, **fields: Any) -> ModelConfig:
    """Return two layers of the mixer, heads of width 16, an MLP twice as wide, learned positions."""
    mixer = config["mixer"]
    how: dict[str, Any] = {
        "mixer": mixer if isinstance(mixer, str) else tuple(mixer),
        "positions": "learned",
        "n_layers": 2,
    }
    if "window" in config:
        how["mixer_options"] = {"window": {"window": config["window"]}}
    width = config["d_model"]
    sizes = {"d_model": width, "n_heads": width // KEY_DIM, "d_ff": 2 * width, "max_length": config["length"]}
    sizes["init_std"] = width**-0.5
    return ModelConfig(**{**how, **sizes, **fields})


def _plan(config: Config) -> TrainConfig:
    how = _pick(config, "steps", "batch_size", "lr", "seed")
    return plan(**how, warmup=config["steps"] // 20, betas=(0.9, 0.98), eval_rows=64, points=10)


def _pick(config: Config, *names: str) -> dict[str, Any]:
    return {name: config[name] for name in names}


def _answers(task: type[CopyTask] | type[Majority], vocab_size: int) -> Callable[[Config], Parts]:
    """Return the parts of a task whose answers are single tokens of the sequence."""

    def parts(config: Config) -> Parts:
        about: dict[str, Any] = {"seq_len": config["length"], "seed": config["seed"]}
        model = seeded_model(_model(config, vocab_size=vocab_size), config["seed"], Recaller)
        return Parts(model, task(**about), task(**about, split="test", size=HELD_OUT), _plan(config))

    return parts


def _opened(kind: str) -> Callable[[Config], Parts]:
    """Return the parts of the shipped text or digits."""

    def parts(config: Config) -> Parts:
        data = open_data(kind, {"seq_len": config["length"]} if kind == "text" else {}, None, begun=False)
        model = seeded_model(_model(config, **data.fields), config["seed"], build)
        return Parts(model, data.train, First(data.valid, 16 * HELD_OUT // config["length"]), _plan(config))

    return parts


class First:
    """The first rows of a source, enough for a score."""

    def __init__(self, source: Source, rows: int) -> None:
        self.length, self.unit, self.units, self.batch = (
            min(rows, source.length),
            source.unit,
            source.units,
            source.batch,
        )
        self.fingerprint = f"{rows} of {source.fingerprint}"


PARTS: dict[str, Callable[[Config], Parts]] = {
    "copy": _answers(CopyTask, 11),
    "recall": _recall,
    "majority": _answers(Majority, 2),
    "text": _opened("text"),
    "digits": _opened("image"),
}
