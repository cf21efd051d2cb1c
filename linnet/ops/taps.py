"""The convolution inside the short convolution: every token real, and nothing before the first.

    y_t = bias + sum_{j<K} w_j x_{t-j},      w_j = column K - 1 - j of the weight: for the input j tokens ago

One sweep each way through the native library. Elsewhere K multiply-adds of whole tensors, with the gradient written
out; plain torch where a graph is recorded.
B batch, T time, E channels, K taps:  x, y [B,T,E]   weight [E,K]   bias [E] or None
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..native import nn
from .eager import SMALLEST, by_kernel, gradients, native, rows, transformed, wants_graph


def taps(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x [B,T,E], weight [E,K] -> y [B,T,E]; all of one dtype."""
    if x.numel() >= SMALLEST and native(x, weight, bias):
        if wants_graph(x, weight, bias):
            return _Native.apply(x, weight, bias)
        return nn.taps(rows(x), newest_first(weight), bias, None, x.shape[1]).view(x.shape)
    plain = torch.compiler.is_compiling() or transformed()  # these look inside, or carry tangents
    return plain_taps(x, weight, bias) if plain else _Taps.apply(x, weight, bias)


class _Native(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight, bias)
        return nn.taps(rows(x), newest_first(weight), bias, None, x.shape[1]).view(x.shape)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
        x, weight, bias = ctx.saved_tensors
        if not by_kernel(g):
            return tuple(gradients(plain_taps, (x, weight, bias), (g,)))
        dx, dw, db, _ = nn.taps_backward(rows(g), rows(x), newest_first(weight), bias, None, x.shape[1])
        return dx.view(x.shape), dw.flip(0).t(), None if bias is None else db


def newest_first(weight: Tensor) -> Tensor:  # [E,K] -> [K,E]
    return weight.t().flip(0).contiguous()


def plain_taps(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # [B,T,E] -> [B,T,E]
    """K multiply-adds of whole tensors. No padded copy, and no copy to the [B,E,T] that torch's conv1d wants."""
    w, T = newest_first(weight), x.shape[1]
    y = x * w[0] if bias is None else torch.addcmul(bias, x, w[0])
    for j in range(1, min(len(w), T)):
        if torch._C._are_functorch_transforms_active():  # which know no addcmul_
            y = torch.cat([y[:, :j], y[:, j:] + x[:, : T - j] * w[j]], dim=1)
        else:
            y[:, j:].addcmul_(x[:, : T - j], w[j])
    return y


class _Taps(torch.autograd.Function):
    """`plain_taps` with the gradient written out: autograd's own fills a tensor of zeros for each slice."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return plain_taps(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (g,) = grads  # [B,T,E]
        x, weight = ctx.saved_tensors
        need_x, need_weight, need_bias = ctx.needs_input_grad
        return (
            _taps_to_input(g, weight) if need_x else None,
            _taps_to_weight(g, x, weight.shape[1]) if need_weight else None,
            g.sum((0, 1)) if need_bias else None,
        )


def _taps_to_input(g: Tensor, weight: Tensor) -> Tensor:  # [B,T,E] -> [B,T,E]
    """The same convolution backwards in time."""
    w, T = newest_first(weight), g.shape[1]
    dx = g * w[0]
    for j in range(1, min(len(w), T)):
        dx[:, : T - j].addcmul_(g[:, j:], w[j])
    return dx


def _taps_to_weight(g: Tensor, x: Tensor, size: int) -> Tensor:  # -> [E,K]
    T = x.shape[1]
    sums = [(g[:, j:] * x[:, : T - j]).sum((0, 1)) for j in range(min(size, T))]  # from the newest tap back
    return torch.stack([*[x.new_zeros(x.shape[2])] * (size - len(sums)), *reversed(sums)], dim=1)
