"""The precision an op computes in: the widest dtype of all its inputs and its state, at least float32, autocast off.

A sum over thousands of tokens does not fit the 8 bits of a bfloat16 mantissa, so half precision is widened on the way
in and the output is rounded once, on the way out.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor


def widest(*tensors: Tensor | None) -> torch.dtype:
    """Return float64 if any of the tensors is float64, else float32."""
    for x in tensors:
        if x is not None and x.dtype == torch.float64:
            return torch.float64
    return torch.float32


def finest(x: Tensor) -> torch.dtype:
    """Return the dtype in which exponents are summed over many tokens: differences of long sums lose digits."""
    return x.dtype if x.device.type == "mps" else torch.float64  # mps has no float64


def full_precision(x: Tensor) -> AbstractContextManager[Any]:
    """Return a context without autocast on the device of `x`."""
    kind = x.device.type
    if kind == "meta":  # has shapes only, and no autocast
        return nullcontext()
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()
