"""What the trials of all ops draw alike: sizes, dtypes, padding, packing, cuts, states."""

from __future__ import annotations

import random
from itertools import pairwise

import torch
from torch import Tensor

LENGTHS = [0, 1, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 20, 31, 32, 33, 40, 48, 65]
WIDTHS = [1, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17]
DTYPES = [torch.float64, torch.float64, torch.float32, torch.float32, torch.float32, torch.bfloat16, torch.float16]


def normal(g: torch.Generator, dtype: torch.dtype, *shape: int, size: float = 1.0) -> Tensor:
    """Float64, with the digits that `dtype` has."""
    return (torch.randn(*shape, generator=g, dtype=torch.float64) * size).to(dtype).double()


def uniform(g: torch.Generator, dtype: torch.dtype, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
    drawn = torch.rand(*shape, generator=g, dtype=torch.float64) * (high - low) + low
    return drawn.clamp(low, high).to(dtype).double()


def padding(rng: random.Random, batch: int, length: int) -> tuple[str, Tensor | None]:
    """A mask [B,T], True = real; each row its own."""
    kind = rng.choice(["none", "none", "left", "right", "hole", "holes", "all", "one row"])
    if kind == "none":
        return kind, None
    mask = torch.ones(batch, length, dtype=torch.bool)
    for i, row in enumerate(mask):
        a, b = sorted(rng.randrange(length + 1) for _ in range(2))
        if kind == "left":
            row[:a] = False
        elif kind == "right":
            row[b:] = False
        elif kind == "hole":
            row[a:b] = False
        elif kind == "holes":
            for t in range(length):
                row[t] = rng.random() < 0.6
        elif kind == "all" or i == 0:
            row[:] = False
    return kind, mask


def offsets(rng: random.Random, length: int) -> list[int]:
    """1 to 4 sequences, empty ones among them."""
    return [0, *sorted(rng.randrange(length + 1) for _ in range(rng.randrange(4))), length]


def cuts(rng: random.Random, length: int) -> list[int]:
    """0 to `length` in one to four pieces."""
    return [0, *sorted(rng.randrange(length + 1) for _ in range(rng.choice([0, 0, 0, 1, 2, 3]))), length]


def spans(points: list[int]) -> list[slice]:
    return [slice(a, b) for a, b in pairwise(points)]
