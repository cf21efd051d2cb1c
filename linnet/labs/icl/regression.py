"""Noisy linear regression in context: every sequence is a separate small regression problem.

    w ~ N(0, I_d)   x_i ~ N(0, I_d)   y_i = <w, x_i> + N(0, sigma²),  i = 1..n     sigma ~ noise, one per sequence
    query x_t ~ N(0, I_d), target y_t = <w, x_t> without noise

Vladymyrov et al. 2024 (arXiv:2402.14180), section 3: d = 10, n = 20, without scaling or centring. B sequences.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ...errors import whole
from ...regress.gram import Gram
from .noise import Noise


class Batch(NamedTuple):
    """B sequences: x [B,n,d], y [B,n], query [B,d], target [B], weights [B,d], sigma [B]."""

    x: Tensor
    y: Tensor
    query: Tensor
    target: Tensor
    weights: Tensor
    sigma: Tensor

    @property
    def gram(self) -> Gram:
        """Return the sums of every sequence: s [B,d+1,d+1], n [B]."""
        return Gram.of(self.x, self.y)


@dataclass(frozen=True)
class Regression:
    """The problem; `sample` draws from it."""

    noise: Noise
    d: int = 10
    n: int = 20

    def __post_init__(self) -> None:
        for name, value in (("d", self.d), ("n", self.n)):
            whole(name, value, 1)

    def sample(self, count: int, generator: torch.Generator, dtype: torch.dtype = torch.float64) -> Batch:
        """Draw `count` sequences from the generator: same seed, same numbers."""
        if count < 1:
            raise ValueError(f"{count} sequences were requested; accepted: 1 or more")
        sigma = self.noise.sample(count, generator, dtype)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=dtype)

        weights, x, query = normal(count, self.d), normal(count, self.n, self.d), normal(count, self.d)
        y = (x @ weights.unsqueeze(-1)).squeeze(-1) + sigma.unsqueeze(-1) * normal(count, self.n)
        return Batch(x, y, query, (query * weights).sum(-1), weights, sigma)
