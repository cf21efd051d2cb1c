"""Gram: the sums over examples that a linear transformer reads, as one additive matrix.

    S = sum_i e_i e_iᵀ,  e_i = (x_i, y_i)     [[Sigma, alpha], [alphaᵀ, lambda]],  Sigma = sum x xᵀ, alpha = sum y x

Because S is a sum, examples can be added, removed and faded, and the sums of two devices merged, all exactly. These are
raw sums, for batches of examples as a model sees them; `Moments` (moments.py) are centred, for one stream of real data
in any units. d is the number of features; leading axes are batches. Keep S in float64 if examples are removed.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Gram(NamedTuple):
    """`s` [...,d+1,d+1] and the number of examples in it, `n` [...]; immutable."""

    s: Tensor
    n: Tensor

    @classmethod
    def zeros(cls, d: int, dtype: torch.dtype = torch.float64) -> Gram:
        """Return the sums of no examples."""
        if d < 1:
            raise ValueError(f"d is {d}; accepted: one feature or more")
        return cls(torch.zeros(d + 1, d + 1, dtype=dtype), torch.zeros((), dtype=dtype))

    @classmethod
    def of(cls, x: Tensor, y: Tensor) -> Gram:
        """Return the sums of examples x [...,n,d], y [...,n]."""
        check_examples(x, y)
        e = torch.cat([x, y.unsqueeze(-1)], dim=-1)  # [...,n,d+1]
        return cls(e.mT @ e, torch.full(x.shape[:-2], x.shape[-2], dtype=x.dtype, device=x.device))

    @property
    def d(self) -> int:
        return self.s.shape[-1] - 1

    @property
    def sigma(self) -> Tensor:
        """sum x xᵀ [...,d,d]."""
        return self.s[..., :-1, :-1]

    @property
    def alpha(self) -> Tensor:
        """sum y x [...,d]."""
        return self.s[..., :-1, -1]

    @property
    def lam(self) -> Tensor:
        """sum y² [...]."""
        return self.s[..., -1, -1]

    def add(self, x: Tensor, y: Tensor) -> Gram:
        """Return the sums with the examples x [...,n,d], y [...,n] added."""
        return self.merge(Gram.of(x.to(self.s.dtype), y.to(self.s.dtype)))

    def remove(self, x: Tensor, y: Tensor) -> Gram:
        """Return the sums without examples that were added before, such as the oldest of a sliding window."""
        removed = Gram.of(x.to(self.s.dtype), y.to(self.s.dtype))
        self._check(removed)
        if bool((removed.n > self.n).any()):
            raise ValueError(
                f"{removed.n.max():g} examples cannot be removed from {self.n.min():g}; remove what was added"
            )
        return Gram(self.s - removed.s, self.n - removed.n)

    def merge(self, other: Gram) -> Gram:
        """Return the sums of both, as if one device had seen all examples."""
        self._check(other)
        return Gram(self.s + other.s, self.n + other.n)

    def decay(self, factor: float) -> Gram:
        """Multiply the weight of every example so far by `factor`: exponential forgetting."""
        if not 0 <= factor <= 1:
            raise ValueError(f"the factor is {factor}; accepted: 0 (forget all) to 1 (keep all)")
        return Gram(self.s * factor, self.n * factor)

    def _check(self, other: Gram) -> None:
        if other.d != self.d:
            raise ValueError(f"the examples have {other.d} features and the sums {self.d}; give both the same")


def ridge(gram: Gram, penalty: Tensor | float) -> Tensor:
    """Return (Sigma + penalty I)⁻¹ alpha [...,d]; one penalty, or one per sequence [...]."""
    sigma, alpha = gram.sigma.double(), gram.alpha.double()
    penalty = torch.as_tensor(penalty, dtype=torch.float64)
    if not bool((penalty >= 0).all()):
        raise ValueError(f"the penalty is {float(penalty.min())}; accepted: numbers of 0 or more")
    eye = torch.eye(gram.d, dtype=torch.float64)
    factor, status = torch.linalg.cholesky_ex(sigma + penalty[..., None, None] * eye)
    if bool(((status > 0) | ((gram.n < gram.d) & (penalty == 0))).any()):
        raise ValueError(
            f"{gram.n.min():g} examples do not fix {gram.d} weights without a penalty (Sigma is singular); "
            f"give at least {gram.d} independent examples or a penalty above 0"
        )
    return torch.cholesky_solve(alpha.unsqueeze(-1), factor).squeeze(-1)


def check_examples(x: Tensor, y: Tensor) -> None:
    """Raise ValueError unless x is [...,n,d], y [...,n], n and d are 1 or more and all numbers are finite."""
    if x.dim() < 2 or y.shape != x.shape[:-1] or x.shape[-2] < 1 or x.shape[-1] < 1:
        raise ValueError(
            f"x is {list(x.shape)} and y is {list(y.shape)}; accepted: x [...,n,d] and y [...,n], n and d of 1 or more"
        )
    for name, value in (("x", x), ("y", y)):
        if not bool(torch.isfinite(value).all()):
            raise ValueError(f"{name} holds NaN or infinity; leave such examples out or fill them in first")
