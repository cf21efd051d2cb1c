"""The convolution inside the short convolution: every token is real, and zeros precede the first.

    y_t = bias + sum_{j<K} w_j x_{t-j},      w_j = column K - 1 - j of the weight: for the input j tokens ago

The native library does one pass in each direction. Elsewhere, K multiply-adds of whole tensors with a hand-written
gradient; plain torch where a graph is recorded.
B batch, T time, E channels, K taps:  x, y [B,T,E]   weight [E,K]   bias [E] or None
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...native import nn
from ..dispatch import choose
from ..native_allowed import SMALLEST, by_hand, by_kernel, gradients, refused, rows, transformed, wants_graph


def causal_conv(x: Tensor, weight: Tensor, bias: Tensor | None, backend: str = "auto") -> Tensor:
    """Map x [B,T,E], weight [E,K] to y [B,T,E]; all of one dtype."""
    if backend_of("short_conv", backend, x, weight, bias) == "native":
        if wants_graph(x, weight, bias):
            return _Native.apply(x, weight, bias)
        return nn.causal_conv(rows(x), newest_first(weight), bias, None, x.shape[1]).view(x.shape)
    plain = torch.compiler.is_compiling() or transformed()  # these record the operations, or carry tangents
    return plain_conv(x, weight, bias) if plain else _Plain.apply(x, weight, bias)


def backend_of(op: str, backend: str, x: Tensor, *others: Tensor | None) -> str:
    """Return the backend for these tensors: unless requested by name, the kernel only where it pays off."""
    if backend == "auto" and x.numel() < SMALLEST:  # as `refused` decides, without its sentence
        return "torch"
    size = x.numel() if backend == "auto" else None
    chosen = choose(op, "auto", backend, x.shape[1], lambda: refused(size, x, *others)).backend
    return chosen if x.numel() else "torch"  # nothing for a kernel to write


class _Native(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight, bias)
        return nn.causal_conv(rows(x), newest_first(weight), bias, None, x.shape[1]).view(x.shape)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
        x, weight, bias = ctx.saved_tensors
        if not by_kernel(g):
            return tuple(gradients(plain_conv, (x, weight, bias), (g,)))
        dx, dw, db, _ = nn.causal_conv_backward(rows(g), rows(x), newest_first(weight), bias, None, x.shape[1])
        return dx.view(x.shape), dw.flip(0).t(), None if bias is None else db


def newest_first(weight: Tensor) -> Tensor:  # [E,K] -> [K,E]
    return weight.t().flip(0).contiguous()


def plain_conv(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # [B,T,E] -> [B,T,E]
    """Do K multiply-adds of whole tensors: no padded copy, and no copy to the [B,E,T] of torch's conv1d."""
    w, T = newest_first(weight), x.shape[1]
    y = x * w[0] if bias is None else torch.addcmul(bias, x, w[0])
    for j in range(1, min(len(w), T)):
        if torch._C._are_functorch_transforms_active():  # which do not support addcmul_
            y = torch.cat([y[:, :j], y[:, j:] + x[:, : T - j] * w[j]], dim=1)
        else:
            y[:, j:].addcmul_(x[:, : T - j], w[j])
    return y


class _Plain(torch.autograd.Function):
    """`plain_conv` with a hand-written gradient: autograd fills a tensor of zeros for each slice."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return plain_conv(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (g,) = grads  # [B,T,E]
        x, weight = ctx.saved_tensors
        need_x, need_weight, need_bias = ctx.needs_input_grad
        if not by_hand(g) and not torch.is_grad_enabled():
            return *gradients(partial(plain_conv, bias=None), (x, weight), (g,)), g.sum((0, 1)) if need_bias else None
        return (
            _conv_to_input(g, weight) if need_x else None,
            _conv_to_weight(g, x, weight.shape[1]) if need_weight else None,
            g.sum((0, 1)) if need_bias else None,
        )


def _conv_to_input(g: Tensor, weight: Tensor) -> Tensor:  # [B,T,E] -> [B,T,E]
    """Return the same convolution backwards in time."""
    w, T = newest_first(weight), g.shape[1]
    dx = g * w[0]
    for j in range(1, min(len(w), T)):
        dx[:, : T - j].addcmul_(g[:, j:], w[j])
    return dx


def _conv_to_weight(g: Tensor, x: Tensor, size: int) -> Tensor:  # -> [E,K]
    T = x.shape[1]
    sums = [(g[:, j:] * x[:, : T - j]).sum((0, 1)) for j in range(min(size, T))]  # from the newest tap backwards
    return torch.stack([*[x.new_zeros(x.shape[2])] * (size - len(sums)), *reversed(sums)], dim=1)
