"""The scans by their native kernels, with gradients: one autograd node for both.

A Scan is three functions of the inputs, the initial state (or None) last:

    forward     out, the last state and what the backward needs, by the kernel
    backward    the gradients of the inputs from those of out and of the last state (None: 0), by the kernel
    plain       out and the last state in torch operations, for gradients that are differentiated or batched again
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...native.scan import Places
from ..native_allowed import by_kernel, gradients, readable, refused_sequence, wants_graph
from ..state import MatrixState


class Scan(NamedTuple):
    """The three functions of an op; see above."""

    forward: Callable[..., tuple[Tensor, Tensor | None, Tensor | None]]
    backward: Callable[..., tuple[Tensor | None, ...]]
    plain: Callable[..., tuple[Tensor, Tensor]]


def refused(inputs: tuple[Tensor, ...], state: MatrixState | None, mask: Tensor | None) -> str | None:
    """Return why the kernel cannot take these, as the rest of a sentence; None if it can."""
    why = refused_sequence(*inputs)
    if why is None and not readable(mask, None if state is None else state.s):
        return "the mask or the initial state is of a subclass"
    return why


def run(
    scan: Scan, inputs: tuple[Tensor | None, ...], places: Places, need_state: bool
) -> tuple[Tensor, Tensor | None]:
    """Return out and, if it is needed, the last state, both float32."""
    if wants_graph(*inputs):
        out, s = _Scan.apply(scan, need_state, *places, *inputs)
        return out, s
    out, s, _ = scan.forward(*inputs, places, need_state)
    return out, s


class _Scan(torch.autograd.Function):
    """Saved for the backward pass are the inputs and what the kernel kept of the states."""

    @staticmethod
    def forward(ctx: Any, scan: Scan, need_state: bool, *given: Tensor | None) -> Any:
        mask, cu_seqlens, *inputs = given
        out, s, kept = scan.forward(*inputs, Places(mask, cu_seqlens), need_state, True)
        ctx.save_for_backward(*given, kept)
        ctx.set_materialize_grads(False)
        ctx.scan = scan
        return out, s

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        mask, cu_seqlens, *inputs, kept = ctx.saved_tensors
        places, (g, gs) = Places(mask, cu_seqlens), grads
        if by_kernel(*grads):
            g = torch.zeros_like(inputs[0], dtype=torch.float32) if g is None else g
            wide = list(ctx.scan.backward(g, gs, *inputs, places, kept))
        else:
            wide = gradients(partial(ctx.scan.plain, places=places), tuple(inputs), grads)
        cast = [d if d is None else d.to(x.dtype) for d, x in zip(wide, inputs, strict=True)]
        return None, None, None, None, *cast
