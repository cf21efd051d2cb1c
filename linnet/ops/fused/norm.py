"""LayerNorm and RMSNorm over the last axis; forward and backward are one pass each in the native library.

    layer_norm: (x - mean) / sqrt(var + eps) * weight + bias      Ba et al. 2016, arXiv:1607.06450
    rms_norm:   x / sqrt(mean(x^2) + eps) * weight                Zhang and Sennrich 2019, arXiv:1910.07467

x [..., N]; weight, bias [N] or None. Plain torch wherever the kernel cannot run, see native_allowed.py.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ...native import nn
from ..checks import check_memory
from ..native_allowed import SMALLEST, by_kernel, gradients, native, rows, wants_graph


def layer_norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """Normalize every row to mean 0 and variance 1, then apply weight and bias."""
    return _norm(x, weight, bias, eps, False)


def rms_norm(x: Tensor, weight: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """Normalize every row to mean square 1, then apply the weight."""
    return _norm(x, weight, None, eps, True)


def _norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, rms: bool) -> Tensor:
    try:
        if x.numel() < SMALLEST or not native(x, weight, bias):
            return _plain(x, weight, bias, eps=eps, rms=rms)
        if wants_graph(x, weight, bias):
            return _Norm.apply(x, weight, bias, eps, rms)
        return nn.norm(rows(x), weight, bias, eps, rms)[0].view(x.shape)
    except RuntimeError:  # torch names neither the tensor nor a way out
        check_memory(x=x, weight=weight, bias=bias)
        raise


def _plain(x: Tensor, weight: Tensor | None, bias: Tensor | None, *, eps: float, rms: bool) -> Tensor:
    if rms:
        return F.rms_norm(x, x.shape[-1:], weight, eps)
    return F.layer_norm(x, x.shape[-1:], weight, bias, eps)


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, rms: bool) -> Tensor:
        out, stat = nn.norm(rows(x), weight, bias, eps, rms)
        ctx.save_for_backward(x, weight, bias, stat)
        ctx.eps, ctx.rms = eps, rms
        return out.view(x.shape)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
        x, weight, bias, stat = ctx.saved_tensors
        if not by_kernel(g):
            return *gradients(partial(_plain, eps=ctx.eps, rms=ctx.rms), (x, weight, bias), (g,)), None, None
        dx, dweight, dbias = nn.norm_backward(rows(g), rows(x), weight, stat, ctx.rms, bias is not None)
        return dx.view(x.shape), dweight, dbias, None, None
