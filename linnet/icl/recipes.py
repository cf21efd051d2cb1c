"""Recipes: how a cell of the table becomes a trained model. `paper` is the paper's; `fast` is ours.

    paper   Adam, 200,000 steps of 2,048 fresh sequences, learning rate 1e-4, one query each    (arXiv:2402.14180)
    fast    GD++, DIAG   grow.py: a layer is inserted into the shallower model and all of it driven down by
                         Levenberg-Marquardt
            FULL         full.py: a few thousand steps of Adam towards the posterior mean, all entries of P and Q free

Everything is drawn from seeds that follow from the cell, so a cell trained again in the same way is the same model.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import unknown
from ..models.icl import ICLConfig, ICLTransformer
from ..tasks import Noise, Regression
from .engine import Adam

RECIPES = ("fast", "paper")
PAPER_STEPS, PAPER_BATCH, PAPER_RATE = 200_000, 2048, 1e-4
SLICE = 250  # steps between two reports
Report = Callable[[float], None]


@dataclass(frozen=True)
class Cell:
    """One model to train: which, on what, how."""

    kind: str
    noise: str
    layers: int
    seed: int = 0
    recipe: str = "fast"
    d: int = 10
    n: int = 20
    heads: int = 1

    def __post_init__(self) -> None:
        if self.recipe not in RECIPES:
            raise unknown("recipe", self.recipe, RECIPES)
        if not 0 <= self.seed < 1000:
            raise ValueError(f"seed is {self.seed}; accepted: 0 to 999")
        _ = self.config, self.problem  # both check their values

    @property
    def config(self) -> ICLConfig:
        return ICLConfig(self.kind, self.layers, self.d, self.n, self.heads)

    @property
    def problem(self) -> Regression:
        return Regression(Noise.parse(self.noise), self.d, self.n)

    def stream(self, purpose: str) -> int:
        """A seed for one purpose of this cell: below 2^31 and odd, which the seed of the test stream is not."""
        text = f"{purpose} {sorted(asdict(self).items())}"
        return zlib.crc32(text.encode()) % (2**31 - 1) // 2 * 2 + 1


class Trained(NamedTuple):
    model: ICLTransformer
    info: dict[str, Any]  # how it was made, in plain values


def train_cell(cell: Cell, previous: ICLTransformer | None = None, report: Report | None = None) -> Trained:
    """The model of a cell. previous: the trained model of the same cell a layer shallower, for `fast` to grow from;
    without it the shallower ones are trained first. report: hears the share that is done, 0 to 1."""
    from . import full, grow  # they import Cell

    report = report or _ignore
    if cell.recipe == "paper":
        trained = paper(cell, report)
    elif cell.kind == "full":
        trained = full.train(cell, report)
    else:
        if previous is None and cell.layers > 1:
            previous = train_cell(replace(cell, layers=cell.layers - 1)).model
        trained = grow.train(cell, previous, report)
    report(1.0)
    return trained


def paper(cell: Cell, report: Report, steps: int | None = None) -> Trained:
    """Adam exactly as the paper says; where it says nothing, as its authors' earlier code: small normal weights."""
    steps = PAPER_STEPS if steps is None else steps
    model = ICLTransformer(cell.config, torch.Generator().manual_seed(cell.stream("start")))
    p, q, frozen = parameters(model)
    adam = Adam(
        cell.problem, p, q, batch=PAPER_BATCH, seed=cell.stream("train"), target="query", frozen=frozen, beta2=0.999
    )
    losses = []
    for first in range(0, steps, SLICE):
        losses.append(adam.run(torch.full((min(SLICE, steps - first),), PAPER_RATE, dtype=torch.float64)))
        report(first / steps)
    info = {"steps": steps, "skipped": int(torch.cat(losses).isnan().sum())}
    return finish(cell, p, q, info)


def parameters(model: ICLTransformer) -> tuple[Tensor, Tensor, Tensor | None]:
    """p, q as the engine wants them, and which of them stay as they are: GD++ is DIAG with a y part of q of zero."""
    p, q = model.p.detach().clone(), model.q.detach().clone()
    if model.config.kind != "gd++":
        return p, q, None
    q = torch.cat([q, torch.zeros_like(q)], dim=-1)
    return p, q, frozen(p)


def frozen(p: Tensor) -> Tensor:
    """[parameters of p, then q] of GD++: 1 at the y part of q."""
    mask = torch.zeros(2, *p.shape, dtype=torch.uint8)
    mask[1, ..., 1] = 1
    return mask.flatten()


def finish(cell: Cell, p: Tensor, q: Tensor, info: dict[str, Any]) -> Trained:
    """The model with what made it in its configuration."""
    made = {"noise": cell.problem.noise.name, "recipe": cell.recipe, "seed": cell.seed, **info}
    model = ICLTransformer(replace(cell.config, made=made))
    with torch.no_grad():
        model.p.copy_(p)
        model.q.copy_(q[..., :1] if cell.kind == "gd++" else q)
    return Trained(model, info)


def _ignore(share: float) -> None:
    pass
