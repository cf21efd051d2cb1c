"""The fixed half of a feature map: the part that a fused kernel can apply without parameters.

Every map is  phi(x) = core.features(prepare(x)):  `prepare` may be learned or random and keeps the width D, the core is
one of six closed forms. An op that knows the core never materialises phi outside the cache.

    identity  x        elu  elu(x) + 1        relu  max(x, 0)        relu2  max(x, 0)^2        exp  e^x
    polynomial  phi(q) . phi(k) = sum_p c_p s^p,  s = q . k,  c_p >= 0, through symmetric features

D width before the core, F after it:  x [..., D] -> [..., F].
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement
from math import comb, factorial, prod

import torch
from torch import Tensor

KINDS = ("identity", "elu", "relu", "relu2", "exp", "polynomial")


@dataclass(frozen=True)
class Core:
    """One of `KINDS`; `coeffs` = (c_0, c_1, ..., c_p) for the polynomial kind only."""

    kind: str
    coeffs: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"core kind {self.kind!r} is unknown; accepted: {', '.join(KINDS)}")
        if (self.kind == "polynomial") != bool(self.coeffs):
            raise ValueError(f"core kind {self.kind!r} with coeffs {self.coeffs}: only 'polynomial' takes coefficients")
        if any(c < 0 for c in self.coeffs):
            raise ValueError(f"polynomial coefficients {self.coeffs} must be >= 0, or the kernel has no real features")

    @property
    def has_kernel(self) -> bool:
        """True if phi(q).phi(k) is a function of q.k alone, so that scores need no features."""
        return self.kind in ("identity", "polynomial")

    def feature_dim(self, head_dim: int) -> int:
        if self.kind != "polynomial":
            return head_dim
        return sum(comb(head_dim + p - 1, p) for p, c in enumerate(self.coeffs) if c > 0)

    def features(self, x: Tensor) -> Tensor:  # [..., D] -> [..., F]
        if self.kind == "identity":
            return x
        if self.kind == "elu":
            return x.clamp(max=0).exp() + x.relu()  # torch.where is several times slower
        if self.kind == "relu":
            return x.relu()
        if self.kind == "relu2":
            return x.relu().square()
        if self.kind == "exp":
            return x.exp()
        parts = [self._degree(x, p, c) for p, c in enumerate(self.coeffs) if c > 0]
        return torch.cat(parts, dim=-1)

    def features_vjp(self, x: Tensor, grad: Tensor) -> Tensor:  # [..., D], [..., F] -> [..., D]
        """Return grad . d phi / d x, in differentiable torch operations."""
        if self.kind == "identity":
            return grad
        if self.kind == "elu":
            return grad * x.clamp(max=0).exp()
        if self.kind == "relu":
            return grad * (x > 0)
        if self.kind == "relu2":
            return grad * (2 * x.relu())
        if self.kind == "exp":
            return grad * x.exp()
        out = torch.zeros_like(x)
        start = 0
        for p, c in enumerate(self.coeffs):
            if c == 0:
                continue
            index, weight = _symmetric(x.shape[-1], p, x.dtype, x.device)
            part = grad[..., start : start + len(weight)] * (weight * c**0.5)  # [..., F_p]
            start += len(weight)
            for slot in range(p):
                term = part
                for other in range(p):
                    if other != slot:
                        term = term * x[..., index[other]]
                out = out.index_add(-1, index[slot], term)
        return out

    def kernel(self, s: Tensor) -> Tensor:
        """Return kappa(s) with s = q.k; requires `has_kernel`."""
        if self.kind == "identity":
            return s
        out = torch.full_like(s, self.coeffs[-1])
        for c in reversed(self.coeffs[:-1]):
            out = out * s + c
        return out

    def kernel_grad(self, s: Tensor) -> Tensor:
        """Return d kappa / d s; requires `has_kernel`."""
        if self.kind == "identity" or len(self.coeffs) == 1:
            return torch.full_like(s, float(self.kind == "identity"))
        return Core("polynomial", tuple(p * c for p, c in enumerate(self.coeffs))[1:]).kernel(s)

    def _degree(self, x: Tensor, p: int, c: float) -> Tensor:
        index, weight = _symmetric(x.shape[-1], p, x.dtype, x.device)
        if p == 0:
            return torch.full_like(x[..., :1], c**0.5)
        out = x[..., index[0]]
        for i in range(1, p):
            out = out * x[..., index[i]]
        return out * (weight * c**0.5)


def _symmetric(head_dim: int, degree: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return `_table` as a constant of the graph: torch.compile cannot trace lru_cache or itertools."""
    return _table(head_dim, degree, dtype, device)


# What torch.compiler.assume_constant_result sets; calling it would import the compiler, which takes 1.3 s.
_symmetric._dynamo_marked_constant = True  # type: ignore[attr-defined]


@lru_cache(maxsize=64)
def _table(head_dim: int, degree: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return indices [degree, F_p] and weights [F_p], the square root of each monomial's count in (q.k)^degree.

    Each monomial occurs once: (i <= j <= ...) in lexicographic order.
    """
    rows = tuple(combinations_with_replacement(range(head_dim), degree))
    times = [factorial(degree) // prod(factorial(m.count(i)) for i in set(m)) for m in rows]
    with torch.inference_mode(False):
        index = torch.tensor(rows, dtype=torch.long, device=device).T.reshape(degree, len(rows))
        weight = torch.tensor(times, dtype=torch.float64, device=device).sqrt().to(dtype)
    return index, weight
