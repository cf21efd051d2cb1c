"""Decayed attention: linear attention without a normalizer, whose state decays at every token.

    S_t = Diag(exp(decay_t)) S_{t-1} + k_t v_t^T,   out_t = S_t^T q_t = sum_{j<=t} (q_t . exp(G_t - G_j) k_j) v_j

G_t is the sum of decay_1 .. decay_t. One factor per head: Sun et al. 2023 (RetNet), arXiv:2307.08621; Dao and Gu 2024
(Mamba-2), arXiv:2405.21060. One per key channel: Yang et al. 2024 (GLA), arXiv:2312.06635.
B batch, T time, H heads, D key width, V value width, M chunks of C tokens:  q, k [B,T,H,D]   v, out [B,T,H,V]
decay [B,T,H] or [B,T,H,D]   state s [B,H,D,V]. The chunked form is derived in README.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import pad

from ...native.gated import Inputs
from ..causal import guarded
from ..checks import check_others, check_qkv, check_token, shape
from ..native_allowed import refused_sequence
from ..precision import full_precision
from ..prologue import Contract, begin, finish, on_torch
from ..state import MatrixState
from .by_kernel import by_kernel
from .decay_chunked import chunks
from .values import check_values

CHUNK = 32  # 16 to 64 are about equally fast at D = 16 to 64; every value gives the same result
FORGOTTEN = -100.0  # exp(-100) is negligible next to any other term; -inf, a reset, would make differences NaN
Result: TypeAlias = "tuple[Tensor, Tensor]"  # out [B,H,T,V], s [B,H,D,V]


class _Tokens(NamedTuple):
    """The inputs of one call, heads before time."""

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
    initial_state: MatrixState | None = None,
    output_final_state: bool = False,
    mask: Tensor | None = None,
    cu_seqlens: Tensor | Sequence[int] | None = None,
    form: str = "auto",
    backend: str = "auto",
    chunk_size: int = CHUNK,
) -> tuple[Tensor, MatrixState | None]:
    """Attend to all earlier tokens, with weights that decay with distance.

    Args:
        q, k, v: [B,T,H,D], [B,T,H,D], [B,T,H,V], one floating dtype.
        decay: logarithm of the factor, <= 0: [B,T,H], or [B,T,H,D] for one per key channel; its B may be 1.
        initial_state: MatrixState(s [B,H,D,V]) of the earlier tokens, from an earlier call; never modified.
        output_final_state: also return the state after the last token.
        mask: [B,T] bool, True = real token. Padding changes nothing, and its output is 0.
        cu_seqlens: [S+1] offsets of S sequences packed in one row (B = 1); the state then has S rows.
        form: "auto", "parallel" (one chunk, O(T^2)), "chunked" or "recurrent" (token by token).
        backend: "auto", "native" (the chunked form, or one token) or "torch".
        chunk_size: tokens per chunk; changes the speed, not the result.

    Returns:
        out [B,T,H,V] in the dtype of v, and the state (float32, or float64 if any input is) or None.

    Raises:
        ValueError, StateError, BackendError: an argument that does not fit, in one sentence.

    No output depends on a later token, NaN and infinity included; exceptions: gradients, torch.compile, and devices
    other than the CPU (see causal.py). With a decay per channel the native kernel keeps digits, not bits: a strong one
    changes how its chunk of 16 tokens is rounded.
    """
    _check(q, k, v, decay)
    how = Contract(initial_state, output_final_state, mask, cu_seqlens, form, backend, chunk_size)
    sizes = (*q.shape[2:], v.shape[3])
    tokens = (q, k, v, decay)
    kernel = partial(refused_sequence, *tokens)
    call = begin("decayed_attention", how, tokens, out=v, state=("H,D,V", sizes), kernel=kernel)
    if call.native:
        return by_kernel(call, Inputs(q, k, v, decay), partial(_plain, how))
    check_values(Inputs(*call.tokens), None)
    with full_precision(q):
        q, k, v, decay = call.tokens
        decay = decay if decay.ndim == 4 else decay[..., None]
        q, k, v, decay = (x.transpose(1, 2) for x in (q, k, v, decay))
        out, s = FORMS[call.form](_Tokens(q, k, v, decay.clamp(min=FORGOTTEN), call.s), chunk_size)
    return finish(call, out.transpose(1, 2), s)


def _plain(how: Contract, q: Tensor, k: Tensor, v: Tensor, decay: Tensor, *rest: Any) -> Any:
    """Compute on torch what the kernel was given; the matrix of the state comes last."""
    return decayed_attention(q, k, v, decay, **on_torch(how, rest[-1]))


def decayed_attention_step(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, state: MatrixState | None = None, *, backend: str = "auto"
) -> tuple[Tensor, MatrixState]:
    """Process one token: q, k [B,H,D], v [B,H,V], decay [B,H] or [B,H,D] -> out [B,H,V] and the new state."""
    check_token(("batch", "heads", "width"), q=q, k=k, v=v)
    by_head = isinstance(decay, Tensor) and decay.ndim == 2
    check_token(("batch", "heads") if by_head else ("batch", "heads", "width"), decay=decay)
    q, k, v, decay = (x[:, None] for x in (q, k, v, decay))
    how = Contract(state, True, None, None, "recurrent", backend, CHUNK)
    out, new = decayed_attention(q, k, v, decay, **how._asdict())
    assert new is not None
    return out[:, 0], new


def state_bytes(length: int, *, heads: int, key_dim: int, value_dim: int, dtype: torch.dtype = torch.float32) -> int:
    """Return bytes of state per sequence: H D V numbers for any length, float32 unless `dtype` (of q) is wider."""
    return heads * key_dim * value_dim * max(dtype.itemsize, torch.float32.itemsize)


def _recurrent(x: _Tokens, chunk_size: int) -> Result:
    """O(T), the recurrence as written; `chunk_size` is not used."""
    s, outs = x.s, []
    tokens = (y.unbind(2) for y in (x.q, x.k, x.v, x.decay.exp()))
    for q, k, v, kept in zip(*tokens, strict=True):
        s = kept[..., None] * s + k[..., None] * v[..., None, :]  # [B,H,D,V]
        outs.append((q[..., None, :] @ s)[..., 0, :])  # [B,H,V]
    if not outs:
        return x.v.clone(), s.clone()
    return torch.stack(outs, dim=2), s


def _parallel(x: _Tokens, chunk_size: int) -> Result:
    """O(T^2): all tokens as one chunk; `chunk_size` is not used."""
    return _chunked(x, max(x.v.shape[2], 1))


def _chunked(x: _Tokens, chunk_size: int) -> Result:
    """O(T C): scores inside all chunks in one batch, then the state from chunk to chunk."""

    def run(*given: Tensor) -> Result:
        return _in_chunks(_Tokens(*given), chunk_size)

    out, s = guarded(run, x, columns=2, whole=(1, 3), axis=2)
    return out, s


def _in_chunks(x: _Tokens, chunk_size: int) -> Result:
    length = x.v.shape[2]
    size = max(min(chunk_size, length), 1)
    if x.decay.shape[-1] > 1:
        size = 1 << (size - 1).bit_length()  # a power of two: chunks are halved recursively
    q, k, v, decay = (_cut(y, size) for y in x[:4])  # [B,H,M,C,.]
    out, s = chunks(q, k, v, decay, x.s)
    return out.flatten(2, 3)[:, :, :length], s


def _cut(x: Tensor, size: int) -> Tensor:
    """[B,H,T,.] -> [B,H,M,C,.], at least one chunk; zeros after the last token change nothing."""
    missing = -x.shape[2] % size if x.shape[2] else size
    return (pad(x, (0, 0, 0, missing)) if missing else x.contiguous()).unflatten(2, (-1, size))


FORMS: dict[str, Callable[[_Tokens, int], Result]] = {
    "parallel": _parallel,
    "chunked": _chunked,
    "recurrent": _recurrent,
}


def _check(q: Tensor, k: Tensor, v: Tensor, decay: Tensor) -> None:
    check_qkv(q, k, v)
    check_others("q", q, decay=decay)
    B, T, H, D = q.shape
    if tuple(decay.shape[1:]) not in ((T, H), (T, H, D)) or decay.shape[0] not in (1, B):
        accepted = f"[B,T,H] = [{B}, {T}, {H}] or [B,T,H,D] = [{B}, {T}, {H}, {D}]; B may be 1"
        raise ValueError(f"decay has shape {shape(decay)}; accepted: {accepted}")
