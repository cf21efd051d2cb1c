"""The chunked form of decayed attention: scores inside a chunk, the state from chunk to chunk, and their gradient.

    A_tj = q_t . exp(G_t - G_j) k_j   for j <= t in one chunk,   out = A v + (q exp(G)) S,   G = cumsum(decay)
    S' = exp(G_C) S + (k exp(G_C - G))^T v                        S, S' before and after the chunk

Only exponents <= 0 are taken. Per head, exp(G_t - G_j) is a matrix. Per channel it is exp(G_t - G_m) exp(G_m - G_j),
with any m from j to t: the later half of a chunk meets the earlier half across its middle, and so on inside the halves.
In the gradient, exp(G) is a factor of q and its inverse one of k wherever they occur: dG = q dq - k dk.
B batch, H heads, M chunks of C tokens, D key width, V value width:  q, k [B,H,M,C,D]  v, out [B,H,M,C,V]  a [B,H,M,C,C]
decay, G [B,H,M,C,1] per head or [B,H,M,C,D] per channel, its B may be 1;   s [B,H,D,V]
"""

from __future__ import annotations

from math import inf
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..native_allowed import by_hand, gradients, transformed
from ..precision import finest


class _Fades(NamedTuple):
    """The decay of a token between two places of a chunk."""

    enter: Tensor  # exp(G), from the start of the chunk to a token [B,H,M,C,.]
    leave: Tensor  # exp(G_C - G), from a token to the end of the chunk [B,H,M,C,.]
    kept: Tensor  # exp(G_C), from start to end [B,H,M,.,1]
    inside: tuple[Tensor, ...]  # from token to token: [B,H,M,C,C], or for each size of halves the later and the earlier


def chunks(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """Return out [B,H,M,C,V] and the state after the last chunk; C is a power of two if the decay is per channel."""
    if torch.compiler.is_compiling() or transformed():  # these record the operations, or carry tangents
        return _plain(q, k, v, decay, s)
    out, last = _Chunks.apply(q, k, v, decay, s)
    return out, last


def _plain(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    fades = _fades(decay)
    states = _states(fades, k, v, s)
    return _read(fades, scores(q, k, fades.inside), q, v, states), states[-1]


class _Chunks(torch.autograd.Function):
    """`_plain` with a hand-written gradient: that of autograd makes several more passes over [C,C]."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, decay: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        fades = _fades(decay)
        states = _states(fades, k, v, s)
        a = scores(q, k, fades.inside)
        ctx.save_for_backward(q, k, v, decay, s, a, torch.stack(states[1:], dim=2), *fades[:3], *fades.inside)
        return _read(fades, a, q, v, states), states[-1]

    @staticmethod
    def backward(ctx: Any, dout: Tensor, ds: Tensor) -> tuple[Any, ...]:
        q, k, v, decay, s, a, after, enter, leave, kept, *inside = ctx.saved_tensors
        if not by_hand(dout, ds):
            return tuple(gradients(_plain, (q, k, v, decay, s), (dout, ds)))
        dout = dout.contiguous()
        before = torch.cat([s[:, :, None], after[:, :, :-1]], dim=2)  # [B,H,M,D,V]
        dafter = []
        for factor, read in zip(kept.unbind(2)[::-1], ((q * enter).mT @ dout).unbind(2)[::-1], strict=True):
            dafter.append(ds)
            ds = torch.addcmul(read, factor, ds)
        dadded = torch.stack(dafter[::-1], dim=2)
        dq, dk = scores_backward(dout @ v.mT, q, k, inside)
        dq.addcmul_(dout @ before.mT, enter)
        dk.addcmul_(v @ dadded.mT, leave)
        dv = _add_product((k * leave) @ dadded, a.mT, dout)
        dsums = q * dq - k * dk
        dsums[..., -1, :] += (dadded * after).sum(-1)
        ddecay = dsums.sum(-1, keepdim=True) if decay.shape[-1] == 1 else dsums
        return dq, dk, dv, ddecay.flip(-2).cumsum(-2).flip(-2), ds  # autograd sums rows that share a decay


def _fades(decay: Tensor) -> _Fades:
    sums = decay.to(finest(decay)).cumsum(-2)
    last = sums[..., -1:, :]
    by_head = decay.shape[-1] == 1
    inside = (_head_fade(sums, decay.dtype),) if by_head else channel_fades(sums, decay.dtype)
    enter, leave, kept = (x.to(decay.dtype).exp() for x in (sums, last - sums, last.mT))
    return _Fades(enter, leave, kept, inside)


def _states(fades: _Fades, k: Tensor, v: Tensor, s: Tensor) -> list[Tensor]:
    """Return the states before the first chunk and after every one."""
    states = [s]
    added = (k * fades.leave).mT @ v  # [B,H,M,D,V]
    for factor, new in zip(fades.kept.unbind(2), added.unbind(2), strict=True):
        states.append(torch.addcmul(new, factor, states[-1]))
    return states


def _read(fades: _Fades, a: Tensor, q: Tensor, v: Tensor, states: list[Tensor]) -> Tensor:
    return _add_product((q * fades.enter) @ torch.stack(states[:-1], dim=2), a, v)


def _add_product(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Return x + a b [B,H,M,C,V] in one pass."""
    return torch.baddbmm(x.flatten(0, 2), a.flatten(0, 2), b.flatten(0, 2)).view_as(x)


def _head_fade(sums: Tensor, dtype: torch.dtype) -> Tensor:
    """Return exp(G_t - G_j), 0 for future tokens: [B,H,M,C,1] -> [B,H,M,C,C]"""
    size = sums.shape[-2]
    future = torch.ones(size, size, dtype=torch.bool, device=sums.device).triu(1)
    return (sums - sums.mT).to(dtype).masked_fill(future, -inf).exp()


def channel_fades(sums: Tensor, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Return exp(G_t - G_m), exp(G_m - G_j) for halves of 1, 2, 4, ... C/2 tokens: pairs of [B,H,M,C/2half,half,D]"""
    fades: list[Tensor] = []
    half = 1
    while half < sums.shape[-2]:
        early, late = _halves(sums, half)
        middle = early[..., -1:, :]
        fades += [(late - middle).to(dtype).exp(), (middle - early).to(dtype).exp()]
        half *= 2
    return tuple(fades)


def scores(q: Tensor, k: Tensor, fades: tuple[Tensor, ...]) -> Tensor:
    if len(fades) == 1:
        return q @ k.mT * fades[0]
    a = q.new_zeros(*q.shape[:-1], q.shape[-2])
    a.diagonal(dim1=-2, dim2=-1).copy_((q * k).sum(-1))
    for late, early in zip(fades[::2], fades[1::2], strict=True):
        half = late.shape[-2]
        _corners(a, half).copy_((_halves(q, half)[1] * late) @ (_halves(k, half)[0] * early).mT)
    return a


def scores_backward(da: Tensor, q: Tensor, k: Tensor, fades: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Return the gradients of q and k [B,H,M,C,D] from that of the scores, whose upper triangle is ignored."""
    if len(fades) == 1:
        da = da * fades[0]
        return da @ k, da.mT @ q
    alone = da.diagonal(dim1=-2, dim2=-1)[..., None]  # [B,H,M,C,1]
    dq, dk = alone * k, alone * q
    for late, early in zip(fades[::2], fades[1::2], strict=True):
        half = late.shape[-2]
        corner = _corners(da, half)
        _halves(dq, half)[1].addcmul_(corner @ (_halves(k, half)[0] * early), late)
        _halves(dk, half)[0].addcmul_(corner.mT @ (_halves(q, half)[1] * late), early)
    return dq, dk


def _halves(x: Tensor, half: int) -> tuple[Tensor, ...]:
    """[B,H,M,C,.] -> earlier and later halves [B,H,M,C/2half,half,.] of pieces of 2half tokens, as views."""
    early, late = x.unflatten(-2, (-1, 2, half)).unbind(-3)
    return early, late


def _corners(a: Tensor, half: int) -> Tensor:
    """[B,H,M,C,C] -> the view [B,H,M,C/2half,half,half] of later tokens t and earlier j of the same piece."""
    pieces = a.unflatten(-1, (-1, 2, half)).unflatten(
        -4, (-1, 2, half)
    )  # [B,H,M, t: C/2half,2,half, j: C/2half,2,half]
    return pieces[..., 1, :, :, 0, :].diagonal(dim1=-4, dim2=-2).movedim(-1, -3)
