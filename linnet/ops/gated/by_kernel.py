"""Decayed attention, delta rules and RWKV-7 through their native kernel, with its gradient and its look at the numbers.

    out, state = by_kernel(call, inputs, plain)          after `begin` of prologue.py has chosen the kernel

The kernel reports numbers that the rule does not take while it loads them, and `check_values` then names them. For a
number that is not finite it runs again, so that the past keeps its bits (causal.py). `plain` computes the same on
torch, from the inputs and the matrix of the state: for second derivatives and for gradients under vmap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from ...native import gated
from ...native.gate import dense
from ...native.gated import Inputs
from ..causal import guarded
from ..native_allowed import by_kernel as backward_allowed
from ..native_allowed import gradients, wants_graph
from ..prologue import Call
from ..state import MatrixState
from .values import check_values

Plain: TypeAlias = Callable[..., tuple[Tensor, MatrixState | None]]


class _How(NamedTuple):
    mask: Tensor | None
    cu: Tensor | None
    need_state: bool
    plain: Plain


def by_kernel(call: Call, x: Inputs, plain: Plain) -> tuple[Tensor, MatrixState | None]:
    """Run the kernel on the inputs of the caller: decay [B,T,H] or [B,T,H,D], of any batch that broadcasts."""
    decay = x.decay
    if decay is not None:
        decay = decay if decay.ndim == 4 else decay[..., None]
        decay = decay if decay.shape[0] == x.q.shape[0] else decay.expand(x.q.shape[0], -1, -1, -1)
    given = [x.q, x.k, x.v, decay, x.beta, x.erase, x.rate, call.s]
    for i, y in enumerate(given):
        if y is not None and y.dtype is not torch.float32:
            given[i] = y.float()
    mask = None if call.mask is None else dense(call.mask, torch.bool)
    how = _How(mask, call.offsets, call.output_final_state, plain)
    if wants_graph(*given):
        out, s = _Kernel.apply(how, *given)
    else:
        out, s, _ = _forward(how, given, keep=False)
    return out if call.dtype is torch.float32 else out.to(call.dtype), None if s is None else MatrixState(s)


def _forward(how: _How, given: Any, keep: bool) -> tuple[Tensor, Tensor | None, Tensor | None]:
    x, s0 = Inputs(*given[:7]), given[7]
    out, s, kept, faults = gated.forward(x, how.mask, how.cu, s0, how.need_state, keep)
    if faults:
        check_values(x, how.mask)
    if faults & gated.NOT_FINITE:
        out = _guarded(how, x, s0)
    return out, s, kept


def _guarded(how: _How, x: Inputs, s0: Tensor | None) -> Tensor:
    def run(*given: Any) -> tuple[Tensor]:
        return gated.forward(Inputs(*given), how.mask, how.cu, s0, False, False)[:1]

    return guarded(run, x, columns=2, whole=(1, 3, 4, 5, 6), mask=how.mask)[0]


class _Kernel(torch.autograd.Function):
    """Saved for the backward pass are the inputs and one state in 128 tokens."""

    @staticmethod
    def forward(ctx: Any, how: _How, *given: Tensor | None) -> tuple[Tensor, Tensor | None]:
        out, s, kept = _forward(how, given, keep=True)
        ctx.how = how
        ctx.save_for_backward(*given, kept)
        ctx.set_materialize_grads(False)
        return out, s

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        *given, kept = ctx.saved_tensors
        how: _How = ctx.how
        x, s0, (g, gs) = Inputs(*given[:7]), given[7], grads
        if not backward_allowed(*grads):

            def plain(*given: Any) -> tuple[Any, ...]:
                x = Inputs(*given[:7])
                if x.decay is not None and x.erase is None and x.decay.shape[3] == 1:
                    x = x._replace(decay=x.decay[..., 0])  # one per head
                out, end = how.plain(*x, given[7])
                return out, None if end is None else end.s

            return None, *gradients(plain, tuple(given), grads)
        g = torch.zeros_like(x.v) if g is None else g
        slopes, ds0 = gated.backward(g, gs, x, how.mask, how.cu, kept, s0 is not None and s0.requires_grad)
        return None, *slopes, ds0
