"""Data that the forms of linear attention share: a call as Rule and Batch, a chunk as matrices, the running sums.

    S = s0 + sum phi(k_j) v_j^T,   z = z0 + sum phi(k_j)       scores = phi(q) phi(k)^T = kappa(q k^T) in closed form

Batch and heads become one axis, so that a chunk of a call is a stack of N matrices. Padding is 0 from here on.
B batch, T time, H heads, D width, F features, V values, C chunk, N = B H:  q, k [B,T,H,D]  v, out [B,T,H,V]  mask [B,T]
inv [B,T,H]  s [B,H,F,V]  z [B,H,F]. Sums are kept in float32 or wider for any input dtype.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...feature_maps.core import Core
from ..precision import widest

CHUNK = 128  # 64 and 128 tie at D = V = 64, 32 and 256 are slower; every value gives the same result


class Rule(NamedTuple):
    """The options of a call: everything but the tensors."""

    core: Core
    causal: bool = True
    normalize: bool = True
    scale: float = 1.0
    eps: float = 1e-6
    chunk_size: int = CHUNK

    @property
    def closed(self) -> bool:
        """True when scores come from q.k in closed form; the features, wider than q and k, are for the state only."""
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
        """The dtype of the sums: float64 if any input is, else float32."""
        return widest(self.q, self.k, self.v, self.s0)


class Sums:
    """The running sums S [N,F,V] and z [N,F], in float64: the rounding error of a float32 total grows with sqrt(T)."""

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
        for at in spans(b.k, rule):
            pad = padding(b, at)
            self.add(fill(rule.core.features(load(b.k[:, at], pad, b.dtype)), pad), load(b.v[:, at], pad, b.dtype))

    def read(self, phi: Tensor) -> tuple[Tensor, Tensor]:  # [N,C,F] -> [N,C,V], [N,C]
        return phi @ self.s.to(self.dtype), (phi @ self.z.to(self.dtype)[..., None])[..., 0]

    def read_with(self, phi: Tensor, a: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        """Read the sums, plus tokens with scores a [N,C,C] and values w [N,C,V]."""
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


def spans(x: Tensor, rule: Rule) -> list[slice]:
    T = x.shape[1]
    return [slice(lo, min(lo + rule.chunk_size, T)) for lo in range(0, T, rule.chunk_size)]


def padding(b: Batch, at: slice = slice(None)) -> Tensor | None:
    """Return True where there is no token, one row per head: [B,T] -> [N,C]."""
    return None if b.mask is None else b.mask[:, at].logical_not().repeat_interleave(b.k.shape[2], dim=0)


def load(x: Tensor, pad: Tensor | None, dtype: torch.dtype) -> Tensor:
    """[B,C,H,X] -> [N,C,X] in the dtype of the sums, and 0 at padding, NaN included."""
    B, C, H, X = x.shape
    return fill(x.transpose(1, 2).reshape(B * H, C, X).to(dtype), pad)


def fill(x: Tensor, pad: Tensor | None) -> Tensor:  # [N,C,X], [N,C]
    return x if pad is None else x.masked_fill(pad[..., None], 0.0)


def tokens(x: Tensor, b: Batch) -> Tensor:
    """[N,C,...] -> [B,C,H,...]"""
    return x.unflatten(0, (b.q.shape[0], b.q.shape[2])).transpose(1, 2)


def dot_products(rule: Rule, x: Tensor, y: Tensor, phi_q: Tensor, phi_k: Tensor) -> Tensor:  # [N,Tq,Tk]
    return x @ y.mT if rule.closed else phi_q @ phi_k.mT


def scores(rule: Rule, dots: Tensor, pad: Tensor | None) -> Tensor:
    """Return scores [N,Tq,Tk], 0 for keys that are padding or in the future."""
    if rule.closed:
        dots = rule.core.kernel(dots)
        dots = dots if pad is None else dots.masked_fill(pad[:, None], 0.0)
    if not rule.causal:
        return dots
    if torch._C._are_functorch_transforms_active():  # which do not support tril_
        return dots.tril()
    return dots.tril_()  # in place: seven times faster than a copy


def inverse(rule: Rule, den: Tensor, pad: Tensor | None) -> Tensor:
    """Return scale / (scale den + eps), or scale when not normalized; 0 where `pad`, of the shape of `den`, is True.

    A padded query has a denominator of eps, which may be 0: it is replaced before the division, not only after it, or
    the gradient of the division (0 for the padding, times 1 / 0) is NaN and reaches the sums that all tokens share.
    """
    if not rule.normalize:
        inv = torch.full_like(den, rule.scale)
    else:
        total = rule.scale * den + rule.eps
        inv = rule.scale / (total if pad is None else total.masked_fill(pad, 1.0))
    return inv if pad is None else inv.masked_fill(pad, 0.0)
