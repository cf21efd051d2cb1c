"""The noise of a sequence: sigma, one standard deviation per sequence, drawn from a distribution with a short name.

    "U5"      uniform on (0, 5)            U0 means no noise
    "1,3"     one of the values, equally likely; "{1,3}" is the same
    "=2"      always 2

sigma is a standard deviation: the labels carry N(0, sigma²). The paper (arXiv:2402.14180) calls it a variance in
places; its numbers are those of a standard deviation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

KINDS = ("uniform", "categorical", "fixed")
ACCEPTED = "'U5' for uniform on (0, 5), '1,3' for one of the values, '=2' for always 2"


@dataclass(frozen=True)
class Noise:
    """A distribution of sigma: `values` is (top,), the choices, or (sigma,)."""

    kind: str
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"noise has kind {self.kind!r}; accepted: {', '.join(KINDS)}")
        if not self.values or (self.kind != "categorical" and len(self.values) != 1):
            raise ValueError(f"{self.kind} noise has {len(self.values)} values; accepted: {ACCEPTED}")
        for value in self.values:
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"sigma is {value}; accepted: a finite standard deviation of 0 or more")

    @classmethod
    def parse(cls, text: str) -> Noise:
        """Return the distribution of a short name."""
        inner = text.strip().strip("{}").strip()
        kind = {"U": "uniform", "=": "fixed"}.get(inner[:1].upper(), "categorical")
        numbers = inner if kind == "categorical" else inner[1:]
        try:
            values = tuple(float(part) for part in numbers.split(","))
        except ValueError:
            raise ValueError(f"noise is {text!r}; accepted: {ACCEPTED}") from None
        return cls(kind, values)

    @property
    def name(self) -> str:
        numbers = ",".join(_plain(value) for value in self.values)
        return {"uniform": f"U{numbers}", "fixed": f"={numbers}", "categorical": f"{{{numbers}}}"}[self.kind]

    @property
    def largest(self) -> float:
        return max(self.values)

    @property
    def mean_square(self) -> float:
        """Return E[sigma²], the best fixed ridge penalty."""
        if self.kind == "uniform":
            return self.values[0] ** 2 / 3
        return sum(value**2 for value in self.values) / len(self.values)

    def sample(self, count: int, generator: torch.Generator, dtype: torch.dtype = torch.float64) -> Tensor:
        """Draw sigma [count]."""
        if self.kind == "categorical":
            which = torch.randint(len(self.values), (count,), generator=generator)
            return torch.tensor(self.values, dtype=dtype)[which]
        if self.kind == "uniform":
            return self.values[0] * torch.rand(count, generator=generator, dtype=dtype)
        return torch.full((count,), self.values[0], dtype=dtype)

    def grid(self, points: int = 32) -> tuple[Tensor, Tensor]:
        """Return (sigma [K], weight [K]), a quadrature of the distribution; a finite one is exact and ignores `points`.

        Uniform: Gauss-Legendre nodes. U0, and other distributions of one value, have one node.
        """
        if self.kind == "uniform" and self.values[0] > 0:
            nodes, weights = np.polynomial.legendre.leggauss(points)
            return torch.from_numpy((nodes + 1) / 2 * self.values[0]), torch.from_numpy(weights / 2)
        values = torch.tensor(self.values, dtype=torch.float64)
        return values, torch.full_like(values, 1 / len(self.values))


def _plain(value: float) -> str:
    """Format without a trailing .0, with all significant digits."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


PAPER_NOISE = (
    *(Noise("uniform", (float(top),)) for top in range(8)),
    Noise("categorical", (1.0, 3.0)),
    Noise("categorical", (1.0, 3.0, 5.0)),
)
