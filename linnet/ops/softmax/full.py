"""Softmax attention with a key-value cache: the quadratic baseline, under the contract of all sequence ops.

    o_t = sum_s a_ts v_s,   a_ts = exp(scale q_t.k_s) / sum_r exp(scale q_t.k_r),   r, s <= t when causal

Vaswani et al. 2017, arXiv:1706.03762; `torch.nn.functional.scaled_dot_product_attention` does the work.
B batch, T time, H heads, D query/key width, V value width:  q, k [B,T,H,D]   v, out [B,T,H,V]   mask [B,T].
The output is 0 at padding and for a query without keys to attend to, and so are their gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as sdpa

from ...errors import StateError
from ..causal import guarded, refuse_unguarded
from ..checks import check_cu_seqlens, check_form, check_mask, check_qkv, check_scale, check_step, widened
from ..dispatch import check_torch, choose
from ..state import AnyState, KVState, S, check_cache, join_states, real_tokens

BLOCK = 512  # queries per call where a mask must be written out, so that it is BLOCK x T, never T x T
Result: TypeAlias = "tuple[Tensor, KVState | None]"


def softmax_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = True,
    scale: float | None = None,
    initial_state: KVState | None = None,
    output_final_state: bool = False,
    mask: Tensor | None = None,
    cu_seqlens: Tensor | Sequence[int] | None = None,
    form: str = "auto",
    backend: str = "auto",
) -> Result:
    """Attend with softmax weights, in time quadratic in T.

    Args:
        q, k, v: [B,T,H,D], [B,Tk,H,D], [B,Tk,H,V], one floating dtype; Tk = T when causal.
        causal: token t sees tokens up to and including t; False: every query sees every key.
        scale: factor on q.k; None means 1 / sqrt(D).
        initial_state: KVState, the cache of earlier keys and values, from an earlier call; never modified.
        output_final_state: also return the cache of all keys and values so far.
        mask: [B,Tk] bool, True = real token. When not causal it applies to keys, and every query has an output.
        cu_seqlens: [S+1] offsets of S sequences packed in one row (B = 1); the state then has S rows.
        form: "auto" or "parallel", the only one.
        backend: "auto" or "torch"; there is no native kernel.

    Returns:
        out [B,T,H,V] in the dtype of v, and the state, in the dtype of k and v, or None.

    Raises:
        ValueError, StateError, BackendError: an argument that does not fit, in one sentence.

    When causal, no output depends on a later token, NaN and infinity included; for the exceptions see causal.py.
    """
    check_qkv(q, k, v, causal)
    scale = check_scale(scale, q.shape[-1])
    check_mask(mask, k.shape[0], k.shape[1], k.device)
    if causal:
        refuse_unguarded("softmax_attention", (q, k, v), mask)
    if cu_seqlens is not None:
        offsets = check_cu_seqlens(cu_seqlens, k.shape[1], k.shape[0])
        attend = partial(
            softmax_attention, causal=causal, scale=scale, output_final_state=output_final_state, form=form,
            backend=backend,
        )  # fmt: skip
        return packed(attend, q, k, v, mask, offsets, initial_state, KVState)
    if mask is not None:  # padding, NaN included, is never read
        k, v = (x.masked_fill(~mask[:, :, None, None], 0) for x in (k, v))
        q = q.masked_fill(~mask[:, :, None, None], 0) if causal else q
    cache = KVState(k, v, mask)
    if initial_state is not None:
        initial_state = widened(initial_state, KVState, k.dtype)
        check_cache(initial_state, KVState, k, v)
        cache = append(initial_state, cache)
    run = FORMS[choose("softmax_attention", form, backend, q.shape[1]).form]
    out = run(q, cache, cache.k.shape[1] - k.shape[1], causal, scale)
    if mask is not None and causal:
        out = out.masked_fill(~mask[:, :, None, None], 0)
    if not output_final_state:
        return out, None
    return out, cache.clone() if initial_state is None else cache  # the state never shares memory with k and v


def softmax_attention_step(
    q: Tensor, k: Tensor, v: Tensor, state: KVState | None = None, *, scale: float | None = None, backend: str = "auto"
) -> tuple[Tensor, KVState]:
    """Process one token: q, k [B,H,D], v [B,H,V] -> out [B,H,V] and the cache one token longer."""
    check_step(q, k, v)
    factor = check_scale(scale, q.shape[-1])
    cache = KVState(k[:, None], v[:, None])
    if state is not None:
        state = widened(state, KVState, k.dtype)
        check_cache(state, KVState, cache.k, cache.v)
        cache = append(state, cache)
    check_torch("softmax_attention", backend)
    out = _bidirectional(q[:, None], cache, factor)  # the newest token sees all of it
    return out[:, 0], cache.clone() if state is None else cache


def state_bytes(length: int, *, heads: int, head_dim: int, value_dim: int, dtype: torch.dtype = torch.float32) -> int:
    """Return bytes of state per sequence after `length` tokens: T H (D + V) numbers."""
    return length * heads * (head_dim + value_dim) * dtype.itemsize


def append(past: KVState, new: KVState) -> KVState:
    """Concatenate along time; the mask is written out if either side has padding."""
    k, v = torch.cat([past.k, new.k], dim=1), torch.cat([past.v, new.v], dim=1)
    if past.mask is None and new.mask is None:
        return KVState(k, v)
    return KVState(k, v, torch.cat([real_tokens(past), real_tokens(new)], dim=1))


def _parallel(q: Tensor, cache: KVState, past: int, causal: bool, scale: float) -> Tensor:
    """O(T^2): every query against all keys of the cache, of which `past` are from earlier calls."""
    if not causal:
        return _bidirectional(q, cache, scale)
    if q.shape[1] == 1:
        return _causal(q, cache, past, scale)
    seen = cache.mask
    out: Tensor
    (out,) = guarded(lambda k, v: (_causal(q, KVState(k, v, seen), past, scale),), cache[:2], columns=1, whole=(0,))
    return out


FORMS: dict[str, Callable[[Tensor, KVState, int, bool, float], Tensor]] = {"parallel": _parallel}


def _causal(q: Tensor, cache: KVState, past: int, scale: float) -> Tensor:  # [B,T,H,D] -> [B,T,H,V]
    """Query t sees the real keys up to past + t, and always its own: no row is ever empty."""
    if q.shape[1] == 0 or (past == 0 and cache.mask is None):
        return sdpa_bthd(q, cache.k, cache.v, scale=scale, is_causal=True)
    outs = []
    for start in range(0, q.shape[1], BLOCK):
        block = q[:, start : start + BLOCK]
        stop = past + start + block.shape[1]  # keys this block can see
        own = torch.arange(past + start, stop, device=q.device)[:, None]  # [C,1]
        keys = torch.arange(stop, device=q.device)
        seen = keys <= own  # [C,S]
        if cache.mask is not None:
            seen = (seen & cache.mask[:, None, None, :stop]) | (keys == own)  # [B,1,C,S]
        outs.append(sdpa_bthd(block, cache.k[:, :stop], cache.v[:, :stop], scale=scale, attn_mask=seen))
    return torch.cat(outs, dim=1)


def _bidirectional(q: Tensor, cache: KVState, scale: float) -> Tensor:  # [B,Tq,H,D] -> [B,Tq,H,V]
    if cache.mask is None:
        return sdpa_bthd(q, cache.k, cache.v, scale=scale)
    empty = ~cache.mask.any(dim=1, keepdim=True)  # [B,1]: such a row attends to its (zeroed) padding, then outputs 0
    seen = (cache.mask | empty)[:, None, None, :]  # [B,1,1,Tk]
    out = sdpa_bthd(q, cache.k, cache.v, scale=scale, attn_mask=seen)
    return out.masked_fill(empty[:, :, None, None], 0)


def sdpa_bthd(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float, attn_mask: Tensor | None = None, is_causal: bool = False
) -> Tensor:
    """Call scaled_dot_product_attention in our layout [B,T,H,.]."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))  # [B,H,T,.]
    return sdpa(q, k, v, attn_mask=attn_mask, is_causal=is_causal, scale=scale).transpose(1, 2)


def packed(
    attend: Callable[..., tuple[Tensor, S | None]],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    offsets: list[int],
    state: S | None,
    kind: type[S],
) -> tuple[Tensor, S | None]:
    """Run `attend` on one sequence after the other: none pays for the length of its neighbor."""
    if q.shape[1] != k.shape[1]:
        raise ValueError(f"q has {q.shape[1]} tokens and k {k.shape[1]}; with cu_seqlens accepted: q as long as k")
    if state is not None:
        check_form(state, kind)
        if state.rows != len(offsets) - 1:
            got = f"{state.rows} rows for {len(offsets) - 1} packed sequences"
            raise StateError(f"initial_state has {got}; accepted: one row for each")
    outs, finals = [], []
    for i, (start, stop) in enumerate(pairwise(offsets)):
        row: Any = None if state is None else without_padding(state.select([i]))
        part = None if mask is None else mask[:, start:stop]
        out, final = attend(q[:, start:stop], k[:, start:stop], v[:, start:stop], mask=part, initial_state=row)
        outs.append(out)
        finals += [] if final is None else [final]
    return torch.cat(outs, dim=1), join_states(finals) if finals else None


def without_padding(row: AnyState) -> AnyState:
    """Cut a cache [1,T,...] to its real tokens, so that padding does not accumulate from call to call."""
    if not isinstance(row, KVState) or row.mask is None:
        return row
    return KVState(row.k[:, row.mask[0]], row.v[:, row.mask[0]])
