"""The chunked form of the delta rule: one triangular solve per chunk, with a hand-written gradient.

    A Z = V - diag(e^g) K S,   A = I + tril(L * K K^T, -1) diag(b),   U = diag(b) Z        U: what the tokens write
    out = diag(e^g) Q S + tril(L * Q K^T) U,   S' = e^{g_C} S + (diag(e^{g_C - g}) K)^T U

S is the state before a chunk and S' after it, g the cumulative log decays, L_tj = e^{g_t - g_j} for j <= t: no exponent
is positive. Without decay L and e^g are 1. Yang et al. 2024, arXiv:2406.06484 (the WY form), 2412.06464 (with decay).
With a decay per key channel L * K K^T is sum_d k_td k_jd e^{g_td - g_jd}, by halves as in decay_chunked.py.
Z is linear in S, so the solves and products of all chunks run as one batch; only S' = F S + G goes from chunk to chunk.
N = B H rows of M chunks of C tokens each:  q, k [NM,C,D]   v [NM,C,V]   b, decay [NM,C] (or [NM,C,D])   s [N,D,V]
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, baddbmm
from torch.autograd import forward_ad
from torch.linalg import solve_triangular

from ..native_allowed import by_hand, gradients, readable, wants_graph
from ..precision import finest
from .decay_chunked import channel_fades, scores_backward
from .decay_chunked import scores as pair_scores

Given: TypeAlias = "tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None, Tensor]"  # q, k, v, b, decay, s


class Parts(NamedTuple):
    """The results of the forward pass that the backward pass needs."""

    keys: Tensor  # [NM,C,C]: tril(L * K K^T, -1)
    scores: Tensor  # [NM,C,C]: tril(L * Q K^T)
    inverse: Tensor  # [NM,C,C]: A^-1; bounded for keys of length 1 and b from 0 to 2
    w: Tensor  # [NM,C,D]: A^-1 diag(e^g) K, the coefficient of S in Z
    z: Tensor  # [NM,C,V]
    steps: Tensor  # [NM,D,D]: F
    starts: Tensor  # [NM,D,V]: S


class Decays(NamedTuple):
    """Factors, None where there is no decay."""

    start: Tensor | None = None  # [NM,C,1] or [NM,C,D]: e^g
    end: Tensor | None = None  # the same: e^{g_C - g}
    whole: Tensor | None = None  # [NM,1,1] or [NM,D,1]: e^{g_C}
    between: Tensor | None = None  # [NM,C,C]: L, and 0 above the diagonal; per channel `halves`
    halves: tuple[Tensor, ...] = ()


def chunked(*given: Any) -> tuple[Tensor, Tensor]:
    """Map q, k, v, b, decay, s to out [NM,C,V] and the state after the last chunk [N,D,V]."""
    if wants_graph(*given) and readable(*given) and forward_ad._current_level < 0:
        return _Chunked.apply(*given)
    return plain(*given)


def plain(*given: Any) -> tuple[Tensor, Tensor]:
    """The same in differentiable operations: for recorded graphs."""
    return _forward(given)[:2]


class _Chunked(torch.autograd.Function):
    """`plain` with a hand-written gradient: autograd would save every product, and be slower."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> tuple[Tensor, Tensor]:
        out, end, parts = _forward(given)
        ctx.save_for_backward(*given, *parts)
        ctx.set_materialize_grads(False)
        return out, end

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors  # once: under activation checkpointing it may not be read again
        given, parts = saved[:6], Parts(*saved[6:])
        if not by_hand(*grads):
            return tuple(gradients(plain, given, grads))
        dout, dend = grads
        dout = torch.zeros_like(given[2]) if dout is None else dout
        return _backward(dout, torch.zeros_like(given[5]) if dend is None else dend, given, parts)


def _forward(given: Given) -> tuple[Tensor, Tensor, Parts]:
    q, k, v, b, decay, s = given
    e, columns, one = _decays(decay), b[:, None], torch.eye(k.shape[1], dtype=k.dtype, device=k.device)
    keys, scores = _pairs(k, k, e).tril(-1), _pairs(q, k, e).tril()
    inverse = solve_triangular(keys * columns, one, upper=False, unitriangular=True)
    k_in, writes = _times(k, e.start), _times(k, e.end).mT * columns
    w = inverse @ k_in
    steps = _times(torch.eye(k.shape[2], dtype=k.dtype, device=k.device), e.whole) - writes @ w
    starts, end = _carry((writes @ inverse) @ v, steps, s)
    z = inverse @ baddbmm(v, k_in, starts, alpha=-1)
    out = baddbmm(_times(q, e.start) @ starts, scores, z * b[..., None])
    return out, end, Parts(keys, scores, inverse, w, z, steps, starts)


def _backward(dout: Tensor, dend: Tensor, given: Given, p: Parts) -> tuple[Tensor | None, ...]:
    """dx is the gradient of x; du0 is that of U through out and S' only, since U also enters the U of later tokens."""
    q, k, _, b, decay, _ = given
    e, rows = _decays(decay), b[..., None]
    q_in, k_in, k_end = _times(q, e.start), _times(k, e.start), _times(k, e.end)
    reads = baddbmm(q_in, p.scores, p.w * rows, alpha=-1)  # out = reads S + ...
    ends, ds = _carry(reads.mT @ dout, p.steps.mT, dend, back=True)  # dS' of each chunk, from the last to the first
    du0 = baddbmm(k_end @ ends, p.scores.mT, dout)
    u, dv = p.z * rows, p.inverse.mT @ (du0 * rows)
    db = (baddbmm(du0, p.keys.mT, dv, alpha=-1) * p.z).sum(-1)
    dscores, dkeys = (dout @ u.mT).tril_(), (dv @ u.mT).tril_(-1).neg_()
    dq_in, dk_in, dk_end = dout @ p.starts.mT, (dv @ p.starts.mT).neg_(), u @ ends.mT
    ddecay = None
    if decay is not None and decay.ndim == 3:
        dq, dk, ddecay = _by_channel(dscores, dkeys, (dq_in, dk_in, dk_end), ends, given, p, e)
        return dq, dk, dv, db, ddecay, ds
    if e.whole is not None:
        pairs, at_end = dkeys * p.keys + dscores * p.scores, (dk_end * k_end).sum(-1)
        dg = pairs.sum(2) - pairs.sum(1) + (dq_in * q_in).sum(-1) + (dk_in * k_in).sum(-1) - at_end  # [NM,C]
        dg[:, -1] += at_end.sum(-1) + (ends * p.starts).sum((1, 2)) * e.whole[:, 0, 0]
        ddecay = dg.flip(-1).cumsum(-1).flip(-1)
    dscores, dkeys = _times(dscores, e.between), _times(dkeys, e.between)
    dq = baddbmm(_times(dq_in, e.start), dscores, k)
    dk = baddbmm(_times(dk_in, e.start) + _times(dk_end, e.end), dscores.mT, q)
    return dq, dk.baddbmm_(dkeys + dkeys.mT, k), dv, db, ddecay, ds


def _by_channel(
    dscores: Tensor, dkeys: Tensor, through: tuple[Tensor, Tensor, Tensor], ends: Tensor, given: Given, p: Parts,
    e: Decays,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return dq, dk and ddecay. A factor e^g of x adds x dx to dg, and a factor e^-g takes it away."""
    q, k = given[:2]
    halves = list(e.halves)
    dq, dk_read = scores_backward(dscores, q, k, halves)
    dk_erased, dk_stored = scores_backward(dkeys, k, k, halves)
    dq_in, dk_in, dk_end = (_times(x, factor) for x, factor in zip(through, (e.start, e.start, e.end), strict=True))
    dq = dq + dq_in
    dk_up, dk_down = dk_erased + dk_in, dk_read + dk_stored + dk_end
    dg = q * dq + k * (dk_up - dk_down)  # [NM,C,D]
    assert e.whole is not None
    dg[:, -1] += (dk_end * k).sum(1) + (ends * p.starts).sum(-1) * e.whole[..., 0]
    return dq, dk_up + dk_down, dg.flip(1).cumsum(1).flip(1)


def _pairs(a: Tensor, b: Tensor, e: Decays) -> Tensor:
    """Return the decayed products of tokens [NM,C,C]; what stands above the diagonal is not used."""
    by_channel = e.whole is not None and e.between is None
    return pair_scores(a, b, e.halves) if by_channel else _times(a @ b.mT, e.between)


def _carry(adds: Tensor, steps: Tensor, s: Tensor, back: bool = False) -> tuple[Tensor, Tensor]:
    """Apply S' = steps S + adds from chunk to chunk; return S before each [NM,D,V] and after the last [N,D,V]."""
    adds, steps = adds.unflatten(0, (len(s), -1)), steps.unflatten(0, (len(s), -1))
    order = range(adds.shape[1])
    starts = []
    for i in reversed(order) if back else order:
        starts.append(s)
        s = baddbmm(adds[:, i], steps[:, i], s)
    return torch.stack(starts[::-1] if back else starts, dim=1).flatten(0, 1), s


def _decays(decay: Tensor | None) -> Decays:
    if decay is None:
        return Decays()
    if decay.ndim == 3:
        g = decay.cumsum(1, dtype=finest(decay))  # [NM,C,D]
        start, end = (x.to(decay.dtype).exp() for x in (g, g[:, -1:] - g))
        return Decays(start, end, start[:, -1:].mT, halves=channel_fades(g, decay.dtype))
    g = decay.cumsum(-1, dtype=finest(decay))  # [NM,C]
    above = torch.ones(g.shape[1], g.shape[1], dtype=torch.bool, device=g.device).triu(1)
    between = (g[:, :, None] - g[:, None]).to(decay.dtype).masked_fill(above, -torch.inf).exp()
    near, far = g.to(decay.dtype).exp(), (g[:, -1:] - g).to(decay.dtype).exp()
    return Decays(near[..., None], far[..., None], near[:, -1:, None], between)


def _times(x: Tensor, factor: Tensor | None) -> Tensor:
    return x if factor is None else x * factor
