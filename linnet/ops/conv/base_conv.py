"""BaseConv as one fused op: a short convolution times a linear gate, plus its input.

    y = c * (W x + b) + x,      c_t = bias + sum_{j<K} w_j x_{t-j}            Arora et al. 2023, arXiv:2312.04927

Whole sequences without state, padding or packing, as in training; the layer composes `short_conv` and the gate for
those. Natively the gate is one product and the rest one pass; the backward pass computes d gate and its direct part of
dx in one pass, and the products add theirs in place.
B batch, T time, E channels, K taps:  x, y [B,T,E]   weight [E,K]   bias [E]   gate_weight [E,E]   gate_bias [E]
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ...native import memory, nn
from ..checks import check_memory
from ..dispatch import check_names
from ..native_allowed import by_kernel, gradients, rows, wants_graph
from .causal_conv import backend_of, newest_first, plain_conv
from .short_conv import short_conv


def base_conv(
    x: Tensor, weight: Tensor, bias: Tensor, gate_weight: Tensor, gate_bias: Tensor, *, form: str = "auto",
    backend: str = "auto",
) -> Tensor:  # fmt: skip
    """Map x [B,T,E] to y [B,T,E]; `backend` is "auto", "torch" or "native"."""
    given = (x, weight, bias, gate_weight, gate_bias)
    check_names("base_conv", form, backend)
    try:
        if backend_of("base_conv", backend, *given) != "native":
            conv, _ = short_conv(x, weight, bias, backend=backend if backend == "torch" else "auto")
            return torch.addcmul(x, conv, F.linear(x, gate_weight, gate_bias))
        if wants_graph(*given):
            return _BaseConv.apply(*given)
        return _forward(*given)[0]
    except RuntimeError:  # torch names neither the tensor nor a way out
        check_memory(x=x, weight=weight, bias=bias, gate_weight=gate_weight, gate_bias=gate_bias)
        raise


def _forward(x: Tensor, weight: Tensor, bias: Tensor, gate_weight: Tensor, gate_bias: Tensor) -> tuple[Tensor, Tensor]:
    dense = rows(x)
    gate = torch.addmm(gate_bias, dense, gate_weight.t(), out=memory.empty(*dense.shape))  # [B T,E]
    return nn.causal_conv(dense, newest_first(weight), bias, gate, x.shape[1]).view(x.shape), gate


def _plain(x: Tensor, weight: Tensor, bias: Tensor, gate_weight: Tensor, gate_bias: Tensor) -> Tensor:
    return torch.addcmul(x, plain_conv(x, weight, bias), F.linear(x, gate_weight, gate_bias))


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
        dx, dw, db, dgate = nn.causal_conv_backward(rows(g), dense, newest_first(weight), bias, gate, length)
        assert dgate is not None
        dgate_bias = gate_bias.new_zeros(len(gate_bias))
        nn.column_sums(dgate, dgate_bias)
        return dx.addmm_(dgate, gate_weight).view(x.shape), dw.flip(0).t(), db, dgate.t() @ dense, dgate_bias
