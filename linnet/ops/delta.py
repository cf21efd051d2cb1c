"""The delta rule, the public op: a memory that overwrites what it held for a key, where linear attention only adds.

    S_t = a_t (I - b_t k_t k_t^T) S_{t-1} + b_t k_t v_t^T,   out_t = S_t^T q_t

One step of gradient descent on |S^T k_t - v_t|^2 at the rate b_t, after a decay a_t. Schlag et al. 2021,
arXiv:2102.11174; Yang et al. 2024, arXiv:2406.06484; with decay ("gated"): Yang et al. 2024, arXiv:2412.06464. Keys
should have length 1: then b = 1 replaces the old value, b = 0 keeps it, and the state stays bounded up to b = 2.
B batch, T time, H heads, D key width, V value width:  q, k [B,T,H,D]   v, out [B,T,H,V]   beta, decay [B,T,H]
s [B,H,D,V], in float32, or float64 if anything given is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from .causal import guarded
from .checks import check_chunk_size, check_floating, check_mask, check_matrix, check_qkv, check_step, shape
from .decay import FORGOTTEN
from .decay import state_bytes as state_bytes
from .delta_chunks import chunked, plain
from .dispatch import check_names
from .fused import full_precision

CHUNK = 32  # 16 and 64 are slower to train with at D = 16 and 45, V = 64; every value gives the same answer


class _Call(NamedTuple):
    """The tensors of one call in the dtype of the state, with nothing where there is padding."""

    q: Tensor  # [B,T,H,D]
    k: Tensor  # [B,T,H,D]
    v: Tensor  # [B,T,H,V]
    beta: Tensor  # [B,T,H]
    decay: Tensor | None  # [B,T,H]
    s: Tensor  # [B,H,D,V]


def delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    decay: Tensor | None = None,
    *,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    mask: Tensor | None = None,
    form: str = "auto",
    chunk_size: int = CHUNK,
) -> tuple[Tensor, Tensor | None]:
    """Read and rewrite a matrix for every token, in time and memory linear in T.

    Args:
        q, k, v: [B,T,H,D], [B,T,H,D], [B,T,H,V], one floating dtype; keys of length 1 (or 0).
        beta: [B,T,H], how much of the old value goes, from 0 to 1; up to 2 turns it round.
        decay: [B,T,H], log a_t, 0 or below; None: nothing fades.
        initial_state: s [B,H,D,V] after an earlier call; never altered.
        output_final_state: also return s after the last token.
        mask: [B,T] bool, True = real token. Padding changes neither outputs, state nor gradients; its own output is 0.
        form: "recurrent" one token at a time, "chunked" O(T C), "parallel" O(T^2) as one chunk, or "auto".
        chunk_size: tokens per chunk; changes the speed, not the answer.

    Returns:
        out [B,T,H,V] in the dtype of v, and s or None.

    Raises:
        ValueError, StateError: an argument that does not fit, in one sentence.

    No output depends on a later token, NaN and infinity included; exceptions for those: gradients, torch.compile, and
    devices other than the cpu (see causal.py).
    """
    _check(q, k, v, beta, decay, mask, initial_state)
    check_names(form, "torch")
    check_chunk_size(chunk_size)
    call = _prepared(q, k, v, beta, decay, initial_state, mask)
    with full_precision(q):
        if form == "recurrent" or (form == "auto" and q.shape[1] < 2):
            out, s = _recurrent(call)
        elif form == "parallel":
            out, s = _in_chunks(call, q.shape[1], plain)
        else:
            out, s = _in_chunks(call, chunk_size, chunked)
    return out.to(v.dtype), s if output_final_state else None


def delta_rule_step(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor | None = None, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """One token: q, k [B,H,D], v [B,H,V], beta, decay [B,H], s [B,H,D,V] -> out [B,H,V] and the new s."""
    check_step(q, k, v)
    for name, x in (("beta", beta), ("decay", decay)):
        if isinstance(x, Tensor) and x.ndim != 2:
            raise ValueError(f"{name} has shape {shape(x)}; a step accepts one token, two axes [batch, heads]")
    late = None if decay is None else decay[:, None]
    one = (q[:, None], k[:, None], v[:, None], beta[:, None], late)
    out, s = delta_rule(*one, initial_state=state, output_final_state=True, form="recurrent")
    assert s is not None
    return out[:, 0], s


def _recurrent(c: _Call) -> tuple[Tensor, Tensor]:
    """O(T), the equation token by token. Written apart, so that agreement means something."""
    s, outs = c.s, []
    for t in range(c.q.shape[1]):
        if c.decay is not None:
            s = s * c.decay[:, t, :, None, None].exp()
        held = (c.k[:, t, :, None] @ s)[:, :, 0]  # [B,H,V]
        write = c.beta[:, t, :, None] * (c.v[:, t] - held)
        s = s + c.k[:, t, :, :, None] * write[:, :, None]
        outs.append((c.q[:, t, :, None] @ s)[:, :, 0])
    return (torch.stack(outs, dim=1) if outs else c.v), s


def _in_chunks(c: _Call, size: int, run: Callable[..., tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Chunks of one length, at most `size`; tokens of zeros fill up the last and change nothing."""
    if c.v.numel() == 0:
        return c.v, c.s

    def cut(*given: Tensor) -> tuple[Tensor, Tensor]:
        return _cut_in_chunks(_Call(*given), size, run)

    out, s = guarded(cut, c, columns=2, whole=(1, 3, 4))
    return out, s


def _cut_in_chunks(c: _Call, size: int, run: Callable[..., tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    B, T, H, V = c.v.shape
    chunks = -(-T // size)
    length = -(-T // chunks)
    given = [None if x is None else _cut(x, chunks, length) for x in c[:5]]
    out, s = run(*given, c.s.flatten(0, 1))
    return out.reshape(B, H, chunks * length, V)[:, :, :T].transpose(1, 2), s.view(c.s.shape)


def _cut(x: Tensor, chunks: int, length: int) -> Tensor:  # [B,T,H,...] -> [B H M,C,...]
    rows, missing = x.transpose(1, 2).flatten(0, 1), chunks * length - x.shape[1]  # [B H,T,...]
    if missing:
        rows = pad(rows, (*(0, 0) * (rows.ndim - 2), 0, missing))
    return rows.reshape(-1, length, *rows.shape[2:])


def _prepared(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor | None, s: Tensor | None, mask: Tensor | None
) -> _Call:
    given = (q, k, v, beta, decay, s)
    wide = torch.float64 if any(x is not None and x.dtype == torch.float64 for x in given) else torch.float32
    q, k, v, beta = (_real(x.to(wide), mask) for x in (q, k, v, beta))
    decay = None if decay is None else _real(decay.to(wide), mask).clamp(min=FORGOTTEN)
    size = (q.shape[0], q.shape[2], q.shape[3], v.shape[3])
    s = q.new_zeros(size) if s is None else s.to(wide)
    return _Call(q, k, v, beta, decay, s)


def _real(x: Tensor, mask: Tensor | None) -> Tensor:
    """0 where there is no token, whatever stood there: it then reads 0, writes nothing and keeps all."""
    return x if mask is None else x.masked_fill(mask.logical_not()[(...,) + (None,) * (x.ndim - 2)], 0.0)


def _check(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor | None, mask: Tensor | None, s: Tensor | None
) -> None:
    check_qkv(q, k, v)
    for name, x in (("beta", beta), *([] if decay is None else [("decay", decay)])):
        check_floating(name, x)
        if x.shape != q.shape[:3]:
            raise ValueError(f"{name} has shape {shape(x)}; accepted: [batch, time, heads] = {list(q.shape[:3])}")
        if x.device != q.device:
            raise ValueError(f"q is on {q.device} but {name} on {x.device}; use {name}.to(q.device)")
    check_mask(mask, q.shape[0], q.shape[1], q.device)
    check_matrix(s, "[B,H,D,V]", [q.shape[0], *q.shape[2:], v.shape[3]], q.device)
