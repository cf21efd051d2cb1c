"""Taylor maps: the exponential of softmax attention, truncated after a few terms so that finite features exist.

    phi(q) . phi(k) = sum_{p <= order} s^p / p!,     s = q . k / sqrt(D)        order 2:  1 + s + s^2 / 2 >= 1/2

Arora et al. 2024 (Based), arXiv:2402.18668; Keles et al. 2022, arXiv:2209.04881. D head width.
`Taylor` has symmetric features, 1 + D + D (D + 1) / 2 of them at order 2; `TaylorFull` is the reference form without
symmetry, 1 + D + D^2. The inner products are the same.
"""

from __future__ import annotations

from math import factorial

import torch
from torch import Tensor

from ..errors import whole
from .base import FeatureMap
from .common import check_width, positive_float
from .core import Core
from .polynomial import check_features


class Taylor(FeatureMap):
    """kappa(s) = 1 + s + ... + s^order / order!, s = scale q . k; symmetric features. Based at order 2.

    `scale` defaults to 1 / sqrt(head_dim). Even orders are positive; odd orders are negative for very negative s.
    float16 overflows where |x|^order approaches 65504.
    """

    def __init__(self, head_dim: int, *, order: int = 2, scale: float | None = None) -> None:
        super().__init__(whole("head_dim", head_dim, 1))
        self.order = whole("order", order, 1)
        self.scale = head_dim**-0.5 if scale is None else positive_float("scale", scale)
        self.core = taylor_core(order, self.scale)
        self.feature_dim = check_features(self.core.feature_dim(head_dim), f"order {order}", head_dim)

    def extra_repr(self) -> str:
        return f"head_dim={self.head_dim}, order={self.order}, scale={self.scale:.4g}"


class TaylorFull(FeatureMap):
    """The same kernel through all D^p products of each order p, without symmetry: the reference for `Taylor`.

    phi(x) = [1, x sqrt(scale), vec(x x^T) scale / sqrt(2), ...], width 1 + D + D^2 + ... + D^order.
    """

    def __init__(self, head_dim: int, *, order: int = 2, scale: float | None = None) -> None:
        super().__init__(whole("head_dim", head_dim, 1))
        self.order = whole("order", order, 1)
        self.scale = head_dim**-0.5 if scale is None else positive_float("scale", scale)
        self.feature_dim = check_features(sum(head_dim**p for p in range(order + 1)), f"order {order}", head_dim)

    def prepare_q(self, x: Tensor) -> Tensor:  # [..., D] -> [..., F]
        check_width(x, self.head_dim, "TaylorFull")
        power = torch.ones_like(x[..., :1])
        parts = [power]
        for p in range(1, self.order + 1):
            power = (power[..., :, None] * x[..., None, :]).flatten(-2)  # [..., D^p]
            parts.append(power * (self.scale**p / factorial(p)) ** 0.5)
        return torch.cat(parts, dim=-1)

    def prepare_k(self, x: Tensor) -> Tensor:  # [..., D] -> [..., F]
        return self.prepare_q(x)

    def kernel(self, q: Tensor, k: Tensor) -> Tensor:  # [..., D], [..., D] -> [...]
        return taylor_core(self.order, self.scale).kernel((q * k).sum(-1))

    def extra_repr(self) -> str:
        return f"head_dim={self.head_dim}, order={self.order}, scale={self.scale:.4g}"


def taylor_core(order: int, scale: float) -> Core:
    """Return the polynomial core with coefficients scale^p / p!."""
    return Core("polynomial", tuple(scale**p / factorial(p) for p in range(order + 1)))
