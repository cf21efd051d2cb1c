"""The update rule of RWKV-7: a matrix that decays by key channel, and of which each token removes and adds a part.

    S_t = (Diag(e^{g_t}) - (a_t * c_t) c_t^T) S_{t-1} + k_t v_t^T,   out_t = S_t^T r_t               g <= 0, |c| = 1

Peng et al. 2025, arXiv:2503.14456, with their S transposed: height D of keys, width V of values. The removal key c_t
reads S_{t-1} before it decays; a_t in (0,1) is the rate at which the value it reads is removed.
With u_t = c_t^T S_{t-1}, what a chunk writes is a sum over its tokens, and u solves one triangular system:

    S_t = e^{G_t} S_0 + sum_{j<=t} e^{G_t - G_j} (k_j v_j^T - (a_j * c_j) u_j^T),     G_t = g_1 + ... + g_t
    u_t = c_t^T e^{G_{t-1}} S_0 + sum_{j<t} (c_t . e^{G_{t-1} - G_j} k_j) v_j - (c_t . e^{G_{t-1} - G_j} a_j c_j) u_j

u is linear in S_0, so the systems and products of all chunks run as one batch; only S goes from chunk to chunk. Only
exponents <= 0 are taken: e^{G_{t-1} - G_j} = e^{G_{t-1} - G_m} e^{G_m - G_j} for an m in between, where a chunk is
halved, and its halves again.
B batch, T time, H heads, M chunks of C tokens:  r, g, k, c, a [B,T,H,D]   v, out [B,T,H,V]   state s [B,H,D,V]
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
from ..checks import check_inputs, check_token, shape
from ..native_allowed import refused_sequence
from ..precision import finest, full_precision
from ..prologue import Contract, begin, finish, on_torch
from ..state import MatrixState
from .by_kernel import by_kernel
from .decay import state_bytes as state_bytes
from .usual import usual
from .values import check_values

CHUNK = 16  # tokens per triangular system, rounded up to a power of two: 32 and 64 are slower; the result is the same
Result: TypeAlias = "tuple[Tensor, Tensor]"  # out [B,H,T,V], s [B,H,D,V]


def wkv7(
    r: Tensor,
    decay: Tensor,
    k: Tensor,
    v: Tensor,
    remove: Tensor,
    rate: Tensor,
    *,
    initial_state: MatrixState | None = None,
    output_final_state: bool = False,
    mask: Tensor | None = None,
    cu_seqlens: Tensor | Sequence[int] | None = None,
    form: str = "auto",
    backend: str = "auto",
    chunk_size: int = CHUNK,
) -> tuple[Tensor, MatrixState | None]:
    """Read and update a matrix at every token by the rule of RWKV-7, in time linear in T.

    Args:
        r, decay, k, remove, rate: r, g <= 0, k, c of length 1 and a of the equation, [B,T,H,D].
        v: [B,T,H,V].
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

    No output depends on a later token, NaN and infinity included; for the exceptions see causal.py.
    """
    how = Contract(initial_state, output_final_state, mask, cu_seqlens, form, backend, chunk_size)
    if (ready := usual(Inputs(r, k, v, decay, None, remove, rate), how, CHUNK)) is not None:
        return by_kernel(ready, Inputs(r, k, v, decay, None, remove, rate), partial(_plain, how))
    _check(r, decay, k, v, remove, rate)
    sizes = (*r.shape[2:], v.shape[3])
    tokens = (r, decay, k, v, remove, rate)
    kernel = partial(refused_sequence, *tokens)
    call = begin("wkv7", how, tokens, out=v, state=("H,D,V", sizes), kernel=kernel)
    if call.native:
        return by_kernel(call, Inputs(r, k, v, decay, None, remove, rate), partial(_plain, how))
    r, decay, k, v, remove, rate = call.tokens
    check_values(Inputs(r, k, v, decay, None, remove, rate), None)
    with full_precision(r):
        rows = _Tokens(*(x.transpose(1, 2) for x in call.tokens))
        out, s = FORMS[call.form](rows, call.s, chunk_size)
    return finish(call, out.transpose(1, 2), s)


def _plain(how: Contract, r: Tensor, k: Tensor, v: Tensor, decay: Tensor, *rest: Any) -> Any:
    """Compute on torch what the kernel was given; the matrix of the state comes last."""
    _, remove, rate, s = rest
    return wkv7(r, decay, k, v, remove, rate, **on_torch(how, s))


def wkv7_step(
    r: Tensor, decay: Tensor, k: Tensor, v: Tensor, remove: Tensor, rate: Tensor, state: MatrixState | None = None, *,
    backend: str = "auto",
) -> tuple[Tensor, MatrixState]:  # fmt: skip
    """Process one token: r, decay, k, remove, rate [B,H,D], v [B,H,V] -> out [B,H,V] and the new state."""
    check_token(("batch", "heads", "width"), r=r, decay=decay, k=k, v=v, remove=remove, rate=rate)
    r, decay, k, v, remove, rate = (x[:, None] for x in (r, decay, k, v, remove, rate))
    how = Contract(state, True, None, None, "recurrent", backend, CHUNK)
    out, new = wkv7(r, decay, k, v, remove, rate, **how._asdict())
    assert new is not None
    return out[:, 0], new


class _Tokens(NamedTuple):
    """The inputs of the tokens, heads before time; in chunks, [B,H,M,C,.] instead of [B,H,T,.]."""

    r: Tensor  # [B,H,T,D]
    g: Tensor  # [B,H,T,D]
    k: Tensor  # [B,H,T,D]
    v: Tensor  # [B,H,T,V]
    c: Tensor  # [B,H,T,D]
    a: Tensor  # [B,H,T,D]


def _recurrent(p: _Tokens, s: Tensor, chunk_size: int) -> Result:
    """O(T), the equation token by token; `chunk_size` is not used."""
    outs = []
    for r, g, k, v, c, a in zip(*(x.unbind(2) for x in p), strict=True):
        held = c[..., None, :] @ s  # [B,H,1,V]
        s = torch.exp(g)[..., None] * s + k[..., None] * v[..., None, :] - (a * c)[..., None] * held
        outs.append((r[..., None, :] @ s)[..., 0, :])
    return (torch.stack(outs, dim=2) if outs else p.v.clone()), s


def _parallel(p: _Tokens, s: Tensor, chunk_size: int) -> Result:
    """O(T^2): all tokens as one chunk; `chunk_size` is not used."""
    return _chunked(p, s, p.r.shape[2])


def _chunked(p: _Tokens, s: Tensor, chunk_size: int) -> Result:
    """O(T C)."""

    def run(*x: Tensor) -> Result:
        return _in_chunks(_Tokens(*x[:6]), x[6], chunk_size)

    out, s = guarded(run, (*p, s), columns=3, whole=(1, 2, 4, 5), axis=2)
    return out, s


def _in_chunks(p: _Tokens, s: Tensor, chunk_size: int) -> Result:
    """Inside all chunks, then the state from chunk to chunk, then what each chunk reads from it."""
    T = p.r.shape[2]
    if T == 0:
        return p.v.clone(), s
    size = 1 << (min(chunk_size, T) - 1).bit_length()  # halves of halves
    r, g, k, v, c, a = (pad(x, (0, 0, 0, -T % size)).unflatten(2, (-1, size)) for x in p)  # [B,H,M,C,.]
    fine = g.to(finest(g))
    total = fine.cumsum(-2)  # G from the start of each chunk
    before, last = total - fine, total[..., -1:, :]
    from_start, to_end, whole = (torch.exp(x).to(r.dtype) for x in (before, last - total, last[..., 0, :]))
    write, read = -a * c, r * torch.exp(g)
    scores = _scores(torch.stack([c, read]), torch.stack([write, k]), before, total)  # [2,2,B,H,M,C,C]
    u_past, u_own = _solve(scores[0], c * from_start, v)
    at_end = (write * to_end).mT  # [B,H,M,D,C]
    starts, s = _carry(at_end @ u_past + torch.diag_embed(whole), at_end @ u_own + (k * to_end).mT @ v, s)
    u = u_past @ starts + u_own
    out = (read * from_start) @ starts + scores[1, 0] @ u + scores[1, 1] @ v  # of the earlier tokens
    out = out + (r * write).sum(-1, keepdim=True) * u + (r * k).sum(-1, keepdim=True) * v  # and of the current one
    return out.flatten(2, 3)[:, :, :T], s


def _solve(scores: Tensor, c: Tensor, v: Tensor) -> Result:
    """Return past and own of u = past S_0 + own, [...,C,D] and [...,C,V], from the scores [2,...,C,C] of c."""
    known = torch.cat([c, scores[1] @ v], dim=-1)
    solved = torch.linalg.solve_triangular(-scores[0], known, upper=False, unitriangular=True)
    past, own = solved.split([c.shape[-1], v.shape[-1]], dim=-1)
    return past, own


def _carry(step: Tensor, new: Tensor, s: Tensor) -> Result:
    """Apply S' = step S + new, [B,H,M,D,D] and [B,H,M,D,V]; return S before each chunk [B,H,M,D,V] and the last S."""
    starts = []
    for step_m, new_m in zip(step.unbind(2), new.unbind(2), strict=True):
        starts.append(s)
        s = step_m @ s + new_m
    return torch.stack(starts, dim=2), s


def _scores(reads: Tensor, writes: Tensor, before: Tensor, total: Tensor) -> Tensor:
    """Return x_t . e^{G_{t-1} - G_j} y_j for j < t, else 0: x [X,...,C,D], y [Y,...,C,D] -> [X,Y,...,C,C]

    Halves of 1, 2, 4, ... C/2 tokens: tokens of the later half meet those of the earlier one at the boundary.
    """
    shape = (reads.shape[0], writes.shape[0], *reads.shape[1:-1], 1, 1)
    scores = reads.new_zeros(shape)  # [X,Y,...,C/half,half,half]
    half = 1
    while half < reads.shape[-2]:
        early, late = _halves(total, half)[0], _halves(before, half)[1]  # [...,C/2half,half,D]
        middle = early[..., -1:, :]
        x = _halves(reads, half)[1] * torch.exp(late - middle).to(reads.dtype)
        y = _halves(writes, half)[0] * torch.exp(middle - early).to(reads.dtype)
        across = x[:, None] @ y[None].mT  # [X,Y,...,C/2half,half,half]
        first, second = scores.unflatten(-3, (-1, 2)).unbind(-3)
        top, bottom = torch.cat([first, torch.zeros_like(across)], dim=-1), torch.cat([across, second], dim=-1)
        scores = torch.cat([top, bottom], dim=-2)
        half *= 2
    return scores[..., 0, :, :]


def _halves(x: Tensor, half: int) -> tuple[Tensor, ...]:
    """[...,C,D] -> the earlier and the later half of each pair, [...,C/2half,half,D]"""
    return x.unflatten(-2, (-1, 2, half)).unbind(-3)


FORMS: dict[str, Callable[[_Tokens, Tensor, int], Result]] = {
    "parallel": _parallel,
    "chunked": _chunked,
    "recurrent": _recurrent,
}


def _check(r: Tensor, decay: Tensor, k: Tensor, v: Tensor, remove: Tensor, rate: Tensor) -> None:
    named = {"r": r, "decay": decay, "k": k, "remove": remove, "rate": rate}
    check_inputs(**named, v=v)
    if r.ndim != 4 or any(x.shape != r.shape for x in named.values()) or v.shape[:-1] != r.shape[:-1]:
        got = ", ".join(f"{name} {shape(x)}" for name, x in (named | {"v": v}).items())
        raise ValueError(f"got {got}; accepted: [batch, time, heads, width], one width for all but v")
