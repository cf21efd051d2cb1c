"""Linear attention in plain torch: three forms of the same function.

    S_t = s0 + sum_{j<=t} phi(k_j) v_j^T,   z_t = z0 + sum_{j<=t} phi(k_j)              (all j when not causal)
    out_t = inv_t phi(q_t) S_t,   inv_t = scale / (scale phi(q_t).z_t + eps),   or inv_t = scale when not normalized

Katharopoulos et al. 2020, arXiv:2006.16236, equations 8-15. q, k arrive prepared; the core of the map is applied here.
Shapes and letters as in chunks.py; the gradient of the chunked form is in backward.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ..causal import guarded
from .chunks import Batch, Rule, Sums, dot_products, fill, inverse, load, padding, scores, spans, tokens


class Result(NamedTuple):
    out: Tensor  # [B,Tq,H,V]
    inv: Tensor  # [B,Tq,H]
    s: Tensor  # [B,H,F,V]
    z: Tensor  # [B,H,F]


def parallel(b: Batch, rule: Rule) -> Result:
    """O(T^2): all scores as one matrix, the equation as written."""
    return _causal(_parallel, b, rule)


def chunked(b: Batch, rule: Rule) -> Result:
    """O(T C): scores inside a chunk, the state carries earlier chunks. Used where no native kernel runs."""
    return _causal(_chunked, b, rule)


def _causal(form: Callable[[Batch, Rule], Result], b: Batch, rule: Rule) -> Result:
    """Guard the values: they alone can reach earlier tokens, through the zeros in the scores."""
    if not rule.causal:
        return form(b, rule)
    return Result(*guarded(lambda v: form(b._replace(v=v), rule), (b.v,), columns=0, mask=b.mask))


def _parallel(b: Batch, rule: Rule) -> Result:
    pad = padding(b)
    pad_q = pad if rule.causal else None
    x, y, w = load(b.q, pad_q, b.dtype), load(b.k, pad, b.dtype), load(b.v, pad, b.dtype)
    phi_q, phi_k = rule.core.features(x), fill(rule.core.features(y), pad)
    sums = Sums(b, rule, b.s0, b.z0)
    num, den = sums.read_with(phi_q, scores(rule, dot_products(rule, x, y, phi_q, phi_k), pad), w)
    inv = inverse(rule, den, pad_q)
    sums.add(phi_k, w)
    out = tokens(num * inv[..., None], b).to(b.v.dtype)
    return Result(out.contiguous(), tokens(inv, b).contiguous(), *sums.state(b.dtype))


def _chunked(b: Batch, rule: Rule) -> Result:
    out = b.v.new_empty((*b.q.shape[:3], b.v.shape[-1]))
    inv = b.v.new_empty(b.q.shape[:3], dtype=b.dtype)
    parts: list[tuple[Tensor, Tensor]] | None = [] if torch._C._are_functorch_transforms_active() else None
    sums = Sums(b, rule, b.s0, b.z0)
    if not rule.causal:
        sums.add_keys(b, rule)
    for at in spans(b.q, rule):
        pad = padding(b, at) if rule.causal else None
        x = load(b.q[:, at], pad, b.dtype)
        skip = rule.causal and rule.closed and sums.fresh  # scores in closed form, and no state to read yet
        phi_q = x if skip else rule.core.features(x)
        if rule.causal:
            y, w = load(b.k[:, at], pad, b.dtype), load(b.v[:, at], pad, b.dtype)
            phi_k = fill(rule.core.features(y), pad)
            num, den = sums.read_with(phi_q, scores(rule, dot_products(rule, x, y, phi_q, phi_k), pad), w)
            sums.add(phi_k, w)
        else:
            num, den = sums.read(phi_q)
        tau = inverse(rule, den, pad)
        if parts is None:
            out[:, at], inv[:, at] = tokens(num * tau[..., None], b), tokens(tau, b)
        else:  # vmap cannot write batched values into a tensor without its batch axis
            parts.append((tokens(num * tau[..., None], b).to(out.dtype), tokens(tau, b)))
    if parts:
        out, inv = (torch.cat(part, dim=1) for part in zip(*parts, strict=True))
    return Result(out, inv, *sums.state(b.dtype))


def recurrent(b: Batch, rule: Rule) -> Result:
    """O(T), one token at a time: add it to the state, then read. Independent of the chunked code."""
    B, Tk, H, D = b.k.shape
    F, V = rule.core.feature_dim(D), b.v.shape[-1]
    s = b.k.new_zeros(B, H, F, V, dtype=b.dtype) if b.s0 is None else b.s0.to(b.dtype, copy=True)
    z = b.k.new_zeros(B, H, F, dtype=b.dtype) if b.z0 is None else b.z0.to(b.dtype, copy=True)
    outs, invs = [], []
    if not rule.causal:
        for t in range(Tk):
            s, z = _add_token(b, rule, s, z, t)
    for t in range(b.q.shape[1]):
        if rule.causal:
            s, z = _add_token(b, rule, s, z, t)
        real = b.mask[:, t, None] if b.mask is not None and rule.causal else None  # [B,1]
        query = b.q[:, t].to(b.dtype)  # [B,H,D]
        phi = rule.core.features(query if real is None else torch.where(real[..., None], query, 0.0))  # [B,H,F]
        den = (phi * z).sum(-1)  # [B,H]
        invs.append(inverse(rule, den, None if real is None else real.logical_not()))
        outs.append(invs[-1][..., None] * (phi[..., None, :] @ s)[..., 0, :])  # [B,H,V]
    if not outs:
        return Result(b.v[:, :0].clone(), b.v.new_empty(B, 0, H, dtype=b.dtype), s, z)
    return Result(torch.stack(outs, dim=1).to(b.v.dtype), torch.stack(invs, dim=1), s, z)


def _add_token(b: Batch, rule: Rule, s: Tensor, z: Tensor, t: int) -> tuple[Tensor, Tensor]:
    """Return the state after token t."""
    key, value = b.k[:, t].to(b.dtype), b.v[:, t].to(b.dtype)  # [B,H,D], [B,H,V]
    if b.mask is None:
        phi = rule.core.features(key)
    else:
        real = b.mask[:, t, None, None]
        phi = torch.where(real, rule.core.features(torch.where(real, key, 0.0)), 0.0)
        value = torch.where(real, value, 0.0)
    return s + phi[..., None] * value[..., None, :], z + phi


FORMS: dict[str, Callable[[Batch, Rule], Result]] = {"parallel": parallel, "chunked": chunked, "recurrent": recurrent}
