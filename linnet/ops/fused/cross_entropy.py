"""Cross entropy of a linear head, without the scores of all tokens in memory.

    sum_r  log sum_n exp(w_n . h_r + b_n) - (w_y . h_r + b_y),  y = targets_r;  gradient of the scores: softmax - onehot

A block of tokens at a time: its scores, its losses and, in the same pass, its part of the gradients, so that the scores
are dropped before the next block. Memory is that of a block, not of tokens times vocabulary. Where many tokens have no
target, those with one are gathered first, and the others have no scores at all.
E model width, N vocabulary:  h [..., E]   weight [N,E]   bias [N] or None   targets [...] long
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ...native import memory, nn
from ..checks import check_floating, check_memory
from ..native_allowed import BLOCK, by_kernel, gradients, native, readable, rows, wants_graph

SCORES = 1 << 20  # numbers in a block of scores: 4 MiB
MOST_GATHERED = 0.75  # of all tokens: with more targets than this, copying rows costs what it saves


def linear_cross_entropy(
    h: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, ignore_index: int = -100
) -> tuple[Tensor, Tensor]:
    """Return (sum of nats over targets that are not `ignore_index`, their number); float32 unless given float64."""
    check_floating("h", h)
    flat = targets.reshape(-1).long()
    counted = flat != ignore_index
    count = counted.sum()
    at = torch.where(counted, flat, -1)
    if readable(targets):
        _check(at, weight.shape[0], ignore_index)
        if count <= MOST_GATHERED * len(at):
            here = counted.nonzero()[:, 0]
            h, flat, at = h.flatten(0, -2).index_select(0, here), flat[here], at[here]
    try:
        if not native(h, weight, bias) or not readable(targets):
            return _plain(h, weight, bias, targets=flat, ignore_index=ignore_index), count
        if wants_graph(h, weight, bias):
            return _LinearCrossEntropy.apply(h, weight, bias, at, flat, ignore_index), count
        return _forward(rows(h), weight, bias, at, None, None, None), count
    except RuntimeError:  # torch names neither the tensor nor a way out
        check_memory(h=h, weight=weight, bias=bias)
        raise


def _check(at: Tensor, vocabulary: int, ignore_index: int) -> None:
    low, high = (0, 0) if at.numel() == 0 else (int(x) for x in torch.aminmax(at))
    if low < -1 or high >= vocabulary:
        wrong = high if high >= vocabulary else low
        raise ValueError(f"targets has {wrong}; accepted: 0 to {vocabulary - 1}, or {ignore_index} for no loss")


def _plain(h: Tensor, weight: Tensor, bias: Tensor | None, *, targets: Tensor, ignore_index: int) -> Tensor:
    scores = F.linear(h, weight, bias).flatten(0, -2)
    scores = scores if scores.dtype == torch.float64 else scores.float()
    return F.cross_entropy(scores, targets, ignore_index=ignore_index, reduction="sum")


def _forward(
    h: Tensor, weight: Tensor, bias: Tensor | None, at: Tensor, dh: Tensor | None, dweight: Tensor | None,
    dbias: Tensor | None,
) -> Tensor:  # fmt: skip
    """The sum of the losses of rows h [R,E]; the gradients are written to or added to what is not None."""
    R, N = h.shape[0], weight.shape[0]
    step = max(16, min(BLOCK, SCORES // max(N, 1)))
    wanted = dh is not None or dweight is not None or dbias is not None
    scores, losses = memory.fresh(min(step, R), N), memory.fresh(R)
    for start in range(0, R, step):
        part = slice(start, min(start + step, R))
        s = scores[: part.stop - start]
        if bias is None:
            torch.mm(h[part], weight.t(), out=s)
        else:
            torch.addmm(bias, h[part], weight.t(), out=s)
        nn.cross_entropy(s, at[part], losses[part], gradient=wanted)
        if dh is not None:
            torch.mm(s, weight, out=dh[part])
        if dweight is not None:
            dweight.addmm_(s.t(), h[part])
        if dbias is not None:
            nn.column_sums(s, dbias)
    return losses.sum(dtype=torch.float64).float()


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, bias: Any, at: Tensor, targets: Tensor, ignore: int) -> Tensor:
        dense, (need_h, need_w, need_b, *_) = rows(h), ctx.needs_input_grad
        dh = memory.empty(*dense.shape) if need_h else None
        dweight = torch.zeros_like(weight) if need_w else None
        dbias = bias.new_zeros(len(bias)) if need_b else None
        loss = _forward(dense, weight, bias, at, dh, dweight, dbias)
        ctx.save_for_backward(h, weight, bias, targets, dh, dweight, dbias)
        ctx.ignore = ignore
        return loss

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
        h, weight, bias, targets, dh, dweight, dbias = ctx.saved_tensors
        if not by_kernel(g):
            again = partial(_plain, targets=targets, ignore_index=ctx.ignore)
            return *gradients(again, (h, weight, bias), (g,)), None, None, None
        dh, dweight, dbias = (None if d is None else d * g for d in (dh, dweight, dbias))
        return None if dh is None else dh.view(h.shape), dweight, dbias, None, None, None
