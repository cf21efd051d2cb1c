"""DPFP: products of shifted rectified coordinates, a sparse parameter-free map of higher dimension.

    phi(x)_{i, j} = r_i r_{i + j},   r = relu([x, -x]),   i = 1 .. 2 D (cyclic),   j = 1 .. nu

Schlag et al. 2021, arXiv:2102.11174, section 5.3: deterministic, parameter-free projection. D head width; width 2 D nu.
Non-negative; many features are exactly zero, so keys of different orthants are orthogonal.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import whole
from .base import FeatureMap
from .common import check_width


class DPFP(FeatureMap):
    """phi(x)_{i, j} = r_i r_{i + j}, r = relu([x, -x]); 1 <= nu <= 2 head_dim - 1, the number of shifts.

    The half of r for negative coordinates is relu(-x); some ports use -relu(x), which is a different map.
    """

    def __init__(self, head_dim: int, *, nu: int = 1) -> None:
        whole("head_dim", head_dim, 1)
        if whole("nu", nu, 1) > 2 * head_dim - 1:
            raise ValueError(f"nu ({nu}) must be at most 2 head_dim - 1 = {2 * head_dim - 1}: longer shifts repeat")
        super().__init__(head_dim, feature_dim=2 * head_dim * nu)
        self.nu = nu

    def prepare_q(self, x: Tensor) -> Tensor:  # [..., D] -> [..., 2 D nu]
        check_width(x, self.head_dim, "DPFP")
        r = torch.cat([x, -x], dim=-1).relu()  # [..., 2 D]
        return torch.cat([r * r.roll(-j, dims=-1) for j in range(1, self.nu + 1)], dim=-1)

    def prepare_k(self, x: Tensor) -> Tensor:
        return self.prepare_q(x)

    def extra_repr(self) -> str:
        return f"head_dim={self.head_dim}, nu={self.nu}"
