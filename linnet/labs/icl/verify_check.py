"""One numeric check: a statement, the number computed for it, and the bound that the number must satisfy.

Also the small random models and samples that the checks use. float64 throughout; B sequences of n examples with d
features; every layer of a random model changes its tokens by a fraction of their size, so that an error in any layer is
visible and nothing explodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...regress.model import ICLConfig, ICLTransformer
from .noise import Noise
from .regression import Batch, Regression

EXACT = 1e-10  # relative: an identity in float64
CHANGE = 0.4  # the largest entry of a layer's map G in a drawn model
D, N, COUNT = 4, 9, 8


@dataclass(frozen=True)
class Check:
    """`value` must be `relation` ("<=" or ">=") `bound`; NaN fails."""

    name: str
    statement: str
    value: float
    bound: float
    relation: str = "<="

    @property
    def passed(self) -> bool:
        return self.value <= self.bound if self.relation == "<=" else self.value >= self.bound

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "passed": self.passed}


def drawn(kind: str, generator: torch.Generator, layers: int = 3, heads: int = 1) -> tuple[ICLTransformer, Batch]:
    """Return a random model and random sequences for it: d = 4, n = 9, B = 8."""
    batch = Regression(Noise.parse("U1"), D, N).sample(COUNT, generator)
    model = ICLTransformer(ICLConfig(kind, layers, D, N, heads), generator).requires_grad_(False)
    return scaled(model, batch.gram.s), batch


def scaled(model: ICLTransformer, s: Tensor) -> ICLTransformer:
    """Scale every layer's P in place so that the largest entry of its G on s is CHANGE."""
    for layer in range(model.config.layers):
        model.p[layer] *= CHANGE / model.maps(s)[layer].abs().max()
    return model


def tokens(model: ICLTransformer, batch: Batch) -> Tensor:
    """Return [L+1,B,n+1,E]: the examples and the query, before the first layer and after each."""
    return model.tokens(batch.x, batch.y, batch.query.unsqueeze(1))


def error(actual: Tensor, expected: Tensor) -> float:
    """Return the largest difference, relative to the largest expected number."""
    return float((actual - expected).abs().max() / expected.abs().max())
