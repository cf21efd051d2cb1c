"""Optimizers and learning rates: AdamW and RAdam with decoupled weight decay, and the rate of each step.

    warm-up    lr (step + 1) / warmup                           then, with p from 0 to 1 over the remaining steps,
    cosine     min_lr + (lr - min_lr) (1 + cos(pi p)) / 2       linear   min_lr + (lr - min_lr) (1 - p)
    plateau    max(min_lr, lr factor^cuts): cut whenever the held-out loss stops falling

Loshchilov & Hutter 2019, arXiv:1711.05101; Liu et al. 2020 (RAdam), arXiv:1908.03265. The rate is a pure function of
the step, and under "plateau" of the step and a small value, `Plateau`, which is kept in every checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import cos, pi

import torch
from torch import nn

from .config import TrainConfig

BETTER = 1e-4  # relative improvement of the loss that counts, the threshold of torch's ReduceLROnPlateau
VECTORS = ("bias", "gamma", "beta")  # treated as vectors even if they have an axis for heads


@dataclass(frozen=True)
class Plateau:
    """State of the plateau schedule: the best held-out loss, evaluations since then, and cuts so far."""

    best: float | None = None
    bad: int = 0
    cuts: int = 0

    def update(self, loss: float, config: TrainConfig) -> Plateau:
        """Return the state after one more evaluation."""
        if self.best is None or loss < self.best - BETTER * abs(self.best):
            return replace(self, best=loss, bad=0)
        if self.bad + 1 < config.plateau_patience:
            return replace(self, bad=self.bad + 1)
        return replace(self, bad=0, cuts=self.cuts + 1)


def learning_rate(step: int, config: TrainConfig, plateau: Plateau | None = None) -> float:
    """Return the rate of a step, counted from 0."""
    if step < config.warmup:
        return config.lr * (step + 1) / config.warmup
    done = (step - config.warmup) / max(1, config.steps - config.warmup)
    span = config.lr - config.min_lr
    if config.schedule == "cosine":
        return config.min_lr + span * (1 + cos(pi * done)) / 2
    if config.schedule == "linear":
        return config.min_lr + span * (1 - done)
    if config.schedule == "plateau" and plateau is not None:
        return max(config.min_lr, config.lr * config.plateau_factor**plateau.cuts)
    return config.lr


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Create the configured optimizer over the model's parameters, in two groups: with and without weight decay."""
    groups = [
        {"params": params, "weight_decay": decay}
        for params, decay in zip(split_parameters(model, config.decay_all), (config.weight_decay, 0.0), strict=True)
        if params
    ]
    if config.optimizer == "radam":
        return torch.optim.RAdam(groups, config.lr, config.betas, config.eps, decoupled_weight_decay=True)
    return torch.optim.AdamW(groups, config.lr, config.betas, config.eps, fused=True)


def split_parameters(model: nn.Module, decay_all: bool) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Return the trainable parameters with weight decay, and those without: vectors such as norms and biases."""
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    if not named:
        raise ValueError(f"the model {type(model).__name__} has no trainable parameter; accepted: one or more")
    decays = [decay_all or (p.ndim > 1 and name.split(".")[-1] not in VECTORS) for name, p in named]
    matrices = [p for (_, p), yes in zip(named, decays, strict=True) if yes]
    vectors = [p for (_, p), yes in zip(named, decays, strict=True) if not yes]
    return matrices, vectors


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr
