"""The recursion that reads a linear transformer as an optimiser: four quantities describe every layer.

    x_i^l = M x_i + y_i u      y_i^l = a y_i - <w, x_i>      of every example; the query has y = 0, prediction <w, x_t>

    [[A, b], [cᵀ, e]] = G, the map of layer l          M' = (I + A) M - b wᵀ       u' = (I + A) u + a b
    initially M = I, u = 0, a = 1, w = 0               a' = (1 + e) a + <c, u>     w' = (1 + e) w - Mᵀ c

Vladymyrov et al. 2024 (arXiv:2402.14180), theorem 4.1 and lemma 4.3; right-hand sides are of layer l. L layers, K
heads, E = d + 1:  M [...,d,d]   u, w [...,d]   a [...].  omega [L,2,2] is [[xx, xy], [yx, yy]], the weights of DIAG.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ...regress.model import ICLConfig, ICLTransformer


class Quantities(NamedTuple):
    """M, u, a, w of one layer."""

    m: Tensor
    u: Tensor
    a: Tensor
    w: Tensor


class Trace(NamedTuple):
    """m [L+1,...,d,d], u [L+1,...,d], a [L+1,...], w [L+1,...,d]: before the first layer and after each."""

    m: Tensor
    u: Tensor
    a: Tensor
    w: Tensor


Step = Callable[[Tensor, Quantities], Quantities]


def first(s: Tensor) -> Quantities:
    """Return the quantities before any layer, for sums s [...,E,E]: unchanged examples, prediction 0."""
    u = torch.zeros_like(s[..., :-1, -1])
    eye = torch.eye(u.shape[-1], dtype=s.dtype, device=s.device)
    return Quantities(eye.expand(*u.shape, -1), u, torch.ones_like(s[..., -1, -1]), torch.zeros_like(u))


def step(g: Tensor, now: Quantities) -> Quantities:
    """Return the quantities after a layer with map g [...,E,E], by lemma 4.3."""
    m, u, a, w = now
    b, c, e = g[..., :-1, -1], g[..., -1, :-1], g[..., -1, -1]
    grown = g[..., :-1, :-1] + torch.eye(u.shape[-1], dtype=g.dtype, device=g.device)  # I + A
    return Quantities(
        m=grown @ m - b.unsqueeze(-1) * w.unsqueeze(-2),
        u=apply(grown, u) + a.unsqueeze(-1) * b,
        a=(1 + e) * a + (c * u).sum(-1),
        w=(1 + e).unsqueeze(-1) * w - apply(m.mT, c),
    )


def trace(model: ICLTransformer, s: Tensor, count: Tensor | int | None = None, step: Step = step) -> Trace:
    """Return the four quantities before the first layer and after each, from sums s [...,E,E]; `count` as in `weights`.

    `step` can be replaced by another form of the recursion.
    """
    quantities = [first(s)]
    for g in model.maps(s, count):
        quantities.append(step(g, quantities[-1]))
    return Trace(*(torch.stack(parts) for parts in zip(*quantities, strict=True)))


def nearest_diag(p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """Return omega [L,2,2] of the DIAG layers nearest to P, Q [L,K,E,E], and the distance [L] to them.

    diag(x I, y) nearest to a matrix has x = the mean of its first d diagonal entries, y = the last one. The residual
    is that of sum_k P_k ⊗ Q_k, which is all that a layer uses: relative, 0 for a DIAG layer, 1 for an orthogonal one,
    and independent of how a factor is shared between P and Q. In the last layer of a model only the last row of P acts:
    set the others to 0 to leave them out.
    """
    if p.dim() != 4 or p.shape != q.shape or p.shape[-1] != p.shape[-2] or p.shape[-1] < 2:
        raise ValueError(
            f"P is {list(p.shape)} and Q is {list(q.shape)}; accepted: both [L,K,E,E], as ICLTransformer.matrices gives"
        )
    near_p, near_q = _nearest(p), _nearest(q)
    parts = [(_overlap(near), _overlap(value - near)) for value, near in ((p, near_p), (q, near_q))]
    (same_p, rest_p), (same_q, rest_q) = parts
    rest = (same_p * rest_q + rest_p * same_q + rest_p * rest_q).sum((-1, -2))  # [L]
    whole = rest + (same_p * same_q).sum((-1, -2))  # |sum_k P_k ⊗ Q_k|²
    residual = (rest / whole.clamp_min(torch.finfo(p.dtype).tiny)).clamp_min(0).sqrt()
    corners = [torch.stack([near[..., 0, 0], near[..., -1, -1]], dim=-1) for near in (near_p, near_q)]  # [L,K,2]
    return torch.einsum("lki,lkj->lij", *corners), residual


def from_omega(omega: Tensor, d: int = 10, n: int = 20) -> ICLTransformer:
    """Return the DIAG model of any omega [L,2,2]: two heads suffice, by the singular value decomposition of each layer.

    One head can represent only xx yy = xy yx.
    """
    if omega.dim() != 3 or omega.shape[1:] != (2, 2):
        raise ValueError(f"omega is {list(omega.shape)}; accepted: [L,2,2], that is [[xx, xy], [yx, yy]] of each layer")
    if not bool(torch.isfinite(omega).all()):
        raise ValueError("omega holds NaN or infinity; accepted: finite numbers")
    left, size, right = torch.linalg.svd(omega.detach())
    model = ICLTransformer(ICLConfig("diag", layers=len(omega), d=d, n=n, heads=2), dtype=omega.dtype)
    root = size.sqrt().unsqueeze(-1)  # [L,K,1]
    model.load_state_dict({"p": left.mT * root, "q": right * root})
    return model


def _nearest(value: Tensor) -> Tensor:
    """Return the nearest diag(x I, y) of [...,E,E]."""
    diagonal = value.diagonal(dim1=-2, dim2=-1)
    mean = diagonal[..., :-1].mean(-1, keepdim=True).expand_as(diagonal[..., :-1])
    return torch.diag_embed(torch.cat([mean, diagonal[..., -1:]], dim=-1))


def _overlap(value: Tensor) -> Tensor:
    """Return the inner products of the heads' matrices, [L,K,E,E] -> [L,K,K]."""
    return torch.einsum("lkij,lhij->lkh", value, value)


def apply(matrix: Tensor, vector: Tensor) -> Tensor:
    """Multiply [...,i,j] by [...,j] -> [...,i]."""
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)
