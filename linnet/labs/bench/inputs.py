"""The inputs of a case, drawn once for all competitors, in the two layouts that competitors take.

    bthd  [B,T,H,D], for linnet        bhtd  [B,H,T,D] contiguous, the fastest layout of the others

Standard normal float32 q, k, v and a gradient g of the output, from a fixed seed.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor

from .sizes import BOTH


class Inputs:
    """q, k, v and the gradient g of the output, in both layouts; the second is copied on first use."""

    def __init__(self, batch: int, length: int, heads: int, head_dim: int, value_dim: int) -> None:
        draw = torch.Generator().manual_seed(0)
        widths = (head_dim, head_dim, value_dim, value_dim)
        self.references: dict[str, Any] = {}  # cached by reference.py
        self.bthd = tuple(torch.randn(batch, length, heads, width, generator=draw) for width in widths)

    @cached_property
    def bhtd(self) -> tuple[Tensor, ...]:
        return tuple(x.transpose(1, 2).contiguous() for x in self.bthd)

    def given(self, layout: str, mode: str) -> tuple[Tensor, ...]:
        q, k, v, g = self.bhtd if layout == "bhtd" else self.bthd
        if mode == BOTH:
            q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
        return q, k, v, g


@lru_cache(maxsize=2)
def inputs(batch: int, length: int, heads: int, head_dim: int, value_dim: int) -> Inputs:
    """Return the same inputs for every thread count, mode and map of these sizes; the last two are cached."""
    return Inputs(batch, length, heads, head_dim, value_dim)
