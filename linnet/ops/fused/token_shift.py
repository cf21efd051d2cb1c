"""The mixtures of token shift: several shares of the same change of a token, in one pass of the native library.

    out_k = x + share_k change     dx = sum_k g_k,  dchange = sum_k share_k g_k,  dshare_k = sum over rows of g_k change

RWKV has a mixture for each of its projections: six in RWKV-7, each one more sweep over memory in torch, and five more
for its gradients. x, change [...,N]   share [K,N]. Plain torch wherever the kernel cannot run, see native_allowed.py.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...native import nn
from ..native_allowed import SMALLEST, by_kernel, gradients, native, rows, wants_graph


def mixtures(x: Tensor, change: Tensor, share: Tensor) -> tuple[Tensor, ...]:
    """Return x + share_k change for each of the K rows of `share`."""
    if x.numel() < SMALLEST or len(share) > nn.MOST_MIXTURES or not native(x, change, share):
        return _plain(x, change, share)
    if wants_graph(x, change, share):
        return _Mixtures.apply(x, change, share)
    return nn.mixtures(rows(x), rows(change), rows(share)).view(len(share), *x.shape).unbind(0)


def _plain(x: Tensor, change: Tensor, share: Tensor) -> tuple[Tensor, ...]:
    return tuple(x + one * change for one in share)


class _Mixtures(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, change: Tensor, share: Tensor) -> tuple[Tensor, ...]:
        ctx.save_for_backward(x, change, share)
        ctx.set_materialize_grads(False)
        out = nn.mixtures(rows(x), rows(change), rows(share))
        return tuple(y.view(x.shape) for y in out.unbind(0))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        x, change, share = ctx.saved_tensors
        if not by_kernel(*grads):
            return tuple(gradients(_plain, (x, change, share), grads))
        given = [None if g is None else rows(g) for g in grads]
        dx, dchange, dshare = nn.mixtures_backward(given, rows(change), rows(share))
        return dx.view(x.shape), dchange.view(x.shape), dshare
