"""What linear attention means, in float64 and without any trick: one dense matrix of scores, one sum per state.

    scores_tj = scale phi(q_t).phi(k_j) [j is real] [j <= t, if causal]
    out_t = (sum_j scores_tj v_j + scale phi(q_t) s0) / (sum_j scores_tj + scale phi(q_t).z0 + eps)

Written from the equations, with features of its own: nothing is imported from linnet. Gradients come from autograd, and
test_parity.py checks this file itself by finite differences.
q, k [B,T,H,D] after `prepare`   v, out [B,T,H,V]   s [B,H,F,V]   z [B,H,F]   mask [B,T] bool, True = real
"""

from __future__ import annotations

from itertools import combinations_with_replacement
from math import factorial, prod, sqrt

import torch
from torch import Tensor


def features(kind: str, coeffs: tuple[float, ...], x: Tensor) -> Tensor:  # [..., D] -> [..., F]
    """phi, one closed form per line; the polynomial lists each monomial of each degree once."""
    if kind == "identity":
        return x
    if kind == "elu":
        return torch.nn.functional.elu(x) + 1
    if kind == "relu":
        return torch.nn.functional.relu(x)
    if kind == "relu2":
        return torch.nn.functional.relu(x) ** 2
    if kind == "exp":
        return torch.exp(x)
    columns = []
    for degree, c in enumerate(coeffs):
        for monomial in combinations_with_replacement(range(x.shape[-1]), degree):
            times = factorial(degree) / prod(factorial(monomial.count(i)) for i in set(monomial))
            column = torch.full_like(x[..., 0], sqrt(c * times))
            for i in monomial:
                column = column * x[..., i]
            if c > 0:
                columns.append(column)
    return torch.stack(columns, dim=-1)


def attention(
    phi_q: Tensor, phi_k: Tensor, v: Tensor, s0: Tensor, z0: Tensor, *, mask: Tensor | None = None, causal: bool = True,
    normalize: bool = True, scale: float = 1.0, eps: float = 1e-6,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """out [B,Tq,H,V], s, z from mapped queries and keys; the padded rows of v and phi must be finite."""
    B, Tq, Tk = phi_q.shape[0], phi_q.shape[1], phi_k.shape[1]
    real = torch.ones(B, Tk, dtype=torch.bool) if mask is None else mask
    seen = real[:, None, :].expand(B, Tq, Tk)
    if causal:
        seen = seen & (torch.arange(Tk)[None, :] <= torch.arange(Tq)[:, None])
    scores = scale * torch.einsum("bthf,bjhf->bthj", phi_q, phi_k) * seen[:, :, None, :]
    num = torch.einsum("bthj,bjhv->bthv", scores, v) + scale * torch.einsum("bthf,bhfv->bthv", phi_q, s0)
    den = scores.sum(-1) + scale * torch.einsum("bthf,bhf->bth", phi_q, z0)
    out = num / (den + eps)[..., None] if normalize else num
    if causal:
        out = out * real[:, :, None, None]
    kept = phi_k * real[:, :, None, None]
    return out, s0 + torch.einsum("bjhf,bjhv->bhfv", kept, v), z0 + kept.sum(1)


def packed(
    phi_q: Tensor, phi_k: Tensor, v: Tensor, s0: Tensor, z0: Tensor, offsets: list[int], *, mask: Tensor | None = None,
    **how: bool | float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Every sequence on its own, one row of the state each."""
    outs, ss, zs = [], [], []
    for i in range(len(offsets) - 1):
        lo, hi = offsets[i], offsets[i + 1]
        part = None if mask is None else mask[:, lo:hi]
        own = (x[:, lo:hi] for x in (phi_q, phi_k, v))
        out, s, z = attention(*own, s0[i : i + 1], z0[i : i + 1], mask=part, **how)  # type: ignore[arg-type]
        outs.append(out)
        ss.append(s)
        zs.append(z)
    return torch.cat(outs, dim=1), torch.cat(ss), torch.cat(zs)
