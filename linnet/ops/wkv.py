"""The weighted average of RWKV-4: values weighed by e^key, every channel forgetting at a fixed rate of its own.

    out_t = (n_{t-1} + e^{u + k_t} v_t) / (d_{t-1} + e^{u + k_t})           u: bonus of the token that is read just now
    n_t = e^{-w} n_{t-1} + e^{k_t} v_t,   d_t = e^{-w} d_{t-1} + e^{k_t}     w > 0: rate of decay

Peng et al. 2023, arXiv:2305.13048. n and d are kept divided by e^p, where
p_t = max(p_{t-1} - w, k_t) is the largest exponent in them, so that no key is too large: every exponential is of a
number <= 0. The state is (n, d, p), and zeros are the empty one: d is at least 1 as soon as anything was seen.
Gradients hold p fixed; they are exact for out and for n e^p and d e^p, which is all that p is used for.
B batch, T time, E channels, C chunk:  k, v, out [B,T,E]   w, u [E]   s [B,3,E], float32 or wider
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from .causal import guarded
from .checks import check_chunk_size, check_floating, check_mask, check_matrix, compute_dtype, shape
from .dispatch import check_names
from .fused import full_precision
from .scan import finest, linear_scan

CHUNK = 64  # tokens whose keys share one running maximum; every value gives the same answer
NOTHING = -1e30  # the exponent of what was never seen
Result: TypeAlias = "tuple[Tensor, Tensor]"  # out [B,T,E], s [B,3,E]


def wkv(
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    bonus: Tensor,
    *,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    mask: Tensor | None = None,
    form: str = "auto",
    chunk_size: int = CHUNK,
) -> tuple[Tensor, Tensor | None]:
    """k, v [B,T,E], decay = w > 0 and bonus = u [E] -> out [B,T,E] in the dtype of v, and s [B,3,E] when asked for.

    `mask` [B,T] bool, True = real token, padding anywhere: it answers 0 and changes nothing else.
    `form`: "auto", "parallel", "chunked" or "recurrent"; `chunk_size` changes the speed, not the answer.
    No output depends on a later token, NaN and infinity included; for the exceptions see causal.py.
    """
    _check(k, v, decay, bonus, initial_state, chunk_size)
    check_mask(mask, k.shape[0], k.shape[1], k.device)
    check_names(form, "torch")
    B, T, E = k.shape
    s = k.new_zeros(B, 3, E, dtype=torch.float32) if initial_state is None else initial_state
    wide = compute_dtype(k, s)
    if form == "auto":
        form = "recurrent" if T == 1 else "chunked"
    with full_precision(k):
        keys, values, rate, u, s = (x.to(wide) for x in (k, v, decay, bonus, s))
        tokens = _Tokens(keys, values, rate.expand(1, T, E), torch.ones_like(rate).expand(1, T, E))
        if mask is not None:
            tokens = tokens.without(~mask[..., None])
        past = torch.stack([s[:, 0], s[:, 1], torch.where(s[:, 1] == 0, NOTHING, s[:, 2])], dim=1)
        out, new = _FORMS[form](tokens, u, past, chunk_size) if T else (values, past)
        out = (out if mask is None else out.masked_fill(~mask[..., None], 0.0)).to(v.dtype)
    return out, torch.where(new[:, 1:2] == 0, 0.0, new) if output_final_state else None


def wkv_weights(k: Tensor, decay: Tensor, bonus: Tensor) -> Tensor:  # [B,T,E], [E], [E] -> [B,E,T,T]
    """The share of every earlier token in every output, channel by channel: rows sum to one."""
    shares, _, _ = _shares(k, decay.expand(1, *k.shape[1:]), bonus, torch.full_like(k[:, :1], NOTHING))
    return (shares / shares.sum(2, keepdim=True))[:, :, 1:].permute(0, 3, 1, 2)


class _Tokens(NamedTuple):
    """What every token brings: it decays the past by e^-w, and adds e^k v and e^k one."""

    k: Tensor  # [B,T,E]
    v: Tensor  # [B,T,E]
    w: Tensor  # [B,T,E] or [1,T,E]
    one: Tensor  # as w: 1, or 0 for padding

    def without(self, hidden: Tensor) -> _Tokens:  # [B,T,1]
        """Tokens that bring nothing where `hidden` is True, whatever stood there."""
        k, *others = (x.expand_as(self.k) for x in self)
        return _Tokens(k.masked_fill(hidden, NOTHING), *(x.masked_fill(hidden, 0.0) for x in others))


def _parallel(x: _Tokens, u: Tensor, s: Tensor, _: int) -> Result:
    """O(T^2): the exponents of all pairs of tokens, the state as one token more at the front."""
    out, end = guarded(lambda *given: _pairs(_Tokens(*given), u, s), x, columns=1)
    return out, end


def _pairs(x: _Tokens, u: Tensor, s: Tensor) -> Result:
    shares, last, top = _shares(x.k, x.w, u, s[:, 2:])
    n = torch.cat([s[:, :1], x.v], dim=1)  # [B,1+T,E]
    d = torch.cat([s[:, 1:2], x.one.expand_as(x.v)], dim=1)
    out = (shares * n[:, None]).sum(2) / (shares[:, :, 0] * s[:, 1:2] + shares[:, :, 1:].sum(2))  # never 0 / 0
    return out, torch.stack([(last * n).sum(1), (last * d).sum(1), top], dim=1)


def _shares(k: Tensor, w: Tensor, u: Tensor, start: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """e^(exponent - largest) of state and tokens, in every out_t [B,T,1+T,E] and in the last state [B,1+T,E], its p."""
    w = w.to(finest(w))
    T, total = k.shape[1], w.cumsum(1)  # [B,T,E] or [1,T,E]
    origin = torch.cat([start, k + total], dim=1)  # [B,1+T,E]: exponents as seen from the start
    exponent = (origin[:, None] - (total - w)[:, :, None]).to(k.dtype)  # [B,T,1+T,E]
    t, j = torch.arange(T, device=k.device)[:, None], torch.arange(-1, T, device=k.device)  # -1: the state
    exponent = torch.where((t == j)[..., None], (k + u)[:, :, None], exponent)
    exponent = exponent.masked_fill((t < j)[..., None], -torch.inf)
    last = (origin - total[:, -1:]).to(k.dtype)
    top = last.detach().amax(1)
    return torch.exp(exponent - exponent.detach().amax(2, keepdim=True)), torch.exp(last - top[:, None]), top


def _chunked(x: _Tokens, u: Tensor, s: Tensor, size: int) -> Result:
    """Chunk by chunk, the state carried from one to the next."""
    outs = []
    for part in zip(*(y.split(size, dim=1) for y in x), strict=True):
        out, s = _chunk(_Tokens(*part), u, s)
        outs.append(out)
    return torch.cat(outs, dim=1), s


def _chunk(x: _Tokens, u: Tensor, s: Tensor) -> Result:
    """Largest exponents by one running maximum, then n and d by one linear scan with decays <= 1."""
    with torch.no_grad():
        total = x.w.cumsum(1)
        highest = torch.cat([s[:, 2:], x.k + total], dim=1).cummax(1).values  # as seen from the start
        p = highest[:, 1:] - total  # [B,C,E]
    before = torch.cat([s[:, 2:], p[:, :-1]], dim=1)
    keep = torch.exp(before - x.w - p)
    add = torch.exp(x.k - p)
    new = torch.stack([add * x.v, add * x.one], dim=2)  # [B,C,2,E]
    both = linear_scan(_first(keep[:, :, None]), _first(new), s[:, :2])  # [C,B,2,E]
    n, d = torch.cat([s[None, :, :2], both[:-1]]).transpose(0, 1).unbind(2)  # before each token
    return _read(n, d, before, x.k + u, x.v), torch.cat([both[-1], p[:, -1:]], dim=1)


def _recurrent(x: _Tokens, u: Tensor, s: Tensor, _: int) -> Result:
    """The equations, token by token."""
    outs = []
    n, d, p = s.unbind(1)
    for k, v, w, one in zip(*(y.unbind(1) for y in x), strict=True):
        outs.append(_read(n, d, p, k + u, v))
        top = torch.maximum(p - w, k).detach()
        keep, add = torch.exp(p - w - top), torch.exp(k - top)
        n, d, p = keep * n + add * v, keep * d + add * one, top
    return torch.stack(outs, dim=1), torch.stack([n, d, p], dim=1)


def _read(n: Tensor, d: Tensor, p: Tensor, now: Tensor, v: Tensor) -> Tensor:
    """The average of the past (n, d, p) and of v with the exponent `now`."""
    top = torch.maximum(p, now).detach()
    old, new = torch.exp(p - top), torch.exp(now - top)
    return (old * n + new * v) / (old * d + new)


def _first(x: Tensor) -> Tensor:
    """Time in front, [B,C,...] -> [C,B,...], a token's numbers side by side."""
    return x.transpose(0, 1).contiguous()


_FORMS: dict[str, Callable[..., Result]] = {"parallel": _parallel, "chunked": _chunked, "recurrent": _recurrent}


def _check(k: Tensor, v: Tensor, decay: Tensor, bonus: Tensor, s: Tensor | None, chunk_size: int) -> None:
    for name, x in (("k", k), ("v", v), ("decay", decay), ("bonus", bonus)):
        check_floating(name, x)
    if k.ndim != 3 or k.shape != v.shape or not decay.shape == bonus.shape == k.shape[2:]:
        got = f"k {shape(k)}, v {shape(v)}, decay {shape(decay)}, bonus {shape(bonus)}"
        raise ValueError(f"got {got}; accepted: k, v [batch, time, channels], decay, bonus [channels]")
    wanted = [k.shape[0], 3, k.shape[2]]
    check_matrix(s, "[B,3,E]", wanted, k.device)
    check_chunk_size(chunk_size)
