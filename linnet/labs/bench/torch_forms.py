"""Causal linear attention in plain torch, as an expert would write it: the competitors of the native kernel.

    batched   all chunks in one batch: scores inside each, cumulative states between them; explicit gradient
    loop      chunks in a loop, one running state; gradient by autograd
    cumsum    the running state of every token materialised, T x F x V numbers: the textbook equation

out_t = phi(q_t) S_t / (phi(q_t).z_t + eps), Katharopoulos et al. 2020, arXiv:2006.16236. Inputs [B,H,T,D], contiguous.
B batch, H heads, T time, D width, F features, V values, C chunk, M chunks:  s [B,H,M,F,V]   z [B,H,M,1,F]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import elu, pad

Map = Callable[[Tensor], Tensor]  # [B,H,T,D] -> [B,H,T,F]
EPS = 1e-6


def elu_plus_one(x: Tensor) -> Tensor:
    """Return elu + 1 in the faster form: torch's elu has the cheaper backward pass, the other vectorises better."""
    if x.requires_grad and torch.is_grad_enabled():
        return elu(x) + 1
    return x.clamp(max=0).exp_().add_(x.relu())


def batched(q: Tensor, k: Tensor, v: Tensor, *, chunk: int, maps: tuple[Map, Map]) -> Tensor:
    """Attend in batched chunks; zeros pad the last one: a zero key adds nothing, and padded queries are cut off."""
    T, C = q.shape[2], min(chunk, q.shape[2])
    parts = [maps[0](q), maps[1](k), v]
    if T % C:
        parts = [pad(x, (0, 0, 0, -T % C)) for x in parts]
    out = _Batched.apply(*(x.unflatten(2, (-1, C)) for x in parts))  # [B,H,M,C,V]
    return out.flatten(2, 3)[:, :, :T]


class _Batched(torch.autograd.Function):
    """Mapped q, k [B,H,M,C,F] and v [B,H,M,C,V]; backward as in linnet.ops.linear.backward, for all chunks together."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        s, z = _before(k.mT @ v), _before(k.sum(-2, keepdim=True))
        scores = (q @ k.mT).tril_()
        den = scores.sum(-1, keepdim=True).add_(q @ z.mT)
        out = (scores @ v).add_(q @ s)
        inv = den.add_(EPS).reciprocal_()
        out.mul_(inv)
        ctx.save_for_backward(q, k, v, s, z, inv, out)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v, s, z, inv, out = ctx.saved_tensors
        gn = g * inv
        h = -(gn * out).sum(-1, keepdim=True)
        w = (gn @ v.mT).add_(h).tril_()
        r, rz = _after(q.mT @ gn), _after(h.mT @ q)
        dq = (w @ k).add_(gn @ s.mT).add_(h * z)
        dk = (w.mT @ q).add_(v @ r.mT).add_(rz)
        dv = ((q @ k.mT).tril_().mT @ gn).add_(k @ r)
        return dq, dk, dv


def _before(x: Tensor) -> Tensor:
    """Return sums over earlier chunks: [B,H,M,...], the first is zero."""
    out = torch.empty_like(x)
    out[:, :, :1] = 0
    torch.cumsum(x[:, :, :-1], 2, out=out[:, :, 1:])
    return out


def _after(x: Tensor) -> Tensor:
    """Return sums over later chunks: [B,H,M,...], the last is zero."""
    return _before(x.flip(2)).flip(2)


def loop(q: Tensor, k: Tensor, v: Tensor, *, chunk: int, maps: tuple[Map, Map]) -> Tensor:
    s: Tensor | None = None
    z: Tensor | None = None
    outs = []
    for x, y, w in zip(q.split(chunk, 2), k.split(chunk, 2), v.split(chunk, 2), strict=True):
        phi_q, phi_k = maps[0](x), maps[1](y)
        scores = (phi_q @ phi_k.mT).tril_()
        num, den = scores @ w, scores.sum(-1, keepdim=True)
        if s is not None and z is not None:
            num, den = num.add_(phi_q @ s), den.add_(phi_q @ z.mT)
        outs.append(num / (den + EPS))
        more_s, more_z = phi_k.mT @ w, phi_k.sum(-2, keepdim=True)
        s, z = (more_s, more_z) if s is None or z is None else (s + more_s, z + more_z)
    return torch.cat(outs, dim=2)


def cumsum(q: Tensor, k: Tensor, v: Tensor, *, maps: tuple[Map, Map]) -> Tensor:
    phi_q, phi_k = maps[0](q), maps[1](k)
    states = (phi_k[..., None] * v[..., None, :]).cumsum(2)  # [B,H,T,F,V]
    num = (phi_q[..., None, :] @ states)[..., 0, :]
    return num / (torch.linalg.vecdot(phi_q, phi_k.cumsum(2))[..., None] + EPS)


def normalised(product: Callable[[Tensor, Tensor, Tensor], Tensor], q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Compute the numerator with `product`, map and denominator with torch, as the reference library does."""
    phi_q, phi_k = elu(q) + 1, elu(k) + 1
    den = torch.einsum("bhtf,bhtf->bht", phi_q, phi_k.cumsum(2)) + EPS
    return product(phi_q, phi_k, v) / den[..., None]
