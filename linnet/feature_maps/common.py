"""What several maps share: argument checks, and the dtype a learned or random map computes in.

A map answers in the dtype of its input but computes in float32 or wider, also under autocast, so that its
meaning does not depend on the precision of the network around it.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from math import isfinite

import torch
from torch import Tensor

from ..errors import unknown


def positive_int(name: str, value: int) -> int:
    """`value`, or a ValueError when it is not an integer of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} ({value!r}) must be an integer of at least 1")
    return value


def positive_float(name: str, value: float) -> float:
    """`value`, or a ValueError when it is not a finite number above 0."""
    if not isinstance(value, int | float) or not isfinite(value) or value <= 0:
        raise ValueError(f"{name} ({value!r}) must be a finite number above 0")
    return float(value)


def one_of(name: str, value: str, accepted: Iterable[str]) -> str:
    """`value`, or a ValueError that lists `accepted` and suggests the nearest."""
    names = tuple(accepted)
    if value not in names:
        raise unknown(name, value, names)
    return value


def check_heads(x: Tensor, n_heads: int, head_dim: int, who: str) -> None:
    """x must end in [n_heads, head_dim]: a map with one set of parameters per head cannot broadcast."""
    if tuple(x.shape[-2:]) != (n_heads, head_dim):
        raise ValueError(
            f"{who} was built for [..., n_heads={n_heads}, head_dim={head_dim}] and received {list(x.shape)}; "
            f"build it with the sizes of q and k"
        )


def check_width(x: Tensor, head_dim: int, who: str) -> None:
    """x must end in [head_dim]."""
    if x.ndim < 1 or x.shape[-1] != head_dim:
        raise ValueError(
            f"{who} was built for [..., head_dim={head_dim}] and received {list(x.shape)}; "
            f"build it with the width of q and k"
        )


def wide_dtype(x: Tensor, *others: Tensor | None) -> torch.dtype:
    """float32, or float64 when the input or a parameter is float64."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    for other in others:
        dtype = dtype if other is None else torch.promote_types(dtype, other.dtype)
    return dtype


def product(equation: str, x: Tensor, weight: Tensor) -> Tensor:
    """einsum(equation, x, weight) in `wide_dtype`; autocast is kept out of it."""
    dtype = wide_dtype(x, weight)
    # meta tensors have no autocast to switch off
    off = nullcontext() if x.device.type == "meta" else torch.autocast(x.device.type, enabled=False)
    with off:
        return torch.einsum(equation, x.to(dtype), weight.to(dtype))
