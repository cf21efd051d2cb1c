"""Shared by several maps: argument checks, and the dtype in which learned and random maps compute.

A map returns the dtype of its input but computes in float32 or wider, also under autocast, so that its result does not
depend on the precision of the network around it.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from math import isfinite

import torch
from torch import Tensor

from ..errors import unknown


def positive_float(name: str, value: float) -> float:
    """Return `value`; raise ValueError unless it is a finite number above 0."""
    if not isinstance(value, int | float) or not isfinite(value) or value <= 0:
        raise ValueError(f"{name} ({value!r}) must be a finite number above 0")
    return float(value)


def one_of(name: str, value: str, accepted: Iterable[str]) -> str:
    """Return `value`; raise ValueError with a suggestion unless it is in `accepted`."""
    names = tuple(accepted)
    if value not in names:
        raise unknown(name, value, names)
    return value


def check_heads(x: Tensor, n_heads: int, head_dim: int, who: str) -> None:
    """Raise ValueError unless x ends in [n_heads, head_dim]; maps with parameters per head cannot broadcast."""
    if tuple(x.shape[-2:]) != (n_heads, head_dim):
        raise ValueError(
            f"{who} was built for [..., n_heads={n_heads}, head_dim={head_dim}] and received {list(x.shape)}; "
            f"build it with the sizes of q and k"
        )


def check_width(x: Tensor, head_dim: int, who: str) -> None:
    """Raise ValueError unless x ends in [head_dim]."""
    if x.ndim < 1 or x.shape[-1] != head_dim:
        raise ValueError(
            f"{who} was built for [..., head_dim={head_dim}] and received {list(x.shape)}; "
            f"build it with the width of q and k"
        )


def wide_dtype(x: Tensor, *others: Tensor | None) -> torch.dtype:
    """Return float32, or float64 if the input or a parameter is float64."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    for other in others:
        dtype = dtype if other is None else torch.promote_types(dtype, other.dtype)
    return dtype


def product(equation: str, x: Tensor, weight: Tensor) -> Tensor:
    """Return einsum(equation, x, weight) in `wide_dtype`, with autocast disabled."""
    dtype = wide_dtype(x, weight)
    # the meta device has no autocast to disable
    off = nullcontext() if x.device.type == "meta" else torch.autocast(x.device.type, enabled=False)
    with off:
        return torch.einsum(equation, x.to(dtype), weight.to(dtype))
