"""A learned linear map per head for q and k: the part of Hedgehog and T2R before their non-linearity.

    y_h = W_h x_h + b_h,     x [..., H, D] -> y [..., H, R]

W has shape [H, R, D]. With `tie_qk` q and k share W; otherwise each has one. Computed in float32 or wider.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..errors import whole
from .base import FeatureMap
from .common import check_heads, product


class HeadLinear(nn.Module):
    """y_h = W_h x_h + b_h; the caller initialises `weight`, `bias` starts at zero."""

    def __init__(self, n_heads: int, head_dim: int, rows: int, *, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(n_heads, rows, head_dim))
        self.bias = nn.Parameter(torch.zeros(n_heads, rows)) if bias else None

    def forward(self, x: Tensor) -> Tensor:  # [..., H, D] -> [..., H, R], float32 or wider
        n_heads, _, head_dim = self.weight.shape
        check_heads(x, n_heads, head_dim, "this feature map")
        y = product("...hd,hrd->...hr", x, self.weight)
        return y if self.bias is None else y + self.bias.to(y.dtype)


class LearnedMap(FeatureMap):
    """phi(x) = core(activate(W x + b)); subclasses choose `core` and `activate`."""

    def __init__(self, head_dim: int, n_heads: int, *, rows: int, feature_dim: int, bias: bool, tie_qk: bool) -> None:
        super().__init__(whole("head_dim", head_dim, 1), feature_dim=feature_dim)
        self.n_heads = whole("n_heads", n_heads, 1)
        self.tie_qk = tie_qk
        self.q = HeadLinear(n_heads, head_dim, rows, bias=bias)
        self.k = None if tie_qk else HeadLinear(n_heads, head_dim, rows, bias=bias)

    def activate(self, y: Tensor) -> Tensor:  # [..., H, R] -> [..., H, D'], before the core
        return y

    def prepare_q(self, x: Tensor) -> Tensor:
        return self.activate(self.q(x)).to(x.dtype)

    def prepare_k(self, x: Tensor) -> Tensor:
        return self.activate(self.q(x) if self.k is None else self.k(x)).to(x.dtype)

    def extra_repr(self) -> str:
        return f"head_dim={self.head_dim}, n_heads={self.n_heads}, feature_dim={self.feature_dim}, tie_qk={self.tie_qk}"
