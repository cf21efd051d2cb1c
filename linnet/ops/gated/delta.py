"""The delta rule: linear attention that overwrites the value stored under a key instead of only adding to it.

    S_t = (I - b_t k_t k_t^T) Diag(a_t) S_{t-1} + b_t k_t v_t^T,   out_t = S_t^T q_t

One step of gradient descent on |S^T k_t - v_t|^2 with learning rate b_t, after a decay a_t. Schlag et al. 2021,
arXiv:2102.11174; Yang et al. 2024, arXiv:2406.06484; with a decay per head ("gated"): Yang et al. 2024,
arXiv:2412.06464; with one per key channel ("Kimi Delta Attention"): Kimi team 2025, arXiv:2510.26692. Keys
should have length 1: then b = 1 replaces the old value, b = 0 keeps it, and the state stays bounded up to b = 2.
B batch, T time, H heads, D key width, V value width:  q, k [B,T,H,D]   v, out [B,T,H,V]   beta [B,T,H]
decay [B,T,H] or [B,T,H,D]   state s [B,H,D,V]. README.md derives the chunked form, delta_chunked.py computes it.
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
from .decay import FORGOTTEN
from .decay import state_bytes as state_bytes
from .delta_chunked import chunked, plain
from .usual import usual
from .values import check_values

CHUNK = 32  # 16 and 64 train more slowly at D = 16 and 45, V = 64; every value gives the same result
Result: TypeAlias = "tuple[Tensor, Tensor]"  # out [B,T,H,V], s [B,H,D,V]


class _Tokens(NamedTuple):
    """The inputs of one call in the dtype of the state; 0 at padding, which then reads 0 and writes nothing."""

    q: Tensor  # [B,T,H,D]
    k: Tensor  # [B,T,H,D]
    v: Tensor  # [B,T,H,V]
    beta: Tensor  # [B,T,H]
    decay: Tensor | None  # [B,T,H], or [B,T,H,D] by channel
    s: Tensor  # [B,H,D,V]


def delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    decay: Tensor | None = None,
    *,
    initial_state: MatrixState | None = None,
    output_final_state: bool = False,
    mask: Tensor | None = None,
    cu_seqlens: Tensor | Sequence[int] | None = None,
    form: str = "auto",
    backend: str = "auto",
    chunk_size: int = CHUNK,
) -> tuple[Tensor, MatrixState | None]:
    """Read and update a matrix at every token, in time and memory linear in T.

    Args:
        q, k, v: [B,T,H,D], [B,T,H,D], [B,T,H,V], one floating dtype; keys of length 1 (or 0).
        beta: [B,T,H], the fraction of the old value that is replaced, from 0 to 1; up to 2 it is reflected.
        decay: log a_t, 0 or below: [B,T,H], or [B,T,H,D] for one per key channel; None: nothing decays.
        initial_state: MatrixState(s [B,H,D,V]) of the earlier tokens, from an earlier call; never modified.
        output_final_state: also return the state after the last token.
        mask: [B,T] bool, True = real token. Padding changes neither outputs, state nor gradients; its output is 0.
        cu_seqlens: [S+1] offsets of S sequences packed in one row (B = 1); the state then has S rows.
        form: "auto", "parallel" (one chunk, O(T^2)), "chunked" (O(T C)) or "recurrent" (token by token).
        backend: "auto", "native" (the chunked form, or one token) or "torch".
        chunk_size: tokens per chunk; changes the speed, not the result.

    Returns:
        out [B,T,H,V] in the dtype of v, and the state (float32, or float64 if any input is) or None.

    Raises:
        ValueError, StateError, BackendError: an argument that does not fit, in one sentence.

    No output depends on a later token, NaN and infinity included; exceptions: gradients, torch.compile, and devices
    other than the CPU (see causal.py).
    """
    how = Contract(initial_state, output_final_state, mask, cu_seqlens, form, backend, chunk_size)
    if (ready := usual(Inputs(q, k, v, decay, beta), how, CHUNK)) is not None:
        return by_kernel(ready, Inputs(q, k, v, decay, beta), partial(_plain, how))
    _check(q, k, v, beta, decay)
    sizes = (*q.shape[2:], v.shape[3])
    tokens = (q, k, v, beta, decay)
    kernel = partial(refused_sequence, *tokens)
    call = begin("delta_rule", how, tokens, out=v, state=("H,D,V", sizes), kernel=kernel)
    if call.native:
        return by_kernel(call, Inputs(q, k, v, decay, beta), partial(_plain, how))
    q, k, v, beta, decay = call.tokens
    check_values(Inputs(q, k, v, decay, beta), None)
    decay = None if decay is None else decay.clamp(min=FORGOTTEN)
    with full_precision(q):
        out, s = FORMS[call.form](_Tokens(q, k, v, beta, decay, call.s), chunk_size)
    return finish(call, out, s)


def _plain(how: Contract, q: Tensor, k: Tensor, v: Tensor, decay: Tensor | None, beta: Tensor, *rest: Any) -> Any:
    """Compute on torch what the kernel was given; the matrix of the state comes last."""
    return delta_rule(q, k, v, beta, decay, **on_torch(how, rest[-1]))


def delta_rule_step(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor | None = None, state: MatrixState | None = None, *,
    backend: str = "auto",
) -> tuple[Tensor, MatrixState]:  # fmt: skip
    """Process one token: q, k [B,H,D], v [B,H,V], beta [B,H], decay [B,H] or [B,H,D] -> out [B,H,V], state."""
    check_token(("batch", "heads", "width"), q=q, k=k, v=v)
    by_channel = isinstance(decay, Tensor) and decay.ndim == 3
    check_token(("batch", "heads"), beta=beta)
    check_token(("batch", "heads", "width") if by_channel else ("batch", "heads"), decay=decay)
    late = None if decay is None else decay[:, None]
    how = Contract(state, True, None, None, "recurrent", backend, CHUNK)
    out, new = delta_rule(q[:, None], k[:, None], v[:, None], beta[:, None], late, **how._asdict())
    assert new is not None
    return out[:, 0], new


def _recurrent(x: _Tokens, chunk_size: int) -> Result:
    """O(T), the equation token by token; independent of the chunked code. `chunk_size` is not used."""
    s, outs = x.s, []
    decay = x.decay if x.decay is None or x.decay.ndim == 4 else x.decay[..., None]
    for t in range(x.q.shape[1]):
        if decay is not None:
            s = s * decay[:, t, :, :, None].exp()
        held = (x.k[:, t, :, None] @ s)[:, :, 0]  # [B,H,V]
        write = x.beta[:, t, :, None] * (x.v[:, t] - held)
        s = s + x.k[:, t, :, :, None] * write[:, :, None]
        outs.append((x.q[:, t, :, None] @ s)[:, :, 0])
    return (torch.stack(outs, dim=1) if outs else x.v), s


def _parallel(x: _Tokens, chunk_size: int) -> Result:
    """O(T^2): all tokens as one chunk; `chunk_size` is not used."""
    return _in_chunks(x, x.q.shape[1], plain)


def _chunked(x: _Tokens, chunk_size: int) -> Result:
    """O(T C)."""
    return _in_chunks(x, chunk_size, chunked)


def _in_chunks(x: _Tokens, size: int, run: Callable[..., Result]) -> Result:
    """Chunks of equal length, at most `size`; zeros fill the last one and change nothing."""
    if x.v.numel() == 0:
        return x.v, x.s

    def cut(*given: Tensor) -> Result:
        return _cut_in_chunks(_Tokens(*given), size, run)

    out, s = guarded(cut, x, columns=2, whole=(1, 3, 4))
    return out, s


def _cut_in_chunks(x: _Tokens, size: int, run: Callable[..., Result]) -> Result:
    B, T, H, V = x.v.shape
    chunks = -(-T // size)
    length = -(-T // chunks)
    if x.decay is not None and x.decay.ndim == 4:
        length = 1 << (length - 1).bit_length()  # a power of two: chunks are halved recursively
        chunks = -(-T // length)
    given = [None if y is None else _cut(y, chunks, length) for y in x[:5]]
    out, s = run(*given, x.s.flatten(0, 1))
    return out.reshape(B, H, chunks * length, V)[:, :, :T].transpose(1, 2), s.view(x.s.shape)


def _cut(x: Tensor, chunks: int, length: int) -> Tensor:  # [B,T,H,...] -> [B H M,C,...]
    rows, missing = x.transpose(1, 2).flatten(0, 1), chunks * length - x.shape[1]  # [B H,T,...]
    if missing:
        rows = pad(rows, (*(0, 0) * (rows.ndim - 2), 0, missing))
    return rows.reshape(-1, length, *rows.shape[2:])


FORMS: dict[str, Callable[[_Tokens, int], Result]] = {
    "parallel": _parallel,
    "chunked": _chunked,
    "recurrent": _recurrent,
}


def _check(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor | None) -> None:
    check_qkv(q, k, v)
    check_others("q", q, beta=beta, decay=decay)
    if beta.shape != q.shape[:3]:
        raise ValueError(f"beta has shape {shape(beta)}; accepted: [batch, time, heads] = {list(q.shape[:3])}")
    if decay is not None and decay.shape not in (q.shape[:3], q.shape):
        accepted = f"[batch, time, heads] = {list(q.shape[:3])}, or with the width of a key {list(q.shape)}"
        raise ValueError(f"decay has shape {shape(decay)}; accepted: {accepted}")
