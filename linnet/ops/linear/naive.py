"""Linear attention as it is written, token by token in float64: the truth that tests compare with.

B batch, T time, H heads, D width, F features, V value width:  q, k [B,T,H,D]   v [B,T,H,V]   s [B,H,F,V]   z [B,H,F]
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def linear_attention(
    q: Tensor, k: Tensor, v: Tensor, s: Tensor | None = None, z: Tensor | None = None, *,
    features: Callable[[Tensor], Tensor], causal: bool = True, normalize: bool = True, scale: float = 1.0,
    eps: float = 1e-6, mask: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """S_t = S_{t-1} + phi(k_t) v_t^T,   z_t = z_{t-1} + phi(k_t),   out_t = S_t^T phi(q_t) / (z_t . phi(q_t) + eps)

    phi is `features`, with phi(q) times `scale`. Not causal: all keys are added before the first query reads.
    """
    phi_q, phi_k, v = scale * features(q.double()), features(k.double()), v.double()
    B, _, H, F = phi_k.shape
    s = torch.zeros(B, H, F, v.shape[3], dtype=torch.float64) if s is None else s.double()
    z = torch.zeros(B, H, F, dtype=torch.float64) if z is None else z.double()
    real = torch.ones(k.shape[:2], dtype=torch.float64) if mask is None else mask.double()
    outs = []
    for t in range(k.shape[1]):
        key = phi_k[:, t] * real[:, t, None, None]
        s, z = s + key[..., None] * v[:, t, :, None], z + key
        if causal:
            outs.append(_read(phi_q[:, t], s, z, normalize, eps) * real[:, t, None, None])
    if not causal:
        outs = [_read(phi_q[:, t], s, z, normalize, eps) for t in range(q.shape[1])]
    out = torch.stack(outs, dim=1) if outs else v.new_zeros(*q.shape[:3], v.shape[3])
    return out, s, z


def _read(phi: Tensor, s: Tensor, z: Tensor, normalize: bool, eps: float) -> Tensor:  # [B,H,F] -> [B,H,V]
    num, den = (phi[..., None] * s).sum(-2), (phi * z).sum(-1)
    return num / (den + eps)[..., None] if normalize else num
