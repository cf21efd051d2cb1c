"""Recipes that train the model of a cell: `paper` is the paper's, `fast` is ours.

    paper   Adam, 200,000 steps of 2,048 fresh sequences, learning rate 1e-4, one query each    (arXiv:2402.14180)
    fast    GD++, DIAG   grow.py: a layer is inserted into the shallower model, and Levenberg-Marquardt minimises over
                         all layers
            FULL         full.py: a few thousand steps of Adam towards the posterior mean, all entries of P and Q free

All seeds follow from the cell, so that training a cell again gives the same model.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...errors import unknown
from ...regress.model import ICLConfig, ICLTransformer
from .engine import Adam
from .noise import Noise
from .regression import Regression

RECIPES = ("fast", "paper")
PAPER_STEPS, PAPER_BATCH, PAPER_RATE = 200_000, 2048, 1e-4
SLICE = 250  # steps between two reports
Report = Callable[[float], None]


@dataclass(frozen=True)
class Cell:
    """One model to train: its kind, its problem and its recipe."""

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
        """Return a seed for one purpose of this cell: below 2^31 and odd, unlike the seed of the test stream."""
        text = f"{purpose} {sorted(asdict(self).items())}"
        return zlib.crc32(text.encode()) % (2**31 - 1) // 2 * 2 + 1


class Trained(NamedTuple):
    model: ICLTransformer
    info: dict[str, Any]  # how it was trained, in plain values


def train_cell(cell: Cell, previous: ICLTransformer | None = None, report: Report | None = None) -> Trained:
    """Train the model of a cell. previous: the trained model of the same cell with one layer less, from which `fast`
    grows; without it the shallower models are trained first. report: receives the fraction done, 0 to 1."""
    from . import full, grow  # they import Cell

    report = report or _ignore
    if cell.recipe == "paper":
        trained = paper(cell, report)
    elif cell.kind == "full":
        trained = full.train(cell, report)
    else:
        depths = range(1 if previous is None else cell.layers, cell.layers + 1)
        total, done = sum(depths), 0
        for layers in depths:
            part = partial(_part, report, done / total, layers / total)
            trained = grow.train(replace(cell, layers=layers), previous, part)
            previous, done = trained.model, done + layers
    report(1.0)
    return trained


def paper(cell: Cell, report: Report, steps: int | None = None) -> Trained:
    """Train with Adam as in the paper; the initial weights, which it omits, are those of its authors' earlier code."""
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
    """Return p, q in the engine's layout, and which of them are frozen: GD++ is DIAG with a zero y part of q."""
    p, q = model.p.detach().clone(), model.q.detach().clone()
    if model.config.kind != "gd++":
        return p, q, None
    q = torch.cat([q, torch.zeros_like(q)], dim=-1)
    return p, q, frozen(p)


def frozen(p: Tensor) -> Tensor:
    """Return [parameters of p, then q] of GD++: 1 at the y part of q."""
    mask = torch.zeros(2, *p.shape, dtype=torch.uint8)
    mask[1, ..., 1] = 1
    return mask.flatten()


def finish(cell: Cell, p: Tensor, q: Tensor, info: dict[str, Any]) -> Trained:
    """Return the model, with how it was trained in its configuration."""
    origin = {"noise": cell.problem.noise.name, "recipe": cell.recipe, "seed": cell.seed, **info}
    model = ICLTransformer(replace(cell.config, made=origin))
    with torch.no_grad():
        model.p.copy_(p)
        model.q.copy_(q[..., :1] if cell.kind == "gd++" else q)
    return Trained(model, info)


def _part(report: Report, before: float, size: float, share: float) -> None:
    report(before + size * share)


def _ignore(share: float) -> None:
    pass
