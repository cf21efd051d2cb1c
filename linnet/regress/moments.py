"""Moments: the running sums of a regressor, as count, mean and scatter so that centring loses no precision.

    e_i = (x_i, y_i)   n = sum c_i   m = sum c_i e_i / n   C = sum c_i (e_i - m)(e_i - m)ᵀ   c_i: 1, less once faded

The same information as the sums of (1, x, y) and their products, and equally additive: two sets of examples have
C = C_a + C_b + (n_a n_b / n)(m_b - m_a)(m_b - m_a)ᵀ (Chan, Golub and LeVeque 1979), and removing examples is the
inverse. Raw sums lose half their digits when a mean is large compared with its spread. Those are `Gram` (gram.py), for
batches of examples as a model sees them; moments are for one stream of real data. E = d + 1; all float64.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

Array: TypeAlias = "np.ndarray[Any, Any]"
EMPTY = 1e-9  # a count below this, after removals, is zero
NOTHING = 1e-12  # a spread below this fraction of its former value, or of the mean, is rounding: a constant


class Moments(NamedTuple):
    """`n`, `mean` [E], `scatter` [E,E]; immutable."""

    n: float  # examples; faded ones count less
    mean: Array
    scatter: Array

    @classmethod
    def zeros(cls, d: int) -> Moments:
        """Return the moments of no examples."""
        return cls(0.0, np.zeros(d + 1), np.zeros((d + 1, d + 1)))

    @classmethod
    def of(cls, x: Array, y: Array, factor: float = 1.0) -> Moments:
        """Return the moments of x [n,d], y [n]; each example counts `factor` times as much as the one after it."""
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
        """Standard deviation of each column [E]; 0 where it is constant up to rounding."""
        std = np.sqrt(self.scatter.diagonal() / max(self.n, EMPTY))
        return np.where(std > NOTHING * np.abs(self.mean), std, 0.0)

    def merge(self, other: Moments) -> Moments:
        """Return the moments of the examples of both."""
        self._check(other)
        n = self.n + other.n
        if n == 0:
            return self
        apart = other.mean - self.mean
        between = np.outer(apart, apart) * (self.n * other.n / n)
        return Moments(n, self.mean + apart * (other.n / n), self.scatter + other.scatter + between)

    def remove(self, other: Moments) -> Moments:
        """Return the moments without examples that were added before."""
        self._check(other)
        n = self.n - other.n
        if n < -EMPTY:
            raise ValueError(f"{other.n:g} examples cannot be removed from {self.n:g}; forget only what was learned")
        if n <= EMPTY:
            return Moments.zeros(self.d)
        apart = (other.mean - self.mean) * (self.n / n)  # from the mean of the remaining examples
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
        """Multiply the weight of every example so far by `factor`."""
        if not 0 <= factor <= 1:
            raise ValueError(f"the factor is {factor}; accepted: 0 (forget all) to 1 (keep all)")
        return Moments(self.n * factor, self.mean, self.scatter * factor) if factor else Moments.zeros(self.d)

    def _check(self, other: Moments) -> None:
        if other.d != self.d:
            raise ValueError(f"one side has {self.d} features and the other {other.d}; give both the same")
