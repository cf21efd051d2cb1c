"""The recurrences of this folder as they are written, token by token in float64: the truth that tests compare with.

Every function takes the inputs of its op, a state `s` before the first token (None: zeros) and a mask [B,T], and
returns the output and the state after the last token. Gradients come from autograd. Padding must hold finite numbers.
B batch, T time, H heads, D key width, V value width, E channels, N numbers per channel
"""

from __future__ import annotations

import torch
from torch import Tensor


def decayed_attention(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, s: Tensor | None = None, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """S_t = Diag(exp(decay_t)) S_{t-1} + k_t v_t^T,   out_t = S_t^T q_t           s [B,H,D,V]"""
    q, k, v, decay = q.double(), k.double(), v.double(), decay.double()
    decay = decay if decay.ndim == 4 else decay[..., None]
    s = _start(s, q.shape[0], *q.shape[2:], v.shape[3])
    outs = []
    for t in range(q.shape[1]):
        new = decay[:, t, :, :, None].exp() * s + _outer(k[:, t], v[:, t])
        s = _update(s, new, mask, t)
        outs.append(_read(s, q[:, t]))
    return _outputs(outs, v, mask), s


def delta_rule(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor | None = None, s: Tensor | None = None,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """S_t = (I - beta_t k_t k_t^T) Diag(exp(decay_t)) S_{t-1} + beta_t k_t v_t^T,   out_t = S_t^T q_t,   s [B,H,D,V]"""
    q, k, v, beta = q.double(), k.double(), v.double(), beta.double()[..., None, None]
    decay = torch.zeros_like(beta[..., 0, 0]) if decay is None else decay.double()
    decay = decay if decay.ndim == 4 else decay[..., None]
    s = _start(s, q.shape[0], *q.shape[2:], v.shape[3])
    one = torch.eye(q.shape[3], dtype=torch.float64)
    outs = []
    for t in range(q.shape[1]):
        kept = one - beta[:, t] * _outer(k[:, t], k[:, t])  # [B,H,D,D]
        new = kept @ (decay[:, t, :, :, None].exp() * s) + beta[:, t] * _outer(k[:, t], v[:, t])
        s = _update(s, new, mask, t)
        outs.append(_read(s, q[:, t]))
    return _outputs(outs, v, mask), s


def wkv7(
    r: Tensor, decay: Tensor, k: Tensor, v: Tensor, remove: Tensor, rate: Tensor, s: Tensor | None = None,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """S_t = (Diag(exp(g_t)) - (a_t * c_t) c_t^T) S_{t-1} + k_t v_t^T,   out_t = S_t^T r_t           s [B,H,D,V]

    g is `decay`, c is `remove`, a is `rate`.
    """
    r, decay, k, v, c, a = (x.double() for x in (r, decay, k, v, remove, rate))
    s = _start(s, r.shape[0], *r.shape[2:], v.shape[3])
    outs = []
    for t in range(r.shape[1]):
        change = torch.diag_embed(decay[:, t].exp()) - _outer(a[:, t] * c[:, t], c[:, t])  # [B,H,D,D]
        s = _update(s, change @ s + _outer(k[:, t], v[:, t]), mask, t)
        outs.append(_read(s, r[:, t]))
    return _outputs(outs, v, mask), s


def selective_scan(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, s: Tensor | None = None, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """h_t = exp(dt_t a) h_{t-1} + dt_t b_t x_t,   y_t = c_t . h_t           s = h [B,E,N,1]"""
    x, dt, a, b, c = (y.double() for y in (x, dt, a, b, c))
    s = _start(s, x.shape[0], *a.shape, 1)
    outs = []
    for t in range(x.shape[1]):
        kept = (dt[:, t, :, None] * a).exp()  # [B,E,N]
        new = (dt[:, t] * x[:, t])[..., None] * b[:, t, None]
        s = _update(s, kept[..., None] * s + new[..., None], mask, t)
        outs.append((s[..., 0] * c[:, t, None]).sum(-1))
    return _outputs(outs, x, mask), s


def wkv(
    k: Tensor, v: Tensor, decay: Tensor, bonus: Tensor, s: Tensor | None = None, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """out_t = (n_{t-1} + e^{u + k_t} v_t) / (d_{t-1} + e^{u + k_t}),   n_t = e^{-w} n_{t-1} + e^{k_t} v_t, d_t likewise

    w is `decay`, u is `bonus`. s [B,1,2,E] holds n and d themselves: the op stores them divided by e^p, with p as a
    third row, so s = state.s[:, :, :2] * state.s[:, :, 2:].exp().
    """
    k, v, decay, bonus = (x.double() for x in (k, v, decay, bonus))
    s = _start(s, k.shape[0], 1, 2, k.shape[2])
    outs = []
    for t in range(k.shape[1]):
        n, d = s[:, 0].unbind(1)  # [B,E]
        now, key = (bonus + k[:, t]).exp(), k[:, t].exp()
        outs.append((n + now * v[:, t]) / (d + now))
        new = torch.stack([key * v[:, t], key], dim=1)[:, None]
        s = _update(s, (-decay).exp() * s + new, mask, t)
    return _outputs(outs, v, mask), s


def _start(s: Tensor | None, *sizes: int) -> Tensor:
    return torch.zeros(sizes, dtype=torch.float64) if s is None else s.double()


def _update(s: Tensor, new: Tensor, mask: Tensor | None, t: int) -> Tensor:
    """Return the new state where token t is real, and the old one where it is padding."""
    return new if mask is None else torch.where(mask[:, t, None, None, None], new, s)


def _read(s: Tensor, q: Tensor) -> Tensor:  # [B,H,D,V], [B,H,D] -> [B,H,V]
    return (s * q[..., None]).sum(-2)


def _outer(a: Tensor, b: Tensor) -> Tensor:  # [...,D], [...,V] -> [...,D,V]
    return a[..., :, None] * b[..., None, :]


def _outputs(outs: list[Tensor], v: Tensor, mask: Tensor | None) -> Tensor:
    out = torch.stack(outs, dim=1) if outs else v * 0
    return out if mask is None else out * mask[(...,) + (None,) * (out.ndim - 2)]
