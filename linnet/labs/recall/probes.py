"""Probes: further measurements of a trained recall model; a configuration names the ones it wants.

    gains     mean and spread of ReBased's gamma and beta, and the gamma that weight decay alone would give
    longer    accuracy on longer sequences and more pairs than in training
    floor     the effect of Based's kernel floor, and accuracy without it (probe_floor.py)
    iou       where the mixer attends at a query (probe_iou.py)

A probe takes the model and its configuration and returns plain values for the row.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from ...feature_maps.rebased import NormAffine
from ...models import LanguageModel
from ...train.optim import learning_rate
from .config import RecallConfig
from .probe_floor import floor
from .probe_iou import iou
from .score import ratio, score

LONGER_ROWS = 128


def gains(model: LanguageModel, config: RecallConfig) -> dict[str, Any]:
    """Return the statistics of every gamma and beta in the model; {} for a mixer that has none."""
    affines = [module for module in model.modules() if isinstance(module, NormAffine)]
    statistics: dict[str, Any] = {}
    for name in ("gamma", "beta"):
        values = [getattr(a, name).detach().flatten().double() for a in affines if getattr(a, name) is not None]
        if values:
            statistics |= {
                f"{name}_mean": float(sum(x.mean() for x in values) / len(values)),
                f"{name}_std": float(sum(x.std() for x in values) / len(values)),
            }
    return statistics | {"decay_alone": decay_alone(config)} if statistics else {}


def decay_alone(config: RecallConfig) -> float:
    """Return where a parameter that starts at 1 ends without gradients: the product of (1 - lr weight_decay)."""
    if not config.decay_all:
        return 1.0
    training = config.training()
    return prod(1 - training.weight_decay * learning_rate(step, training) for step in range(training.steps))


def longer(model: LanguageModel, config: RecallConfig) -> list[dict[str, Any]]:
    """Return the accuracy at 1, 2, 4 and 8 times the length, with as many pairs or proportionally more."""
    results = []
    for factor in (1, 2, 4, 8):
        for pairs in sorted({config.pairs, config.pairs * factor}):
            length = config.seq_len * factor
            if length >= config.vocab_size or pairs >= config.vocab_size // 2:
                continue
            other = config.replace(seq_len=length, pairs=pairs)
            try:
                accuracy = ratio(score(model, other.source("test"), range(LONGER_ROWS))["all"])
            except ValueError:  # learned positions end where training did
                accuracy = None
            results.append({"seq_len": length, "pairs": pairs, "accuracy": accuracy})
    return results


PROBES: dict[str, Callable[[LanguageModel, RecallConfig], Any]] = {
    "gains": gains,
    "longer": longer,
    "floor": floor,
    "iou": iou,
}
