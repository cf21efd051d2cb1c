"""Attention that forgets: a matrix of memory that fades by a factor of its own at every token.

    S_t = Diag(exp(decay_t)) S_{t-1} + k_t v_t^T,   out_t = S_t^T q_t = sum_{j<=t} (q_t . exp(G_t - G_j) k_j) v_j

G_t is the sum of decay_1 .. decay_t. One factor per head: Sun et al. 2023 (RetNet), arXiv:2307.08621; Dao and Gu 2024
(Mamba-2), arXiv:2405.21060. One per key channel: Yang et al. 2024 (GLA), arXiv:2312.06635.
B batch, T time, H heads, D key width, V values, M chunks of C tokens:  q, k [B,T,H,D]   v, out [B,T,H,V]
decay [B,T,H] or [B,T,H,D]   state [B,H,D,V].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from .causal import guarded
from .checks import check_chunk_size, check_floating, check_mask, check_matrix, check_qkv, shape
from .decay_chunks import chunks
from .dispatch import check_names
from .fused import full_precision

CHUNK = 32  # 16 to 64 are near one another at D = 16 to 64; every value gives the same answer
FORGOTTEN = -100.0  # exp(-100) is nothing beside any other term; -inf, a fresh start, would make differences NaN


class _Call(NamedTuple):
    """One call, heads before time, padding and all: nothing below needs to know of masks or narrow dtypes."""

    q: Tensor  # [B,H,T,D]
    k: Tensor  # [B,H,T,D]
    v: Tensor  # [B,H,T,V]
    decay: Tensor  # [B,H,T,1] or [B,H,T,D]; B may be 1
    s: Tensor  # [B,H,D,V]


def decayed_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    *,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    mask: Tensor | None = None,
    form: str = "auto",
    chunk_size: int = CHUNK,
) -> tuple[Tensor, Tensor | None]:
    """Linear attention without a normaliser, whose memory fades.

    Args:
        q, k, v: [B,T,H,D], [B,T,H,D], [B,T,H,V], one floating dtype.
        decay: logarithm of the factor, <= 0: [B,T,H], or [B,T,H,D] for one per key channel; its B may be 1.
        initial_state: [B,H,D,V], what came before, from an earlier call; never altered.
        output_final_state: also return the state after the last token.
        mask: [B,T] bool, True = real token. Padding changes nothing, and its own output is 0.
        form: "auto", "parallel" (one chunk, O(T^2)), "chunked" or "recurrent" (token by token).
        chunk_size: tokens per chunk; changes the speed, not the answer.

    Returns:
        out [B,T,H,V] in the dtype of v, and the state (float32, or float64 if anything given is) or None.

    Raises:
        ValueError, StateError: an argument that does not fit, in one sentence.

    No output depends on a later token, NaN and infinity included; exceptions for those: gradients, torch.compile, and
    devices other than the cpu (see causal.py).
    """
    _check(q, k, v, decay, initial_state, mask)
    check_chunk_size(chunk_size)
    check_names(form, "torch")
    if form == "auto":
        form = "recurrent" if q.shape[1] == 1 else "chunked"
    with full_precision(q):
        out, s = FORMS[form](_prepared(q, k, v, decay, initial_state, mask), chunk_size)
    return out.transpose(1, 2).to(v.dtype), s if output_final_state else None


def decayed_attention_step(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """One token: q, k [B,H,D], v [B,H,V], decay [B,H] or [B,H,D] -> out [B,H,V] and the new state; the old is kept."""
    for name, x in (("q", q), ("k", k), ("v", v), ("decay", decay)):
        check_floating(name, x)
        if x.ndim != 3 and not (x is decay and x.ndim == 2):
            raise ValueError(f"{name} has shape {shape(x)}; a step accepts one token, axes [batch, heads, width]")
    token = (x[:, None] for x in (q, k, v, decay))
    out, s = decayed_attention(*token, initial_state=state, output_final_state=True, form="recurrent")
    assert s is not None
    return out[:, 0], s


def state_bytes(length: int, *, heads: int, key_dim: int, value_dim: int, dtype: torch.dtype = torch.float32) -> int:
    """Bytes of state per sequence: H D V numbers, whatever the length; float32 unless `dtype` (of q) is wider."""
    return heads * key_dim * value_dim * max(dtype.itemsize, torch.float32.itemsize)


def recurrent(c: _Call, chunk_size: int) -> tuple[Tensor, Tensor]:
    """The recurrence as written, O(T) one after another. Has no use for `chunk_size`."""
    s, outs = c.s, []
    tokens = (x.unbind(2) for x in (c.q, c.k, c.v, c.decay.exp()))
    for q, k, v, kept in zip(*tokens, strict=True):
        s = kept[..., None] * s + k[..., None] * v[..., None, :]  # [B,H,D,V]
        outs.append((q[..., None, :] @ s)[..., 0, :])  # [B,H,V]
    if not outs:
        return c.v.clone(), s.clone()
    return torch.stack(outs, dim=2), s


def parallel(c: _Call, chunk_size: int) -> tuple[Tensor, Tensor]:
    """O(T^2): every token meets every earlier one, as one chunk. Has no use for `chunk_size`."""
    return chunked(c, max(c.v.shape[2], 1))


def chunked(c: _Call, chunk_size: int) -> tuple[Tensor, Tensor]:
    """O(T C): all chunks at once within themselves, then the state from chunk to chunk."""

    def run(*given: Tensor) -> tuple[Tensor, Tensor]:
        return _in_chunks(_Call(*given), chunk_size)

    out, s = guarded(run, c, columns=2, whole=(1, 3), axis=2)
    return out, s


def _in_chunks(c: _Call, chunk_size: int) -> tuple[Tensor, Tensor]:
    length = c.v.shape[2]
    size = max(min(chunk_size, length), 1)
    if c.decay.shape[-1] > 1:
        size = 1 << (size - 1).bit_length()  # halves of halves
    q, k, v, decay = (_cut(x, size) for x in c[:4])  # [B,H,M,C,.]
    out, s = chunks(q, k, v, decay, c.s)
    return out.flatten(2, 3)[:, :, :length], s


FORMS: dict[str, Callable[[_Call, int], tuple[Tensor, Tensor]]] = {
    "parallel": parallel,
    "chunked": chunked,
    "recurrent": recurrent,
}


def _cut(x: Tensor, size: int) -> Tensor:
    """[B,H,T,.] -> [B,H,M,C,.], at least one chunk; zeros behind the last token change nothing."""
    missing = -x.shape[2] % size if x.shape[2] else size
    return (pad(x, (0, 0, 0, missing)) if missing else x.contiguous()).unflatten(2, (-1, size))


def _prepared(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, s: Tensor | None, mask: Tensor | None) -> _Call:
    given = [x.dtype for x in (q, k, v, decay, s) if x is not None]
    wide = torch.float64 if torch.float64 in given else torch.float32
    decay = decay if decay.ndim == 4 else decay[..., None]
    parts = [x.to(wide) for x in (q, k, v, decay)]
    if mask is not None:
        parts = [x.masked_fill(~mask[:, :, None, None], 0.0) for x in parts]
    q, k, v, decay = (x.transpose(1, 2) for x in parts)
    if s is None:
        s = v.new_zeros(*v.shape[:2], q.shape[-1], v.shape[-1])
    return _Call(q, k, v, decay.clamp(min=FORGOTTEN), s.to(wide))


def _check(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, state: Tensor | None, mask: Tensor | None) -> None:
    check_qkv(q, k, v)
    check_mask(mask, v.shape[0], v.shape[1], v.device)
    check_floating("decay", decay)
    (B, T, H, V), D = v.shape, q.shape[3]
    if tuple(decay.shape[1:]) not in ((T, H), (T, H, D)) or decay.shape[0] not in (1, B):
        accepted = f"[B,T,H] = [{B}, {T}, {H}] or [B,T,H,D] = [{B}, {T}, {H}, {D}]; B may be 1"
        raise ValueError(f"decay has shape {shape(decay)}; accepted: {accepted}")
    if decay.device != v.device:
        raise ValueError(f"q is on {v.device} but decay on {decay.device}; use decay.to(q.device)")
    check_matrix(state, "[B,H,D,V]", [B, H, D, V], v.device)
