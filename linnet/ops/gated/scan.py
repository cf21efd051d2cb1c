"""Linear scan: each number is the previous one times a decay, plus a new term; the core of Mamba and RWKV-4.

    h_t = a_t h_{t-1} + b_t,   0 <= a_t <= 1           exact for any decay: no division, no overflow

    in_order    one fused multiply-add per token; each slice stays in the cache
    doubling    log2(T) passes over the whole tensor (Hillis & Steele 1986): (a, b) after (a', b') is (a a', a b' + b)

Time comes first: a, b, h [T,...], the start h_0 [...]; a may have axes of size 1 that b does not. At 64 x 16 x 128
numbers per token `in_order` took 1.5 ms for 16 tokens and 21 ms for 64, `doubling` 14 ms and 162 ms (one core,
float32); only for a few hundred numbers per token or fewer is `doubling` faster.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ..native_allowed import by_hand, gradients, readable


def linear_scan(a: Tensor, b: Tensor, start: Tensor) -> Tensor:  # [T,...], [T,...], [...] -> [T,...]
    """Return all h_t: in order on a CPU, by doubling elsewhere and in recorded graphs."""
    if not eager(a, b, start):
        return doubling(a, b, start)
    h: Tensor = _Scan.apply(a, b, start)
    return h


def eager(*tensors: Tensor) -> bool:
    """Return True when a hand-written gradient may be used: CPU tensors, no tangents, no recorded graph."""
    return readable(*tensors) and forward_ad._current_level < 0


def in_order(a: Tensor, b: Tensor, h: Tensor) -> Tensor:
    """Fill one new tensor token by token; autograd does not see it."""
    out = torch.empty_like(b)
    for a_t, b_t, out_t in zip(a, b, out, strict=True):
        h = torch.addcmul(b_t, a_t, h, out=out_t)
    return out


def backwards(a: Tensor, g: Tensor) -> None:
    """Turn gradients of direct uses of h_t into total ones, in place: g_t += a_{t+1} g_{t+1}, from the end."""
    parts = list(zip(a, g, strict=True))
    for (a_next, g_next), (_, g_t) in zip(parts[:0:-1], parts[-2::-1], strict=True):
        g_t.addcmul_(a_next, g_next)


def doubling(a: Tensor, b: Tensor, start: Tensor) -> Tensor:
    """Combine every token with the partial results 1, 2, 4, ... places back."""
    T, reach = b.shape[0], 1
    b = torch.cat([a[:1] * start + b[:1], b[1:]])
    while reach < T:
        b = torch.cat([b[:reach], a[reach:] * b[:-reach] + b[reach:]])
        a = torch.cat([a[:reach], a[reach:] * a[:-reach]])
        reach *= 2
    return b


class _Scan(torch.autograd.Function):
    """`in_order` with its gradient: the same scan from the end to the start."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, start: Tensor) -> Tensor:
        h = in_order(a, b, start)
        ctx.save_for_backward(a, b, start, h)
        return h

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        a, b, start, h = ctx.saved_tensors
        if not by_hand(*grads):  # create_graph
            return tuple(gradients(doubling, (a, b, start), grads))
        g = grads[0].clone(memory_format=torch.contiguous_format)
        backwards(a, g)
        past = torch.cat([start[None], h[:-1]])
        return (g * past).sum_to_size(a.shape), g, a[0] * g[0]
