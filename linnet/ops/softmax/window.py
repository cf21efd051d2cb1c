"""Sliding-window attention: softmax over the last `window` real tokens, with a state of constant size.

    o_t = sum_s a_ts v_s,   a_ts = exp(scale q_t.k_s) / sum_r exp(scale q_t.k_r),   t - window < r, s <= t

Beltagy et al. 2020, section 3.1, arXiv:2004.05150. Blocks of C >= window queries, each against its own keys and the
window - 1 before them, so time and memory are O(T window) and the only mask is one band [C, window - 1 + C].
The window counts real tokens only, so a padded row gives the outputs of the same row without padding.
B batch, T time, H heads, D query/key width, V value width, W = window - 1, N blocks of C queries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import pad

from ...errors import StateError, whole
from ..causal import guarded, refuse_unguarded
from ..checks import check_cu_seqlens, check_mask, check_qkv, check_scale, check_step, widened
from ..dispatch import check_torch, choose
from ..state import WindowState, check_cache
from .full import packed
from .full import sdpa_bthd as sdpa

MIN_BLOCK = 64  # below this many queries a block costs more to call than to compute
Result: TypeAlias = "tuple[Tensor, WindowState | None]"


def sliding_window_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    window: int,
    causal: bool = True,
    scale: float | None = None,
    initial_state: WindowState | None = None,
    output_final_state: bool = False,
    mask: Tensor | None = None,
    cu_seqlens: Tensor | Sequence[int] | None = None,
    form: str = "auto",
    backend: str = "auto",
) -> Result:
    """Attend with softmax weights to the last `window` tokens, in time linear in T.

    Args:
        q, k, v: [B,T,H,D], [B,T,H,D], [B,T,H,V], one floating dtype.
        window: how many tokens a query sees, its own included.
        causal: True, the only value: a window looks back.
        scale: factor on q.k; None means 1 / sqrt(D).
        initial_state: WindowState, the last window - 1 tokens, from an earlier call; never modified.
        output_final_state: also return the state after the last token.
        mask: [B,T] bool, True = real token. Padding takes no place in a window, and its output is 0.
        cu_seqlens: [S+1] offsets of S sequences packed in one row (B = 1); the state then has S rows.
        form: "auto" or "chunked", the only one.
        backend: "auto" or "torch"; there is no native kernel.

    Returns:
        out [B,T,H,V] in the dtype of v, and the state, in the dtype of k and v, or None.

    Raises:
        ValueError, StateError, BackendError: an argument that does not fit, in one sentence.

    No output depends on a later token, NaN and infinity included; for the exceptions see causal.py.
    """
    check_qkv(q, k, v)
    _check_window(window, causal)
    scale = check_scale(scale, q.shape[-1])
    check_mask(mask, k.shape[0], k.shape[1], k.device)
    refuse_unguarded("sliding_window_attention", (q, k, v), mask)
    if cu_seqlens is not None:
        offsets = check_cu_seqlens(cu_seqlens, k.shape[1], k.shape[0])
        attend = partial(
            sliding_window_attention, window=window, scale=scale, output_final_state=output_final_state, form=form,
            backend=backend,
        )  # fmt: skip
        return packed(attend, q, k, v, mask, offsets, initial_state, WindowState)
    if initial_state is not None:
        initial_state = widened(initial_state, WindowState, k.dtype)
        _check_state(initial_state, k, v, window)
    run = FORMS[choose("sliding_window_attention", form, backend, q.shape[1]).form]
    if mask is None:
        out = run(q, k, v, initial_state, window, scale)
    else:
        order = torch.argsort((~mask).byte(), dim=1, stable=True)  # [B,T]: real tokens first, in order
        q, k, v = (_take(x.masked_fill(~mask[:, :, None, None], 0), order) for x in (q, k, v))
        out = _take(run(q, k, v, initial_state, window, scale), order.argsort(dim=1))
        out = out.masked_fill(~mask[:, :, None, None], 0)
    return out, _final_state(k, v, mask, initial_state, window) if output_final_state else None


def sliding_window_attention_step(
    q: Tensor, k: Tensor, v: Tensor, state: WindowState | None = None, *, window: int, scale: float | None = None,
    backend: str = "auto",
) -> tuple[Tensor, WindowState]:  # fmt: skip
    """Process one token: q, k [B,H,D], v [B,H,V] -> out [B,H,V] and the window, one token later."""
    check_step(q, k, v)
    _check_window(window, True)
    scale = check_scale(scale, q.shape[-1])
    k, v = k[:, None], v[:, None]
    if state is None:
        state = empty_state(k, v, window)
    state = widened(state, WindowState, k.dtype)
    _check_state(state, k, v, window)
    check_torch("sliding_window_attention", backend)
    k, v = torch.cat([state.k, k], dim=1), torch.cat([state.v, v], dim=1)  # [B,W+1,H,.]
    real = pad(state.mask, (0, 1), value=True)  # [B,W+1]
    out = sdpa(q[:, None], k, v, scale=scale, attn_mask=real[:, None, None, :])
    return out[:, 0], WindowState(k[:, 1:], v[:, 1:], real[:, 1:])


def state_bytes(
    length: int, *, window: int, heads: int, head_dim: int, value_dim: int, dtype: torch.dtype = torch.float32
) -> int:
    """Return bytes of state per sequence: W H (D + V) numbers and W flags for any length."""
    return (window - 1) * (heads * (head_dim + value_dim) * dtype.itemsize + 1)


def empty_state(k: Tensor, v: Tensor, window: int) -> WindowState:
    """Return the state before the first token: W places, none of them real."""
    k, v = (x.new_zeros(x.shape[0], window - 1, *x.shape[2:]) for x in (k, v))
    return WindowState(k, v, k.new_zeros(k.shape[:2], dtype=torch.bool))


def _chunked(q: Tensor, k: Tensor, v: Tensor, state: WindowState | None, window: int, scale: float) -> Tensor:
    """O(T window): blocks of queries, each against its own keys and the W before them. Every token is real."""
    out: Tensor
    (out,) = guarded(lambda k, v: (_in_blocks(q, k, v, state, window, scale),), (k, v), columns=1, whole=(0,))
    return out


FORMS: dict[str, Callable[..., Tensor]] = {"chunked": _chunked}


def _in_blocks(q: Tensor, k: Tensor, v: Tensor, state: WindowState | None, window: int, scale: float) -> Tensor:
    """Only the first block can see the state: C >= W keeps it out of reach of the others."""
    size = min(max(window, MIN_BLOCK), q.shape[1])  # C
    out = _first_block(q[:, :size], k[:, :size], v[:, :size], state, window, scale)
    if q.shape[1] == size:
        return out
    return torch.cat([out, _other_blocks(q, k, v, size, window, scale)], dim=1)


def _first_block(q: Tensor, k: Tensor, v: Tensor, state: WindowState | None, window: int, scale: float) -> Tensor:
    if state is None and q.shape[1] <= window:
        return sdpa(q, k, v, scale=scale, is_causal=True)
    past = 0 if state is None else window - 1
    seen = _band(q.shape[1], past, window, q.device)  # [C,past+C]
    if state is not None:
        k, v = torch.cat([state.k, k], dim=1), torch.cat([state.v, v], dim=1)
        seen = seen & pad(state.mask, (0, q.shape[1]), value=True)[:, None, None, :]  # [B,1,C,W+C]
    return sdpa(q, k, v, scale=scale, attn_mask=seen)


def _other_blocks(q: Tensor, k: Tensor, v: Tensor, size: int, window: int, scale: float) -> Tensor:
    """Queries from C on, as N more rows per sequence:  q [B N,C,H,D]   k [B N,W+C,H,D]   v [B N,W+C,H,V]."""
    length, past = q.shape[1] - size, window - 1
    missing = -length % size  # tokens that fill the last block; no real query sees them
    q = pad(q[:, size:], (0, 0, 0, 0, 0, missing)).unflatten(1, (-1, size)).flatten(0, 1)
    k, v = (
        pad(x[:, size - past :], (0, 0, 0, 0, 0, missing))
        .unfold(1, past + size, size)  # [B,N,H,.,W+C]
        .movedim(-1, 2)
        .flatten(0, 1)
        for x in (k, v)
    )
    out = sdpa(q, k, v, scale=scale, attn_mask=_band(size, past, window, q.device))  # [B N,C,H,V]
    return out.unflatten(0, (-1, (length + missing) // size)).flatten(1, 2)[:, :length]


def _band(size: int, past: int, window: int, device: torch.device) -> Tensor:  # [C,past+C] bool
    """Return which keys at -past .. C-1 query i of a block sees:  i - window < key <= i."""
    query = torch.arange(size, device=device)[:, None]
    key = torch.arange(-past, size, device=device)
    return (key <= query) & (key > query - window)


def _final_state(k: Tensor, v: Tensor, mask: Tensor | None, state: WindowState | None, window: int) -> WindowState:
    """Return the newest W real tokens of the state and the new ones; with a mask, k and v have the real ones first."""
    past = empty_state(k, v, window) if state is None else state
    if mask is None:
        new = min(k.shape[1], window - 1)
        k, v = (torch.cat([a[:, new:], b[:, b.shape[1] - new :]], dim=1) for a, b in ((past.k, k), (past.v, v)))
        return WindowState(k, v, pad(past.mask[:, new:], (0, new), value=True))
    index = mask.sum(dim=1, keepdim=True) + torch.arange(window - 1, device=k.device)  # [B,W]
    k, v = (_take(torch.cat([a, b], dim=1), index) for a, b in ((past.k, k), (past.v, v)))
    return WindowState(k, v, pad(past.mask, (0, mask.shape[1]), value=True).gather(1, index))


def _take(x: Tensor, index: Tensor) -> Tensor:  # [B,T,H,.], [B,N] -> [B,N,H,.]
    return x.gather(1, index[:, :, None, None].expand(-1, -1, *x.shape[2:]))


def _check_window(window: int, causal: bool) -> None:
    whole("window", window, 1, hint="it counts tokens, the newest included")
    if not causal:
        raise ValueError("causal is False; accepted: True, since a sliding window looks back; use softmax_attention")


def _check_state(state: WindowState, k: Tensor, v: Tensor, window: int) -> None:
    check_cache(state, WindowState, k, v)
    if state.k.shape[1] != window - 1:
        raise StateError(f"initial_state is of window {state.k.shape[1] + 1}; accepted here: window {window}")
