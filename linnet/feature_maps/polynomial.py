"""Polynomial kernels of q . k through symmetric features: every monomial once, weighted by its count.

    phi(q) . phi(k) = (scale q . k + bias)^degree = sum_p C(degree, p) bias^(degree - p) scale^p (q . k)^p

Katharopoulos et al. 2020, arXiv:2006.16236, section 3.2 (degree 2, through D^2 features; D (D + 1) / 2 are enough).
D head width. Width without bias: C(D + degree - 1, degree); with bias: C(D + degree, degree).
"""

from __future__ import annotations

from math import comb, isfinite

from ..errors import whole
from .base import FeatureMap
from .common import positive_float
from .core import Core

MAX_FEATURES = 2**22  # a state with more rows per head than this is a mistake in the sizes


class Polynomial(FeatureMap):
    """kappa(q, k) = (scale q . k + bias)^degree, any degree >= 1.

    `bias` >= 0, or the kernel has no real features; `scale` > 0 is 1 / sqrt(head_dim) when None. An even degree is
    never negative; an odd one can be, and then the normaliser can vanish. float16 overflows where |x|^degree > 65504.
    """

    def __init__(self, head_dim: int, *, degree: int = 2, bias: float = 0.0, scale: float | None = None) -> None:
        super().__init__(whole("head_dim", head_dim, 1))
        if not isinstance(bias, int | float) or not isfinite(bias) or bias < 0:
            raise ValueError(f"bias ({bias!r}) must be a finite number >= 0, or the kernel has no real features")
        self.degree = whole("degree", degree, 1)
        self.bias = float(bias)
        self.scale = head_dim**-0.5 if scale is None else positive_float("scale", scale)
        powers = range(degree + 1)
        self.core = Core(
            "polynomial", tuple(comb(degree, p) * self.bias ** (degree - p) * self.scale**p for p in powers)
        )
        self.feature_dim = check_features(self.core.feature_dim(head_dim), f"degree {degree}", head_dim)

    def extra_repr(self) -> str:
        return f"head_dim={self.head_dim}, degree={self.degree}, bias={self.bias}, scale={self.scale:.4g}"


def check_features(feature_dim: int, what: str, head_dim: int) -> int:
    """Return `feature_dim`; raise ValueError if the expansion is too wide."""
    if feature_dim > MAX_FEATURES:
        raise ValueError(
            f"{what} at head_dim {head_dim} needs {feature_dim} features, more than {MAX_FEATURES}; "
            f"choose a smaller head_dim or a lower degree"
        )
    return feature_dim
