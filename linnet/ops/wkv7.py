"""The rule of RWKV-7: a memory that fades channel by channel, and that a token can correct where its key points.

    S_t = (Diag(e^{g_t}) - (a_t * c_t) c_t^T) S_{t-1} + k_t v_t^T,   out_t = S_t^T r_t               g <= 0, |c| = 1

Peng et al. 2025, arXiv:2503.14456, with their S transposed: height D of keys, width V of values. The
removal key c_t reads S_{t-1} before it fades; a_t in (0,1) is the rate at which what it reads is taken away.
With u_t = c_t^T S_{t-1}, what a chunk writes is a sum over its tokens, and u solves one triangular system:

    S_t = e^{G_t} S_0 + sum_{j<=t} e^{G_t - G_j} (k_j v_j^T - (a_j * c_j) u_j^T),     G_t = g_1 + ... + g_t
    u_t = c_t^T e^{G_{t-1}} S_0 + sum_{j<t} (c_t . e^{G_{t-1} - G_j} k_j) v_j - (c_t . e^{G_{t-1} - G_j} a_j c_j) u_j

u is linear in S_0, so systems and products are done for all chunks at once, and S alone goes from chunk to chunk.
Only exponents <= 0 are taken: e^{G_{t-1} - G_j} = e^{G_{t-1} - G_m} e^{G_m - G_j} for an m in between, where a chunk is
halved, and its halves again.
B batch, T time, H heads, M chunks of C tokens:  r, g, k, c, a [B,T,H,D]   v, out [B,T,H,V]   s [B,H,D,V]
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import pad

from .causal import guarded
from .checks import check_chunk_size, check_floating, check_mask, check_matrix, compute_dtype, shape
from .dispatch import check_names
from .fused import full_precision
from .scan import finest

CHUNK = 16  # tokens per triangular system, rounded up to a power of two: 32 and 64 are slower; the answer is the same
Result: TypeAlias = "tuple[Tensor, Tensor]"  # out, s


def wkv7(
    r: Tensor,
    decay: Tensor,
    k: Tensor,
    v: Tensor,
    remove: Tensor,
    rate: Tensor,
    *,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    mask: Tensor | None = None,
    form: str = "auto",
    chunk_size: int = CHUNK,
) -> tuple[Tensor, Tensor | None]:
    """r, decay = g <= 0, k, remove = c, rate = a [B,T,H,D], v [B,T,H,V] -> out [B,T,H,V], and s [B,H,D,V] if asked for.

    `mask` [B,T] bool, True = real token, padding anywhere: it answers 0 and changes nothing else.
    `form`: "auto", "parallel" (one chunk, O(T^2)), "chunked" or "recurrent"; `chunk_size` changes only the speed.
    No output depends on a later token, NaN and infinity included; for the exceptions see causal.py.
    """
    _check(r, decay, k, v, remove, rate, initial_state, chunk_size)
    check_mask(mask, r.shape[0], r.shape[1], r.device)
    check_names(form, "torch")
    B, T, H, D = r.shape
    s = r.new_zeros(B, H, D, v.shape[3], dtype=torch.float32) if initial_state is None else initial_state
    wide = compute_dtype(r, s)
    with full_precision(r):
        parts = [x.to(wide).transpose(1, 2) for x in (r, decay, k, v, remove, rate)]  # [B,H,T,.]
        if mask is not None:
            parts = [x.masked_fill(~mask[:, None, :, None], 0.0) for x in parts]
        if form == "recurrent" or (form == "auto" and T == 1):
            out, s = _recurrent(_Tokens(*parts), s.to(wide))
        else:
            size, given = T if form == "parallel" else chunk_size, (*parts, s.to(wide))

            def run(*x: Tensor) -> Result:
                return _chunked(_Tokens(*x[:6]), x[6], size)

            out, s = guarded(run, given, columns=3, whole=(1, 2, 4, 5), axis=2)
    return out.transpose(1, 2).to(v.dtype), s if output_final_state else None


class _Tokens(NamedTuple):
    """What every token brings, heads before time; in chunks, [B,H,M,C,.] instead of [B,H,T,.]."""

    r: Tensor  # [B,H,T,D]
    g: Tensor  # [B,H,T,D]
    k: Tensor  # [B,H,T,D]
    v: Tensor  # [B,H,T,V]
    c: Tensor  # [B,H,T,D]
    a: Tensor  # [B,H,T,D]


def _recurrent(p: _Tokens, s: Tensor) -> Result:
    """The equation, token by token."""
    outs = []
    for r, g, k, v, c, a in zip(*(x.unbind(2) for x in p), strict=True):
        found = c[..., None, :] @ s  # [B,H,1,V]
        s = torch.exp(g)[..., None] * s + k[..., None] * v[..., None, :] - (a * c)[..., None] * found
        outs.append((r[..., None, :] @ s)[..., 0, :])
    return (torch.stack(outs, dim=2) if outs else p.v.clone()), s


def _chunked(p: _Tokens, s: Tensor, chunk_size: int) -> Result:
    """O(T C): all chunks within themselves, then the state from chunk to chunk, then what each chunk reads of it."""
    T = p.r.shape[2]
    if T == 0:
        return p.v.clone(), s
    size = 1 << (min(chunk_size, T) - 1).bit_length()  # halves of halves
    r, g, k, v, c, a = (pad(x, (0, 0, 0, -T % size)).unflatten(2, (-1, size)) for x in p)  # [B,H,M,C,.]
    fine = g.to(finest(g))
    total = fine.cumsum(-2)  # G from the start of each chunk
    before, last = total - fine, total[..., -1:, :]
    from_start, to_end, whole = (torch.exp(x).to(r.dtype) for x in (before, last - total, last[..., 0, :]))
    write, ask = -a * c, r * torch.exp(g)
    scores = _scores(torch.stack([c, ask]), torch.stack([write, k]), before, total)  # [2,2,B,H,M,C,C]
    u_past, u_own = _solve(scores[0], c * from_start, v)
    at_end = (write * to_end).mT  # [B,H,M,D,C]
    starts, s = _carry(at_end @ u_past + torch.diag_embed(whole), at_end @ u_own + (k * to_end).mT @ v, s)
    u = u_past @ starts + u_own
    out = (ask * from_start) @ starts + scores[1, 0] @ u + scores[1, 1] @ v  # of all tokens before
    out = out + (r * write).sum(-1, keepdim=True) * u + (r * k).sum(-1, keepdim=True) * v  # and of the token itself
    return out.flatten(2, 3)[:, :, :T], s


def _solve(scores: Tensor, c: Tensor, v: Tensor) -> Result:
    """u = past S_0 + own, [...,C,D] and [...,C,V], from the scores [2,...,C,C] of c with what is erased and with k."""
    known = torch.cat([c, scores[1] @ v], dim=-1)
    solved = torch.linalg.solve_triangular(-scores[0], known, upper=False, unitriangular=True)
    past, own = solved.split([c.shape[-1], v.shape[-1]], dim=-1)
    return past, own


def _carry(step: Tensor, new: Tensor, s: Tensor) -> Result:
    """S' = step S + new over the chunks, [B,H,M,D,D] and [B,H,M,D,V]: S before each [B,H,M,D,V], and after the last."""
    starts = []
    for step_m, new_m in zip(step.unbind(2), new.unbind(2), strict=True):
        starts.append(s)
        s = step_m @ s + new_m
    return torch.stack(starts, dim=2), s


def _scores(asks: Tensor, tells: Tensor, before: Tensor, total: Tensor) -> Tensor:
    """x_t . e^{G_{t-1} - G_j} y_j for j < t, else 0: x [X,...,C,D], y [Y,...,C,D] -> [X,Y,...,C,C]

    Halves of 1, 2, 4, ... C/2 tokens: the tokens of a later half meet those of the earlier one across its end.
    """
    shape = (asks.shape[0], tells.shape[0], *asks.shape[1:-1], 1, 1)
    found = asks.new_zeros(shape)  # [X,Y,...,C/half,half,half]
    half = 1
    while half < asks.shape[-2]:
        early, late = _halves(total, half)[0], _halves(before, half)[1]  # [...,C/2half,half,D]
        middle = early[..., -1:, :]
        reads = _halves(asks, half)[1] * torch.exp(late - middle).to(asks.dtype)
        writes = _halves(tells, half)[0] * torch.exp(middle - early).to(asks.dtype)
        across = reads[:, None] @ writes[None].mT  # [X,Y,...,C/2half,half,half]
        first, second = found.unflatten(-3, (-1, 2)).unbind(-3)
        top, bottom = torch.cat([first, torch.zeros_like(across)], dim=-1), torch.cat([across, second], dim=-1)
        found = torch.cat([top, bottom], dim=-2)
        half *= 2
    return found[..., 0, :, :]


def _halves(x: Tensor, half: int) -> tuple[Tensor, ...]:
    """[...,C,D] -> the earlier and the later of each pair of halves, [...,C/2half,half,D]"""
    return x.unflatten(-2, (-1, 2, half)).unbind(-3)


def _check(
    r: Tensor, decay: Tensor, k: Tensor, v: Tensor, remove: Tensor, rate: Tensor, s: Tensor | None, chunk_size: int
) -> None:
    named = {"r": r, "decay": decay, "k": k, "remove": remove, "rate": rate}
    for name, x in (named | {"v": v}).items():
        check_floating(name, x)
    if r.ndim != 4 or any(x.shape != r.shape for x in named.values()) or v.shape[:-1] != r.shape[:-1]:
        got = ", ".join(f"{name} {shape(x)}" for name, x in (named | {"v": v}).items())
        raise ValueError(f"got {got}; accepted: [batch, time, heads, width], one width for all but v")
    wanted = [r.shape[0], *r.shape[2:], v.shape[3]]
    check_matrix(s, "[B,H,D,V]", wanted, r.device)
    check_chunk_size(chunk_size)
