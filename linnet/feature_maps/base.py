"""FeatureMap: phi(q) . phi(k) replaces the softmax kernel; one token at a time.

    phi_q(x) = core.features(prepare_q(x)),   phi_k(x) = core.features(prepare_k(x))        [..., H, D] -> [..., H, F]

`core` (see core.py) is fixed and can be fused into an op; `prepare_*` holds the learned or random part and keeps the
leading axes. A map sees one token at a time, so every form of attention gives the same result.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .core import Core


class FeatureMap(nn.Module):
    """Base class of all maps. Subclasses set `core` and, if they have such a part, override `prepare_q`/`prepare_k`."""

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
        """Return phi of a query, which equals phi of a key unless the map separates them."""
        return self.map_q(x)

    def kernel(self, q: Tensor, k: Tensor) -> Tensor:  # [..., D], [..., D] -> [...]
        """Return the closed form that phi(q).phi(k) equals, or converges to for random maps."""
        if not self.core.has_kernel:
            raise ValueError(f"{type(self).__name__} has no closed-form kernel; use (map_q(q) * map_k(k)).sum(-1)")
        return self.core.kernel((self.prepare_q(q) * self.prepare_k(k)).sum(-1))

    def redraw(self, generator: torch.Generator | None = None) -> None:
        """Redraw the random part; raise ValueError for maps that have none. Only this call changes it."""
        raise ValueError(f"{type(self).__name__} is not random: there is nothing to redraw")
