"""Zero-floor: the kernel of Based minus its floor of one half, so that a weight can reach zero without learning.

    phi(q) . phi(k) = (1 + s)^2 / 2 = (1 + s + s^2 / 2) - 1 / 2,     s = q . k / sqrt(D)

A control for ReBased (Aksenov et al. 2024, arXiv:2402.10644, argue against it in words): if it does as well, what helps
is removing the floor, not the learned vertex. It is zero at s = -1, where Based has its minimum. D head width;
symmetric features, 1 + D + D (D + 1) / 2 of them, as in Based. The root is a sum that cancels: in float32 the smallest
weight is zero up to 1e-7 of |q|^2 |k|^2 / D, of either sign.
"""

from __future__ import annotations

from ..errors import whole
from .polynomial import Polynomial


class ZeroFloor(Polynomial):
    """kappa(s) = (1 + s)^2 / 2 with s = q . k / sqrt(head_dim)."""

    def __init__(self, head_dim: int) -> None:
        width = whole("head_dim", head_dim, 1)
        super().__init__(width, degree=2, bias=0.5**0.5, scale=(2 * width) ** -0.5)
