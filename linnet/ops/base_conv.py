"""BaseConv as one op: a short convolution, times a linear gate, beside its input.

    y = c * (W x + b) + x,      c_t = bias + sum_{j<K} w_j x_{t-j}            Arora et al. 2023, arXiv:2312.04927

Whole sequences, nothing before the first token and no padding, as in training. Natively the gate is one product and the
rest one sweep; backward one sweep gives d gate and what it alone adds to dx, and the products add theirs in place.
B batch, T time, E channels, K taps:  x, y [B,T,E]   weight [E,K]   bias [E]   gate_weight [E,E]   gate_bias [E]
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..native import memory, nn
from .eager import SMALLEST, by_kernel, gradients, native, rows, wants_graph
from .short_conv import short_conv
from .taps import newest_first, plain_taps


def base_conv(x: Tensor, weight: Tensor, bias: Tensor, gate_weight: Tensor, gate_bias: Tensor) -> Tensor:
    """x [B,T,E] -> y [B,T,E]."""
    given = (x, weight, bias, gate_weight, gate_bias)
    if x.numel() < SMALLEST or not native(*given):
        return torch.addcmul(x, short_conv(x, weight, bias)[0], F.linear(x, gate_weight, gate_bias))
    if wants_graph(*given):
        return _BaseConv.apply(*given)
    return _forward(*given)[0]


def _forward(x: Tensor, weight: Tensor, bias: Tensor, gate_weight: Tensor, gate_bias: Tensor) -> tuple[Tensor, Tensor]:
    dense = rows(x)
    gate = torch.addmm(gate_bias, dense, gate_weight.t(), out=memory.empty(*dense.shape))  # [B T,E]
    return nn.taps(dense, newest_first(weight), bias, gate, x.shape[1]).view(x.shape), gate


def _plain(x: Tensor, weight: Tensor, bias: Tensor, gate_weight: Tensor, gate_bias: Tensor) -> Tensor:
    return torch.addcmul(x, plain_taps(x, weight, bias), F.linear(x, gate_weight, gate_bias))


class _BaseConv(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Tensor) -> Tensor:
        out, gate = _forward(*given)
        ctx.save_for_backward(*given, gate)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
        *given, gate = ctx.saved_tensors
        if not by_kernel(g):
            return tuple(gradients(_plain, tuple(given), (g,)))
        x, weight, bias, gate_weight, gate_bias = given
        dense, length = rows(x), x.shape[1]
        dx, dw, db, dgate = nn.taps_backward(rows(g), dense, newest_first(weight), bias, gate, length)
        assert dgate is not None
        dgate_bias = gate_bias.new_zeros(len(gate_bias))
        nn.column_sums(dgate, dgate_bias)
        return dx.addmm_(dgate, gate_weight).view(x.shape), dw.flip(0).t(), db, dgate.t() @ dense, dgate_bias
