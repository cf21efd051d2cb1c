"""Linear attention on plain torch: three forms of one meaning, and the backward pass of the one that trains.

    S_t = s0 + sum_{j<=t} phi(k_j) v_j^T,   z_t = z0 + sum_{j<=t} phi(k_j)              (all j when not causal)
    out_t = inv_t phi(q_t) S_t,   inv_t = scale / (scale phi(q_t).z_t + eps),   or inv_t = scale when not normalised

Katharopoulos et al. 2020, arXiv:2006.16236, equations 8-15. q, k arrive prepared; the core of the map is applied here.
B batch, T time, H heads, D width, F features, V values, C chunk, N = B H:  q, k [B,T,H,D]  v, out [B,T,H,V]  mask [B,T]
inv [B,T,H]  s [B,H,F,V]  z [B,H,F]. Sums are kept in float32 or wider, whatever the inputs are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ..feature_maps.core import Core

CHUNK = 128  # 64 and 128 tie at D = V = 64, 32 and 256 are slower; every value gives the same answer


class Rule(NamedTuple):
    """What is computed, apart from the tensors."""

    core: Core
    causal: bool = True
    normalize: bool = True
    scale: float = 1.0
    eps: float = 1e-6
    chunk_size: int = CHUNK

    @property
    def closed(self) -> bool:
        """Scores come from q.k in closed form; the features, wider than q and k, serve the state alone."""
        return self.core.kind == "polynomial"


class Batch(NamedTuple):
    """The tensors of one call; every row of the batch is one sequence."""

    q: Tensor  # [B,Tq,H,D]
    k: Tensor  # [B,Tk,H,D]
    v: Tensor  # [B,Tk,H,V]
    mask: Tensor | None = None  # [B,Tk] bool, True = real
    s0: Tensor | None = None  # [B,H,F,V]
    z0: Tensor | None = None  # [B,H,F]

    @property
    def dtype(self) -> torch.dtype:
        """What sums are kept in: float64 if anything given is, else float32."""
        wide = (x is not None and x.dtype == torch.float64 for x in (self.q, self.k, self.v, self.s0))
        return torch.float64 if any(wide) else torch.float32


class Result(NamedTuple):
    out: Tensor  # [B,Tq,H,V]
    inv: Tensor  # [B,Tq,H]
    s: Tensor  # [B,H,F,V]
    z: Tensor  # [B,H,F]


def parallel(b: Batch, rule: Rule) -> Result:
    """O(T^2): all scores as one matrix, the equation as written."""
    pad = _padding(b)
    pad_q = pad if rule.causal else None
    x, y, w = _load(b.q, pad_q, b.dtype), _load(b.k, pad, b.dtype), _load(b.v, pad, b.dtype)
    phi_q, phi_k = rule.core.features(x), _fill(rule.core.features(y), pad)
    sums = Sums(b, rule, b.s0, b.z0)
    num, den = sums.read_with(phi_q, _kappa(rule, _dots(rule, x, y, phi_q, phi_k), pad), w)
    inv = _inverse(rule, den, pad_q)
    sums.add(phi_k, w)
    out = _tokens(num * inv[..., None], b).to(b.v.dtype)
    return Result(out.contiguous(), _tokens(inv, b).contiguous(), *sums.state(b.dtype))


def chunked(b: Batch, rule: Rule) -> Result:
    """O(T C): scores inside a chunk, the state carries the past. What trains and runs where no native kernel does."""
    out = b.v.new_empty((*b.q.shape[:3], b.v.shape[-1]))
    inv = b.v.new_empty(b.q.shape[:3], dtype=b.dtype)
    sums = Sums(b, rule, b.s0, b.z0)
    if not rule.causal:
        sums.add_keys(b, rule)
    for at in _chunks(b.q, rule):
        pad = _padding(b, at) if rule.causal else None
        x = _load(b.q[:, at], pad, b.dtype)
        skip = rule.causal and rule.closed and sums.fresh  # scores in closed form, and no state to read yet
        phi_q = x if skip else rule.core.features(x)
        if rule.causal:
            y, w = _load(b.k[:, at], pad, b.dtype), _load(b.v[:, at], pad, b.dtype)
            phi_k = _fill(rule.core.features(y), pad)
            num, den = sums.read_with(phi_q, _kappa(rule, _dots(rule, x, y, phi_q, phi_k), pad), w)
            sums.add(phi_k, w)
        else:
            num, den = sums.read(phi_q)
        tau = _inverse(rule, den, pad)
        out[:, at], inv[:, at] = _tokens(num * tau[..., None], b), _tokens(tau, b)
    return Result(out, inv, *sums.state(b.dtype))


def recurrent(b: Batch, rule: Rule) -> Result:
    """O(T), one token at a time: add it to the state, then read. Written apart, so that agreement means something."""
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
        inv = rule.scale / (rule.scale * den + rule.eps) if rule.normalize else torch.full_like(den, rule.scale)
        invs.append(inv if real is None else torch.where(real, inv, 0.0))
        outs.append(invs[-1][..., None] * (phi[..., None, :] @ s)[..., 0, :])  # [B,H,V]
    if not outs:
        return Result(b.v[:, :0].clone(), b.v.new_empty(B, 0, H, dtype=b.dtype), s, z)
    return Result(torch.stack(outs, dim=1).to(b.v.dtype), torch.stack(invs, dim=1), s, z)


FORMS: dict[str, Callable[[Batch, Rule], Result]] = {"parallel": parallel, "chunked": chunked, "recurrent": recurrent}


def chunked_backward(
    g: Tensor, gs: Tensor | None, gz: Tensor | None, b: Batch, out: Tensor, inv: Tensor, rule: Rule
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """dq, dk, dv, ds0, dz0 from the gradients g of out and gs, gz of the final state, in O(T) memory.

        gn_t = inv_t g_t,   h_t = -gn_t.out_t  (0 when not normalised),   W = tril(gn v^T + h 1^T),   A = tril(scores)
        dphi_q = W phi_k + gn S^T + h z       dphi_k = W^T phi_q + v R^T + 1 r       dv = A^T gn + phi_k R

    S, z come from the left as in the forward pass, R = gs + sum phi_q gn^T and r = gz + sum h phi_q from the right.
    With a closed-form kernel, W enters dq and dk through the slope of the kernel instead of through the features.
    Only differentiable operations are used, so the gradient has a gradient.
    """
    dq = b.q.new_empty(b.q.shape)
    dk, dv = b.k.new_zeros(b.k.shape, dtype=b.dtype), b.v.new_zeros(b.v.shape, dtype=b.dtype)
    left, right = Sums(b, rule, b.s0, b.z0), Sums(b, rule, gs, gz)
    vjp = rule.core.features_vjp
    if not rule.causal:
        left.add_keys(b, rule)
    for at in _chunks(b.q, rule):  # left to right: dq, and the part of dk and dv that stays inside a chunk
        pad = _padding(b, at) if rule.causal else None
        x, gn, h = _load(b.q[:, at], pad, b.dtype), *_score_gradients(g, out, inv, b, rule, at, pad)
        phi_q, dphi = rule.core.features(x), left.read_transposed(gn, h)
        if rule.causal:
            y, w = _load(b.k[:, at], pad, b.dtype), _load(b.v[:, at], pad, b.dtype)
            phi_k = _fill(rule.core.features(y), pad)
            dots = _dots(rule, x, y, phi_q, phi_k)
            W = torch.baddbmm(h[..., None], gn, w.mT).tril_()  # [N,C,C]
            if rule.closed:
                W = W * rule.core.kernel_grad(dots)
                dx, dy = W @ y + vjp(x, dphi), W.mT @ x
            else:
                dx, dy = vjp(x, torch.baddbmm(dphi, W, phi_k)), vjp(y, W.mT @ phi_q)
            dk[:, at], dv[:, at] = _tokens(_fill(dy, pad), b), _tokens(_kappa(rule, dots, pad).mT @ gn, b)
            left.add(phi_k, w)
        else:
            dx = vjp(x, dphi)
            right.add(phi_q, gn, h)
        dq[:, at] = _tokens(dx, b)
    for at in reversed(_chunks(b.k, rule)):  # right to left: what later queries and the final state ask of k and v
        pad = _padding(b, at)
        y, w = _load(b.k[:, at], pad, b.dtype), _load(b.v[:, at], pad, b.dtype)
        dy = _fill(vjp(y, right.read_transposed(w, None)), pad)
        dw = _fill(rule.core.features(y), pad) @ right.s.to(b.dtype)
        dk[:, at] += _tokens(dy, b)
        dv[:, at] += _tokens(dw, b)
        if rule.causal:
            x, gn, h = _load(b.q[:, at], pad, b.dtype), *_score_gradients(g, out, inv, b, rule, at, pad)
            right.add(rule.core.features(x), gn, h)
    return dq, dk.to(b.k.dtype), dv.to(b.v.dtype), *right.state(b.dtype)


class Sums:
    """S [N,F,V] and z [N,F] while they grow. Kept in float64: rounding of a float32 total grows with sqrt(T)."""

    def __init__(self, b: Batch, rule: Rule, s: Tensor | None, z: Tensor | None) -> None:
        B, _, H, D = b.k.shape
        self.shape = (B, H, rule.core.feature_dim(D), b.v.shape[-1])
        wide = b.dtype if b.q.device.type == "mps" else torch.float64  # mps has no float64
        N, F, V = B * H, *self.shape[2:]
        self.dtype = b.dtype
        self.s = b.q.new_zeros(N, F, V, dtype=wide) if s is None else s.reshape(N, F, V).to(wide)
        self.z = b.q.new_zeros(N, F, dtype=wide) if z is None else z.reshape(N, F).to(wide)
        self.fresh = s is None and z is None  # nothing to read yet

    def add(self, phi: Tensor, w: Tensor, weight: Tensor | None = None) -> None:  # [N,C,F], [N,C,V], [N,C]
        self.s = self.s + phi.mT @ w
        self.z = self.z + (phi.sum(1) if weight is None else (weight[:, None] @ phi)[:, 0])
        self.fresh = False

    def add_keys(self, b: Batch, rule: Rule) -> None:
        for at in _chunks(b.k, rule):
            pad = _padding(b, at)
            self.add(_fill(rule.core.features(_load(b.k[:, at], pad, b.dtype)), pad), _load(b.v[:, at], pad, b.dtype))

    def read(self, phi: Tensor) -> tuple[Tensor, Tensor]:  # [N,C,F] -> [N,C,V], [N,C]
        return phi @ self.s.to(self.dtype), (phi @ self.z.to(self.dtype)[..., None])[..., 0]

    def read_with(self, phi: Tensor, a: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        """The same plus the tokens scored by a [N,C,C] with values w [N,C,V]."""
        if self.fresh:
            return a @ w, a.sum(-1)
        num, den = self.read(phi)
        return torch.baddbmm(num, a, w), den + a.sum(-1)

    def read_transposed(self, w: Tensor, h: Tensor | None) -> Tensor:  # [N,C,V], [N,C] -> [N,C,F]
        z = self.z.to(self.dtype)[:, None]  # [N,1,F]
        return torch.baddbmm(z if h is None else h[..., None] * z, w, self.s.to(self.dtype).mT)

    def state(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:  # [B,H,F,V], [B,H,F]
        s, z = self.s.view(self.shape), self.z.view(self.shape[:3])
        return s.to(dtype, copy=True), z.to(dtype, copy=True)


def _chunks(x: Tensor, rule: Rule) -> list[slice]:
    T = x.shape[1]
    return [slice(lo, min(lo + rule.chunk_size, T)) for lo in range(0, T, rule.chunk_size)]


def _padding(b: Batch, at: slice = slice(None)) -> Tensor | None:
    """True where there is no token, one row per head: [B,T] -> [N,C]."""
    return None if b.mask is None else b.mask[:, at].logical_not().repeat_interleave(b.k.shape[2], dim=0)


def _load(x: Tensor, pad: Tensor | None, dtype: torch.dtype) -> Tensor:
    """[B,C,H,X] -> [N,C,X], wide enough to add up, and 0 (whatever stood there) where padded."""
    B, C, H, X = x.shape
    return _fill(x.transpose(1, 2).reshape(B * H, C, X).to(dtype), pad)


def _fill(x: Tensor, pad: Tensor | None) -> Tensor:  # [N,C,X], [N,C]
    return x if pad is None else x.masked_fill(pad[..., None], 0.0)


def _tokens(x: Tensor, b: Batch) -> Tensor:
    """[N,C,...] -> [B,C,H,...]"""
    return x.unflatten(0, (b.q.shape[0], b.q.shape[2])).transpose(1, 2)


def _dots(rule: Rule, x: Tensor, y: Tensor, phi_q: Tensor, phi_k: Tensor) -> Tensor:  # [N,Tq,Tk]
    return x @ y.mT if rule.closed else phi_q @ phi_k.mT


def _kappa(rule: Rule, dots: Tensor, pad: Tensor | None) -> Tensor:
    """Scores [N,Tq,Tk]: 0 for keys that are padding or still to come."""
    if rule.closed:
        dots = rule.core.kernel(dots)
        dots = dots if pad is None else dots.masked_fill(pad[:, None], 0.0)
    return dots.tril_() if rule.causal else dots  # in place: seven times faster than a copy


def _inverse(rule: Rule, den: Tensor, pad: Tensor | None) -> Tensor:  # [N,C]
    inv = rule.scale / (rule.scale * den + rule.eps) if rule.normalize else torch.full_like(den, rule.scale)
    return inv if pad is None else inv.masked_fill(pad, 0.0)


def _score_gradients(
    g: Tensor, out: Tensor, inv: Tensor, b: Batch, rule: Rule, at: slice, pad: Tensor | None
) -> tuple[Tensor, Tensor]:
    """gn [N,C,V] and h [N,C] of one chunk: the gradients of its numerators and denominators."""
    tau = _load(inv[:, at, :, None], pad, b.dtype)
    gn = _load(g[:, at], pad, b.dtype) * tau
    if not rule.normalize:
        return gn, torch.zeros_like(tau[..., 0])
    return gn, -(gn * _load(out[:, at], pad, b.dtype)).sum(-1)


def _add_token(b: Batch, rule: Rule, s: Tensor, z: Tensor, t: int) -> tuple[Tensor, Tensor]:
    """The state one token later."""
    key, value = b.k[:, t].to(b.dtype), b.v[:, t].to(b.dtype)  # [B,H,D], [B,H,V]
    if b.mask is None:
        phi = rule.core.features(key)
    else:
        real = b.mask[:, t, None, None]
        phi = torch.where(real, rule.core.features(torch.where(real, key, 0.0)), 0.0)
        value = torch.where(real, value, 0.0)
    return s + phi[..., None] * value[..., None, :], z + phi
