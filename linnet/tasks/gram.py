"""Gram: all that a linear transformer needs of its examples, one small matrix that adds up.

    S = sum_i e_i e_iᵀ,  e_i = (x_i, y_i)     [[Sigma, alpha], [alphaᵀ, lambda]],  Sigma = sum x xᵀ, alpha = sum y x

Because S is a sum, examples are added as they come, taken out again, faded, and the sums of two devices joined, all
exactly. d is the number of features; leading axes are batches. Keep S in float64 where examples are taken out.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Gram(NamedTuple):
    """`s` [...,d+1,d+1] and how many examples it is a sum of, `n` [...]; a value, never changed in place."""

    s: Tensor
    n: Tensor

    @classmethod
    def zeros(cls, d: int, dtype: torch.dtype = torch.float64) -> Gram:
        """No example yet."""
        if d < 1:
            raise ValueError(f"d is {d}; accepted: one feature or more")
        return cls(torch.zeros(d + 1, d + 1, dtype=dtype), torch.zeros((), dtype=dtype))

    @classmethod
    def of(cls, x: Tensor, y: Tensor) -> Gram:
        """The sums of examples x [...,n,d], y [...,n]."""
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
        """With the examples x [...,n,d], y [...,n] beside those before."""
        return self.merge(Gram.of(x.to(self.s.dtype), y.to(self.s.dtype)))

    def remove(self, x: Tensor, y: Tensor) -> Gram:
        """Without examples that were added before: a sliding window takes its oldest out."""
        gone = Gram.of(x.to(self.s.dtype), y.to(self.s.dtype))
        self._check(gone)
        if bool((gone.n > self.n).any()):
            raise ValueError(
                f"{gone.n.max():g} examples cannot be removed from {self.n.min():g}; remove what was added"
            )
        return Gram(self.s - gone.s, self.n - gone.n)

    def merge(self, other: Gram) -> Gram:
        """The examples of both, as if one device had seen them all."""
        self._check(other)
        return Gram(self.s + other.s, self.n + other.n)

    def decay(self, factor: float) -> Gram:
        """Every example so far counts `factor` times as much: exponential forgetting."""
        if not 0 <= factor <= 1:
            raise ValueError(f"the factor is {factor}; accepted: 0 (forget all) to 1 (keep all)")
        return Gram(self.s * factor, self.n * factor)

    def _check(self, other: Gram) -> None:
        if other.d != self.d:
            raise ValueError(f"the examples have {other.d} features and the sums {self.d}; give both the same")


def check_examples(x: Tensor, y: Tensor) -> None:
    """x [...,n,d] and y [...,n] with n, d >= 1 and finite numbers, or one sentence."""
    if x.dim() < 2 or y.shape != x.shape[:-1] or x.shape[-2] < 1 or x.shape[-1] < 1:
        raise ValueError(
            f"x is {list(x.shape)} and y is {list(y.shape)}; accepted: x [...,n,d] and y [...,n], n and d of 1 or more"
        )
    for name, value in (("x", x), ("y", y)):
        if not bool(torch.isfinite(value).all()):
            raise ValueError(f"{name} holds NaN or infinity; leave such examples out or fill them in first")
