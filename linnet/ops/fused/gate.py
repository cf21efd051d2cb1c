"""The gate of recurrent mixers: out = (x + skip u) silu(z), forward and backward one pass each in the native library.

    dx = g silu(z),   dz = g (x + skip u) silu'(z),   du = skip dx,   dskip = sum over rows of dx u

Without u and skip, out = x silu(z). z and u may be columns of a wider projection: their rows are read where they lie.
x, z, u, out [..., N]; skip [N]. Plain torch wherever the kernel cannot run, see native_allowed.py.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import silu

from ...native import nn
from ..native_allowed import SMALLEST, by_kernel, gradients, native, rows, wants_graph


def gate(x: Tensor, z: Tensor, u: Tensor | None = None, skip: Tensor | None = None) -> Tensor:
    """Return (x + skip u) silu(z), or x silu(z)."""
    if x.numel() < SMALLEST or x.shape != z.shape or not native(x, z, u, skip):
        return _plain(x, z, u, skip)
    if wants_graph(x, z, u, skip):
        return _Gate.apply(x, z, u, skip)
    return nn.gate(rows(x), _apart(z), None if u is None else _apart(u), skip).view(x.shape)


def _plain(x: Tensor, z: Tensor, u: Tensor | None, skip: Tensor | None) -> Tensor:
    return (x if u is None or skip is None else x + skip * u) * silu(z)


def _apart(x: Tensor) -> Tensor:
    """Return [..., N] as rows [R,N] that may lie apart, but neither overlap nor have gaps inside."""
    N = x.shape[-1]
    y = x.reshape(-1, N)
    return y if y.stride(1) == 1 and y.stride(0) >= N and not y.is_neg() else rows(x)


class _Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, z: Tensor, u: Tensor | None, skip: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, z, u, skip)
        return nn.gate(rows(x), _apart(z), None if u is None else _apart(u), skip).view(x.shape)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, z, u, skip = ctx.saved_tensors
        if not by_kernel(g):
            return tuple(gradients(_plain, (x, z, u, skip), (g,)))
        dx, dz, du, dskip = nn.gate_backward(rows(g), rows(x), _apart(z), None if u is None else _apart(u), skip)
        return dx.view(x.shape), dz.view(z.shape), None if du is None else du.view(u.shape), dskip
