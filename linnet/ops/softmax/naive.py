"""The softmax attentions as they are written, query by query in float64: the truth that tests compare with.

Queries are those of the newest T of S tokens, so that a cache of earlier keys and values simply comes first. `mask`
[B,S] marks real tokens; the output is 0 at padding. B batch, H heads, D query/key width, V value width, R rounds
q [B,T,H,D]   k [B,S,H,D]   v [B,S,H,V]   out [B,T,H,V]
"""

from __future__ import annotations

import torch
from torch import Tensor


def softmax_attention(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float, causal: bool = True, mask: Tensor | None = None
) -> Tensor:
    """o_t = sum_s a_ts v_s,   a_ts = exp(scale q_t.k_s) / sum_r exp(scale q_t.k_r),   r, s real and <= t when causal"""
    real, past = _real(k, mask), k.shape[1] - q.shape[1]
    outs = []
    for t in range(q.shape[1]):
        seen = real
        if causal:
            before = torch.arange(k.shape[1]) <= past + t
            seen = real & before & real[:, past + t, None]
        outs.append(_average(q[:, t], k, v, seen[:, None], scale))
    return _outputs(outs, q, v)


def sliding_window_attention(
    q: Tensor, k: Tensor, v: Tensor, *, window: int, scale: float, mask: Tensor | None = None
) -> Tensor:
    """The same, where r and s are among the last `window` real tokens up to t."""
    real, past = _real(k, mask), k.shape[1] - q.shape[1]
    count = real.cumsum(1)  # of real tokens so far
    outs = []
    for t in range(q.shape[1]):
        before = torch.arange(k.shape[1]) <= past + t
        near = count[:, past + t, None] - count < window
        seen = real & before & near & real[:, past + t, None]
        outs.append(_average(q[:, t], k, v, seen[:, None], scale))
    return _outputs(outs, q, v)


def lsh_attention(
    q: Tensor, v: Tensor, rotations: Tensor, *, span: int, scale: float, causal: bool = True, mask: Tensor | None = None
) -> Tensor:
    """The same with k = q / |q|, where s shares a bucket of some round with t and is among the `span` nearest there.

    bucket_r(t) = argmax [M_r k_t, -M_r k_t], M_r = rotations[r]. Nearest: before t, or on both sides when not causal.
    A query without neighbors attends to itself. All S tokens are queries here.
    """
    k = q.double() * (q.double().square().sum(-1, keepdim=True) + 1e-12).rsqrt()
    real = _real(k, mask)
    along = torch.einsum("bshd,rhnd->brhsn", k.detach(), rotations.double())
    bucket = torch.cat([along, -along], dim=-1).argmax(-1)  # [B,R,H,S]
    outs = []
    for t in range(q.shape[1]):
        same = (bucket == bucket[..., t, None]) & real[:, None, None]  # [B,R,H,S]
        count = same.cumsum(-1)
        gap = count[..., t, None] - count  # how many of the bucket lie between
        near = (gap > 0) & (gap <= span) if causal else (gap != 0) & (gap.abs() <= span)
        seen = (same & near).any(1)  # [B,H,S]
        alone = ~seen.any(-1, keepdim=True) & (torch.arange(k.shape[1]) == t)
        outs.append(_average(q[:, t], k, v, (seen | alone) & real[:, t, None, None], scale))
    return _outputs(outs, q, v)


def _real(k: Tensor, mask: Tensor | None) -> Tensor:  # [B,S] bool
    return torch.ones(k.shape[:2], dtype=torch.bool) if mask is None else mask


def _average(q: Tensor, k: Tensor, v: Tensor, seen: Tensor, scale: float) -> Tensor:
    """Return the softmax average for one query [B,H,D] over the tokens `seen` [B,H or 1,S]; 0 if there are none."""
    scores = scale * torch.einsum("bhd,bshd->bhs", q.double(), k.double())
    some = seen.any(-1, keepdim=True)
    weights = torch.where(seen, scores, torch.where(some, -torch.inf, 0.0)).softmax(-1)
    return torch.einsum("bhs,bshv->bhv", weights * (seen & some), v.double())


def _outputs(outs: list[Tensor], q: Tensor, v: Tensor) -> Tensor:
    return torch.stack(outs, dim=1) if outs else v.double().new_zeros(q.shape[0], 0, q.shape[2], v.shape[3])
