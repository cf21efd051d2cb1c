"""Checks shared by the tests of every head: step equals the parallel pass, overfit one batch, save and load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from linnet.models import Model, ModelConfig, build

EXACT = {"rtol": 1e-10, "atol": 1e-10}  # float64


def small(task: str, **fields: Any) -> Any:
    """Return a two-layer model in float64, with weights large enough that a mistake shows."""
    torch.manual_seed(0)
    given = {"d_model": 16, "n_layers": 2, "n_heads": 2, "init_std": 0.2, **fields}
    if given.get("mixer") == "window":
        given["mixer_options"] = {"window": {"window": 3}}
    return build(ModelConfig(task=task, **given)).double().eval()


def stepped(model: Any, inputs: Tensor, *first: Any) -> tuple[Tensor, Any]:
    """Call `step` along the time axis of `inputs`; `first` are arguments before the state."""
    outs, state = [], None
    for t in range(inputs.shape[1]):
        out, state = model.step(inputs[:, t], *first, state)
        outs.append(out)
    return torch.stack(outs, dim=1), state


def learned(model: Model, batch: dict[str, Tensor], steps: int = 60, lr: float = 1e-2) -> float:
    """Return the loss per unit after that many steps on one batch.

    The steps shrink and the gradients are clipped, so that the result does not depend on the last bits of the start.
    """
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=lr, weight_decay=0.0)
    for step in range(steps):
        total, n = model.loss(batch)
        optimizer.zero_grad()
        (total / n).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.param_groups[0]["lr"] = lr * (1 - step / steps)
        optimizer.step()
    return float((total / n).detach())


def again(model: Model, folder: Path) -> Any:
    """Save and load the model, in its dtype."""
    model.float().save_pretrained(folder)
    return Model.from_pretrained(folder).eval()
