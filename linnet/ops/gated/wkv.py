"""The weighted average of RWKV-4: values weighted by e^key, with a fixed decay for every channel.

    out_t = (n_{t-1} + e^{u + k_t} v_t) / (d_{t-1} + e^{u + k_t})           u: bonus of the current token
    n_t = e^{-w} n_{t-1} + e^{k_t} v_t,   d_t = e^{-w} d_{t-1} + e^{k_t}     w > 0: rate of decay

Peng et al. 2023, arXiv:2305.13048. n and d are stored divided by e^p, where p_t = max(p_{t-1} - w, k_t) is the largest
exponent in them, so that no key overflows: every exponential is of a number <= 0. The state is (n, d, p), and zeros are
the empty one: d is at least 1 as soon as there was a token.
Gradients hold p fixed; they are exact for out and for n e^p and d e^p, which is all that p is used for.
B batch, T time, E channels, C chunk:  k, v, out [B,T,E]   w, u [E]   state s [B,1,3,E]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from ...native import scan
from ...native.scan import Places
from ..causal import guarded
from ..checks import check_inputs, check_token, shape
from ..precision import finest, full_precision
from ..prologue import Contract, begin, fill, finish
from ..state import MatrixState
from .scan import linear_scan
from .scan_kernel import Scan, refused, run
from .values import check_decay

CHUNK = 64  # tokens whose keys share one running maximum; every value gives the same result
NOTHING = -1e30  # the exponent of a token that does not exist
Result: TypeAlias = "tuple[Tensor, Tensor]"  # out [B,T,E], s [B,3,E]


def wkv(
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    bonus: Tensor,
    *,
    initial_state: MatrixState | None = None,
    output_final_state: bool = False,
    mask: Tensor | None = None,
    cu_seqlens: Tensor | Sequence[int] | None = None,
    form: str = "auto",
    backend: str = "auto",
    chunk_size: int = CHUNK,
) -> tuple[Tensor, MatrixState | None]:
    """Average the values of all tokens up to each one, channel by channel.

    Args:
        k, v: [B,T,E].
        decay, bonus: w > 0 and u, [E].
        initial_state: MatrixState(s [B,1,3,E]) of the earlier tokens, from an earlier call; never modified.
        output_final_state: also return the state after the last token.
        mask: [B,T] bool, True = real token. Padding changes nothing, and its output is 0.
        cu_seqlens: [S+1] offsets of S sequences packed in one row (B = 1); the state then has S rows.
        form: "auto", "parallel" (O(T^2)), "chunked" or "recurrent" (token by token).
        backend: "auto", "native" or "torch"; `linnet.explain_dispatch` shows what "auto" chooses.
        chunk_size: tokens per chunk of the torch form; changes the speed, not the result.

    Returns:
        out [B,T,E] in the dtype of v, and the state (float32, or float64 if any input is) or None.

    Raises:
        ValueError, StateError, BackendError: an argument that does not fit, in one sentence.

    No output depends on a later token, NaN and infinity included; for the exceptions see causal.py.
    """
    _check(k, v, decay, bonus)
    how = Contract(initial_state, output_final_state, mask, cu_seqlens, form, backend, chunk_size)
    E = k.shape[2]
    call = begin(
        "wkv", how, (k, v), (decay, bonus), out=v, state=("1,3,E", (1, 3, E)), fills={0: NOTHING},
        kernel=lambda: refused((k, v, decay, bonus), initial_state, mask),
    )  # fmt: skip
    check_decay(call.fixed[0])
    if call.native:
        out, last = run(KERNEL, (k, v, decay, bonus, call.s), Places(mask, call.offsets), output_final_state)
        return finish(call, out, last)
    pad = None if call.mask is None else call.mask.logical_not()
    with full_precision(k):
        (k, v), (rate, u) = call.tokens, call.fixed
        tokens = _Tokens(k, v, *(_along_time(x, v, pad) for x in (rate, torch.ones_like(rate))))
        n, d, p = call.s[:, 0].unbind(1)
        past = torch.stack([n, d, torch.where(d == 0, NOTHING, p)], dim=1)
        out, new = FORMS[call.form](tokens, u, past, chunk_size) if v.shape[1] else (v, past)
        s = torch.where(new[:, 1:2] == 0, 0.0, new)[:, None]
    return finish(call, fill(out, pad), s)


def wkv_step(
    k: Tensor, v: Tensor, decay: Tensor, bonus: Tensor, state: MatrixState | None = None, *, backend: str = "auto"
) -> tuple[Tensor, MatrixState]:
    """Process one token: k, v [B,E], decay, bonus [E] -> out [B,E] and the new state."""
    check_token(("batch", "channels"), k=k, v=v)
    how = Contract(state, True, None, None, "recurrent", backend, CHUNK)
    out, new = wkv(k[:, None], v[:, None], decay, bonus, **how._asdict())
    assert new is not None
    return out[:, 0], new


def state_bytes(length: int, *, channels: int, dtype: torch.dtype = torch.float32) -> int:
    """Return bytes of state per sequence: 3 E numbers for any length, float32 unless `dtype` (of k) is wider."""
    return 3 * channels * max(dtype.itemsize, torch.float32.itemsize)


def wkv_weights(k: Tensor, decay: Tensor, bonus: Tensor) -> Tensor:  # [B,T,E], [E], [E] -> [B,E,T,T]
    """Return the weight of every earlier token in every output, channel by channel: rows sum to one."""
    shares, _, _ = _shares(k, decay.expand(1, *k.shape[1:]), bonus, torch.full_like(k[:, :1], NOTHING))
    return (shares / shares.sum(2, keepdim=True))[:, :, 1:].permute(0, 3, 1, 2)


class _Tokens(NamedTuple):
    """The contribution of every token: it decays the past by e^-w, then adds e^k v and e^k one."""

    k: Tensor  # [B,T,E]
    v: Tensor  # [B,T,E]
    w: Tensor  # [B,T,E] or [1,T,E]
    one: Tensor  # as w: 1, or 0 for padding


def _along_time(x: Tensor, v: Tensor, pad: Tensor | None) -> Tensor:  # [E] -> [1,T,E], or [B,T,E] where padded
    x = x.expand(1, *v.shape[1:])
    return x if pad is None else fill(x.expand_as(v), pad)


def _parallel(x: _Tokens, u: Tensor, s: Tensor, _: int) -> Result:
    """O(T^2): the exponents of all pairs of tokens, with the state as one more token in front."""
    out, end = guarded(lambda *given: _pairs(_Tokens(*given), u, s), x, columns=1)
    return out, end


def _pairs(x: _Tokens, u: Tensor, s: Tensor) -> Result:
    shares, last, top = _shares(x.k, x.w, u, s[:, 2:])
    n = torch.cat([s[:, :1], x.v], dim=1)  # [B,1+T,E]
    d = torch.cat([s[:, 1:2], x.one.expand_as(x.v)], dim=1)
    out = (shares * n[:, None]).sum(2) / (shares[:, :, 0] * s[:, 1:2] + shares[:, :, 1:].sum(2))  # never 0 / 0
    return out, torch.stack([(last * n).sum(1), (last * d).sum(1), top], dim=1)


def _shares(k: Tensor, w: Tensor, u: Tensor, start: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return e^(exponent - largest) in every out_t [B,T,1+T,E] and in the last state [B,1+T,E], and its p."""
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
    """Find the largest exponents by a running maximum, then n and d by a linear scan with decays <= 1."""
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
    """O(T), the equations token by token."""
    outs = []
    n, d, p = s.unbind(1)
    for k, v, w, one in zip(*(y.unbind(1) for y in x), strict=True):
        outs.append(_read(n, d, p, k + u, v))
        top = torch.maximum(p - w, k).detach()
        keep, add = torch.exp(p - w - top), torch.exp(k - top)
        n, d, p = keep * n + add * v, keep * d + add * one, top
    return torch.stack(outs, dim=1), torch.stack([n, d, p], dim=1)


def _read(n: Tensor, d: Tensor, p: Tensor, now: Tensor, v: Tensor) -> Tensor:
    """Return the average of the past (n, d, p) and of v with the exponent `now`."""
    top = torch.maximum(p, now).detach()
    old, new = torch.exp(p - top), torch.exp(now - top)
    return (old * n + new * v) / (old * d + new)


def _first(x: Tensor) -> Tensor:
    """Move time to the front, [B,C,...] -> [C,B,...], so that the numbers of a token are contiguous."""
    return x.transpose(0, 1).contiguous()


def _plain(
    k: Tensor, v: Tensor, decay: Tensor, bonus: Tensor, s: Tensor | None, places: Places
) -> tuple[Tensor, Tensor]:
    """Return what the kernel does, in torch operations."""
    out, last = wkv(
        k, v.float(), decay, bonus, initial_state=None if s is None else MatrixState(s), output_final_state=True,
        mask=places.mask, cu_seqlens=places.cu_seqlens, form="chunked", backend="torch",
    )  # fmt: skip
    assert last is not None
    return out, last.s


KERNEL = Scan(scan.wkv, scan.wkv_backward, _plain)
FORMS: dict[str, Callable[..., Result]] = {"parallel": _parallel, "chunked": _chunked, "recurrent": _recurrent}


def _check(k: Tensor, v: Tensor, decay: Tensor, bonus: Tensor) -> None:
    check_inputs(k=k, v=v, decay=decay, bonus=bonus)
    if k.ndim != 3 or k.shape != v.shape or not decay.shape == bonus.shape == k.shape[2:]:
        got = f"k {shape(k)}, v {shape(v)}, decay {shape(decay)}, bonus {shape(bonus)}"
        raise ValueError(f"got {got}; accepted: k, v [batch, time, channels], decay, bonus [channels]")
