"""Moments: the running sums behind a regressor, kept as count, mean and scatter so that centring costs no digits.

    e_i = (x_i, y_i)   n = sum c_i   m = sum c_i e_i / n   C = sum c_i (e_i - m)(e_i - m)ᵀ   c_i: 1, less once faded

The same information as the sums of (1, x, y) and their products, and as additive: two sets of examples have
C = C_a + C_b + (n_a n_b / n)(m_b - m_a)(m_b - m_a)ᵀ (Chan, Golub and LeVeque 1979), and taking examples out is the same
line backwards. Plain sums lose half their digits once a mean is large beside its spread. E = d + 1; all float64.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

Array: TypeAlias = "np.ndarray[Any, Any]"
EMPTY = 1e-9  # what is left of a count after everything was taken out
NOTHING = 1e-12  # a spread below this part of what it was, or of the mean, is rounding: a constant


class Moments(NamedTuple):
    """`n`, `mean` [E], `scatter` [E,E]; a value, never changed in place."""

    n: float  # examples; faded ones count less
    mean: Array
    scatter: Array

    @classmethod
    def zeros(cls, d: int) -> Moments:
        """No example yet."""
        return cls(0.0, np.zeros(d + 1), np.zeros((d + 1, d + 1)))

    @classmethod
    def of(cls, x: Array, y: Array, factor: float = 1.0) -> Moments:
        """Of the examples x [n,d], y [n]; each counts `factor` times as much as the one after it."""
        e = np.column_stack([x, y]).astype(np.float64)  # [n,E]
        weight = factor ** np.arange(len(e) - 1, -1, -1.0)  # [n]
        n = float(weight.sum())
        mean = weight @ e / n
        e = e - mean
        return cls(n, mean, (weight[:, None] * e).T @ e)

    @property
    def d(self) -> int:
        return len(self.mean) - 1

    @property
    def spread(self) -> Array:
        """Standard deviation of each number [E]; 0 where it is constant but for rounding."""
        found = np.sqrt(self.scatter.diagonal() / max(self.n, EMPTY))
        return np.where(found > NOTHING * np.abs(self.mean), found, 0.0)

    def merge(self, other: Moments) -> Moments:
        """The examples of both."""
        self._check(other)
        n = self.n + other.n
        if n == 0:
            return self
        apart = other.mean - self.mean
        between = np.outer(apart, apart) * (self.n * other.n / n)
        return Moments(n, self.mean + apart * (other.n / n), self.scatter + other.scatter + between)

    def remove(self, other: Moments) -> Moments:
        """Without examples that were added before."""
        self._check(other)
        n = self.n - other.n
        if n < -EMPTY:
            raise ValueError(f"{other.n:g} examples cannot be taken out of {self.n:g}; forget only what was learned")
        if n <= EMPTY:
            return Moments.zeros(self.d)
        apart = (other.mean - self.mean) * (self.n / n)  # from the mean of those that stay
        scatter = self.scatter - other.scatter - np.outer(apart, apart) * (n * other.n / self.n)
        left, before = scatter.diagonal().copy(), self.scatter.diagonal()
        if (left < -1e-6 * before).any():
            raise ValueError(
                "the examples to forget vary more than all that were learned; forget only what was learned"
            )
        constant = left <= NOTHING * before
        scatter[constant], scatter[:, constant] = 0.0, 0.0
        return Moments(n, self.mean - apart * (other.n / self.n), scatter)

    def decay(self, factor: float) -> Moments:
        """Every example so far counts `factor` times as much."""
        if not 0 <= factor <= 1:
            raise ValueError(f"the factor is {factor}; accepted: 0 (forget all) to 1 (keep all)")
        return Moments(self.n * factor, self.mean, self.scatter * factor) if factor else Moments.zeros(self.d)

    def _check(self, other: Moments) -> None:
        if other.d != self.d:
            raise ValueError(f"one side has {self.d} features and the other {other.d}; give both the same")
