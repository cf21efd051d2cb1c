"""Noisy regression problems for the tests of in-context models: weights, examples and a query per sequence.

y_i = <w, x_i> + N(0, sigma²), sigma uniform on (0, top);   target = <w, query> without noise
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from linnet.regress.gram import Gram


class Problems(NamedTuple):
    """B sequences of n examples."""

    x: Tensor  # [B,n,d]
    y: Tensor  # [B,n]
    query: Tensor  # [B,d]
    target: Tensor  # [B]
    weights: Tensor  # [B,d]
    sigma: Tensor  # [B]

    @property
    def gram(self) -> Gram:
        return Gram.of(self.x, self.y)


def problems(
    top: float, count: int, d: int, n: int, generator: torch.Generator, dtype: torch.dtype = torch.float64
) -> Problems:
    """Draw `count` sequences."""
    sigma = top * torch.rand(count, generator=generator, dtype=dtype)
    shapes = ((count, d), (count, n, d), (count, d), (count, n))
    w, x, query, noise = (torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes)
    y = torch.einsum("bnd,bd->bn", x, w) + sigma[:, None] * noise
    return Problems(x, y, query, (query * w).sum(-1), w, sigma)
