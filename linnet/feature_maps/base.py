"""FeatureMap: phi(q) . phi(k) replaces the softmax kernel; one token at a time.

    phi_q(x) = core.features(prepare_q(x)),   phi_k(x) = core.features(prepare_k(x))        [..., H, D] -> [..., H, F]

`core` (see core.py) is fixed and can be fused into an op; `prepare_*` holds what is learned or drawn at random and
keeps the leading axes. A map never looks at another token, so every form of attention gives the same answer.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .core import Core


class FeatureMap(nn.Module):
    """Base of all maps. Subclasses set `core` and override `prepare_q` / `prepare_k` when they have such a part."""

    core: Core = Core("identity")

    def __init__(self, head_dim: int, *, feature_dim: int | None = None) -> None:
        super().__init__()
        if head_dim < 1:
            raise ValueError(f"head_dim ({head_dim}) must be at least 1")
        self.head_dim = head_dim
        self.feature_dim = self.core.feature_dim(head_dim) if feature_dim is None else feature_dim

    def prepare_q(self, x: Tensor) -> Tensor:  # [..., H, D] -> [..., H, D']
        return x

    def prepare_k(self, x: Tensor) -> Tensor:  # [..., H, D] -> [..., H, D']
        return x

    def map_q(self, x: Tensor) -> Tensor:  # [..., H, D] -> [..., H, F]
        return self.core.features(self.prepare_q(x))

    def map_k(self, x: Tensor) -> Tensor:  # [..., H, D] -> [..., H, F]
        return self.core.features(self.prepare_k(x))

    def forward(self, x: Tensor) -> Tensor:
        """phi of a query; the same as phi of a key unless the map says otherwise."""
        return self.map_q(x)

    def kernel(self, q: Tensor, k: Tensor) -> Tensor:  # [..., D], [..., D] -> [...]
        """The closed form that phi(q).phi(k) equals, or converges to for random maps."""
        if not self.core.has_kernel:
            raise ValueError(f"{type(self).__name__} has no closed-form kernel; use (map_q(q) * map_k(k)).sum(-1)")
        return self.core.kernel((self.prepare_q(q) * self.prepare_k(k)).sum(-1))

    def redraw(self, generator: torch.Generator | None = None) -> None:
        """Draw the random part anew. Only random maps have one, and only this call changes it."""
        raise ValueError(f"{type(self).__name__} is not random: there is nothing to redraw")
