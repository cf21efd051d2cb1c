"""The MLP of a block as one op: both products and the activation, a block of tokens at a time.

    relu, gelu:  W2 act(W1 x + b1) + b2        swiglu:  W2 (silu(g) * u) + b2,  (g, u) = W1 x + b1

The hidden layer of a block of tokens is still in the cache when the activation and the second product read it. Only
W1 x + b1 is saved for the backward pass, which computes act and its derivative in one pass.
E model width, F hidden width:  x [..., E]   up [F,E] ([2F,E] for swiglu)   down [E,F]
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ...native import memory, nn
from ..checks import check_memory
from ..native_allowed import BLOCK, SMALLEST, by_kernel, gradients, native, rows, wants_graph


def mlp(
    x: Tensor, up: Tensor, up_bias: Tensor | None, down: Tensor, down_bias: Tensor | None, kind: str = "gelu"
) -> Tensor:
    """Map x [..., E] to [..., E]; kind "relu", "gelu" (exact, by the error function) or "swiglu"."""
    given = (x, up, up_bias, down, down_bias)
    try:
        if x.numel() < SMALLEST or not native(*given):
            return _plain(*given, kind=kind)
        if wants_graph(*given):
            return _MLP.apply(*given, kind)
        return _forward(rows(x), *given[1:], kind, None).view(*x.shape[:-1], -1)
    except RuntimeError:  # torch names neither the tensor nor a way out
        check_memory(x=x, up=up, up_bias=up_bias, down=down, down_bias=down_bias)
        raise


def _plain(x: Tensor, up: Tensor, b1: Tensor | None, down: Tensor, b2: Tensor | None, *, kind: str) -> Tensor:
    hidden = F.linear(x, up, b1)
    if kind == "swiglu":
        gate, value = hidden.chunk(2, dim=-1)
        return F.linear(F.silu(gate) * value, down, b2)
    return F.linear(F.relu(hidden) if kind == "relu" else F.gelu(hidden), down, b2)


def _forward(
    x: Tensor, up: Tensor, b1: Tensor | None, down: Tensor, b2: Tensor | None, kind: str, hidden: Tensor | None
) -> Tensor:
    """Return out [R,E]; `hidden` [R,.] receives W1 x + b1, when the backward pass needs it."""
    R, out = x.shape[0], memory.empty(x.shape[0], down.shape[0])
    act = memory.fresh(min(BLOCK, R), down.shape[1])
    spare = memory.fresh(min(BLOCK, R), up.shape[0]) if hidden is None else hidden
    for start in range(0, R, BLOCK):
        part = slice(start, min(start + BLOCK, R))
        n = part.stop - start
        h, a = spare[:n] if hidden is None else hidden[part], act[:n]
        torch.mm(x[part], up.t(), out=h)
        nn.activation(kind, h, b1, a)
        _product(b2, a, down.t(), out[part])
    return out


def _product(bias: Tensor | None, a: Tensor, b: Tensor, out: Tensor) -> None:
    if bias is None:
        torch.mm(a, b, out=out)
    else:
        torch.addmm(bias, a, b, out=out)


class _MLP(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, up: Tensor, b1: Any, down: Tensor, b2: Any, kind: str) -> Tensor:
        dense = rows(x)
        hidden = memory.empty(dense.shape[0], up.shape[0])
        out = _forward(dense, up, b1, down, b2, kind, hidden)
        ctx.save_for_backward(x, up, b1, down, b2, hidden)
        ctx.kind = kind
        return out.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
        *given, hidden = ctx.saved_tensors
        if not by_kernel(g):
            return *gradients(partial(_plain, kind=ctx.kind), tuple(given), (g,)), None
        x, up, b1, down, b2 = given
        dx, dup, db1, ddown, db2 = _backward(rows(g), rows(x), up, b1, down, b2, hidden, ctx.kind)
        return dx.view(x.shape), dup, db1, ddown, db2, None


def _backward(
    g: Tensor, x: Tensor, up: Tensor, b1: Tensor | None, down: Tensor, b2: Tensor | None, hidden: Tensor, kind: str
) -> tuple[Any, ...]:
    R, most = x.shape[0], min(BLOCK, x.shape[0])
    dx, dup, ddown = memory.empty(*x.shape), torch.zeros_like(up), torch.zeros_like(down)
    db1, db2 = (None if b is None else b.new_zeros(len(b)) for b in (b1, b2))
    da, act = memory.fresh(most, down.shape[1]), memory.fresh(most, down.shape[1])
    dh = memory.fresh(most, up.shape[0]) if kind == "swiglu" else da
    for start in range(0, R, BLOCK):
        part = slice(start, min(start + BLOCK, R))
        n = part.stop - start
        torch.mm(g[part], down, out=da[:n])
        nn.activation_backward(kind, da[:n], hidden[part], dh[:n], act[:n], db1)
        ddown.addmm_(g[part].t(), act[:n])
        dup.addmm_(dh[:n].t(), x[part])
        torch.mm(dh[:n], up, out=dx[part])
        if db2 is not None:
            nn.column_sums(g[part], db2)
    return dx, dup, db1, ddown, db2
