"""Selective scan, the core of Mamba: every channel keeps N numbers, and the token decides what to keep and to add.

    h_t = exp(dt_t a) h_{t-1} + dt_t b_t x_t,   y_t = c_t . h_t            a < 0, dt >= 0, so no decay exceeds 1

Gu & Dao 2023, arXiv:2312.00752, algorithm 2 (a discretized exactly, b by Euler's rule, as in the paper's code).
B batch, T time, E channels, N numbers per channel, C chunk:  x, dt, y [B,T,E]   a [E,N]   b, c [B,T,N]
state s [B,E,N,1]. The chunked form never holds the states of all tokens, T E N numbers per row: its backward pass
recomputes those of a chunk from the state before it. So does the native kernel, csrc/selective_scan.h.
Inside, time comes first and channels last, [T,B,N,E]: the numbers of a token are contiguous, the long axis innermost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from ...native import scan
from ...native.scan import Places
from ..checks import check_inputs, check_token, shape
from ..native_allowed import by_hand, gradients
from ..precision import full_precision
from ..prologue import Contract, begin, finish
from ..state import MatrixState
from .scan import backwards, doubling, eager, in_order
from .scan_kernel import Scan, refused, run
from .values import check_scan

CHUNK = 8  # tokens whose states are in memory: 4 and 8 tie, 16 and 32 leave the cache; the result is the same
Result: TypeAlias = "tuple[Tensor, Tensor]"  # y [T,B,E], s [B,N,E]


def selective_scan(
    x: Tensor,
    dt: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    *,
    initial_state: MatrixState | None = None,
    output_final_state: bool = False,
    mask: Tensor | None = None,
    cu_seqlens: Tensor | Sequence[int] | None = None,
    form: str = "auto",
    backend: str = "auto",
    chunk_size: int = CHUNK,
) -> tuple[Tensor, MatrixState | None]:
    """Run the recurrence of Mamba over a sequence, in time linear in T.

    Args:
        x, dt: [B,T,E], the inputs and their step sizes >= 0.
        a: [E,N], 0 or below.
        b, c: [B,T,N], what the token writes to and reads from the N numbers of every channel.
        initial_state: MatrixState(s [B,E,N,1]) of the earlier tokens, from an earlier call; never modified.
        output_final_state: also return the state after the last token.
        mask: [B,T] bool, True = real token. Padding changes nothing, and its output is 0.
        cu_seqlens: [S+1] offsets of S sequences packed in one row (B = 1); the state then has S rows.
        form: "auto", "parallel" (all states in memory), "chunked" or "recurrent" (token by token).
        backend: "auto", "native" or "torch"; `linnet.explain_dispatch` shows what "auto" chooses.
        chunk_size: tokens per chunk of the torch form; changes memory and speed, not the result.

    Returns:
        y [B,T,E] in the dtype of x, and the state (float32, or float64 if any input is) or None.

    Raises:
        ValueError, StateError, BackendError: an argument that does not fit, in one sentence.
    """
    _check(x, dt, a, b, c)
    how = Contract(initial_state, output_final_state, mask, cu_seqlens, form, backend, chunk_size)
    call = begin(
        "selective_scan", how, (x, dt, b, c), (a,), out=x, state=("E,N,1", (*a.shape, 1)),
        kernel=lambda: refused((x, dt, a, b, c), initial_state, mask),
    )  # fmt: skip
    check_scan(call.mask if call.native else None, call.tokens[1], call.fixed[0])
    if call.native:
        y, last = run(KERNEL, (x, dt, a, b, c, call.s), Places(mask, call.offsets), output_final_state)
        return finish(call, y, last)
    with full_precision(x):
        tokens = _Tokens(*(p.transpose(0, 1).contiguous() for p in call.tokens))
        s = call.s[..., 0].mT.contiguous()  # [B,N,E]
        y, s = FORMS[call.form](tokens, call.fixed[0].mT, s, chunk_size) if len(tokens.x) else (tokens.x, s)
    return finish(call, y.transpose(0, 1), s.mT.contiguous()[..., None])


def selective_scan_step(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, state: MatrixState | None = None, *, backend: str = "auto"
) -> tuple[Tensor, MatrixState]:
    """Process one token: x, dt [B,E], a [E,N], b, c [B,N] -> y [B,E] and the new state."""
    check_token(("batch", "channels"), x=x, dt=dt)
    check_token(("batch", "N"), b=b, c=c)
    how = Contract(state, True, None, None, "recurrent", backend, CHUNK)
    y, new = selective_scan(x[:, None], dt[:, None], a, b[:, None], c[:, None], **how._asdict())
    assert new is not None
    return y[:, 0], new


def state_bytes(length: int, *, channels: int, state_dim: int, dtype: torch.dtype = torch.float32) -> int:
    """Return bytes of state per sequence: E N numbers for any length, float32 unless `dtype` (of x) is wider."""
    return channels * state_dim * max(dtype.itemsize, torch.float32.itemsize)


class _Tokens(NamedTuple):
    """The inputs of the tokens, time first."""

    x: Tensor  # [T,B,E]
    dt: Tensor  # [T,B,E]
    b: Tensor  # [T,B,N]
    c: Tensor  # [T,B,N]

    def split(self, size: int) -> list[_Tokens]:
        return [_Tokens(*part) for part in zip(*(x.split(size) for x in self), strict=True)]


def _parallel(p: _Tokens, a: Tensor, s: Tensor, _: int) -> Result:
    """All states in one tensor, by doubling."""
    decay = torch.exp(p.dt[:, :, None] * a)  # [T,B,N,E]
    h = doubling(decay, p.b[..., None] * (p.dt * p.x)[:, :, None], s)
    return (p.c[:, :, None] @ h)[:, :, 0], h[-1]


def _recurrent(p: _Tokens, a: Tensor, s: Tensor, _: int) -> Result:
    """O(T), the equation token by token."""
    outs = []
    for x, dt, b, c in zip(*p, strict=True):
        s = torch.exp(dt[:, None] * a) * s + b[..., None] * (dt * x)[:, None]  # [B,N,E]
        outs.append((c[..., None] * s).sum(1))
    return torch.stack(outs), s


def _chunked(p: _Tokens, a: Tensor, s: Tensor, size: int) -> Result:
    """Chunk by chunk, the state carried from one to the next."""
    if eager(*p, a, s):
        y, s = _Chunks.apply(*p, a, s, size)
        return y, s
    return _plain_chunks(p, a, s, size)


def _plain_chunks(p: _Tokens, a: Tensor, s: Tensor, size: int) -> Result:
    """The same in differentiable operations: for recorded graphs and for gradients of gradients."""
    outs = []
    for part in p.split(size):
        y, s = _parallel(part, a, s, size)
        outs.append(y)
    return torch.cat(outs), s


class _Chunks(torch.autograd.Function):
    """The chunked form with its gradient; saved for the backward pass are the inputs and one state per chunk."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dt: Tensor, b: Tensor, c: Tensor, a: Tensor, s: Tensor, size: int) -> Any:
        outs, starts = [], [s]
        for part in _Tokens(x, dt, b, c).split(size):
            _, h = _states(part, a, starts[-1])
            outs.append((part.c[:, :, None] @ h)[:, :, 0])
            starts.append(h[-1].clone())  # a copy, or the whole chunk would stay
        ctx.save_for_backward(x, dt, b, c, a, *starts[:-1])
        ctx.size = size
        return torch.cat(outs), starts[-1]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, dt, b, c, a, *starts = ctx.saved_tensors
        gy, gs = grads
        if not by_hand(*grads):  # create_graph

            def plain(x: Tensor, dt: Tensor, b: Tensor, c: Tensor, a: Tensor, s: Tensor) -> Result:
                return _plain_chunks(_Tokens(x, dt, b, c), a, s, ctx.size)

            return *gradients(plain, (x, dt, b, c, a, starts[0]), grads), None
        da, dparts = torch.zeros_like(a), []
        parts = zip(_Tokens(x, dt, b, c).split(ctx.size), gy.split(ctx.size), starts, strict=True)
        for part, gy_part, start in reversed(list(parts)):
            own, da_part, gs = _chunk_gradients(part, a, start, gy_part, gs)
            da += da_part
            dparts.append(own)
        return *(torch.cat(own[::-1]) for own in zip(*dparts, strict=True)), da, gs, None


def _states(p: _Tokens, a: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """Return the decays and the states of a chunk, both [C,B,N,E]."""
    decay = (p.dt[:, :, None] * a).exp_()
    return decay, in_order(decay, p.b[..., None] * (p.dt * p.x)[:, :, None], s)


def _chunk_gradients(p: _Tokens, a: Tensor, start: Tensor, gy: Tensor, gs: Tensor) -> tuple[_Tokens, Tensor, Tensor]:
    """Return the gradients of tokens, a and first state from gy [C,B,E] and that of the last state, gs [B,N,E]."""
    decay, h = _states(p, a, start)
    g = p.c[..., None] * gy[:, :, None]  # [C,B,N,E]
    g[-1] += gs
    backwards(decay, g)
    into_start = decay[0] * g[0]
    du = (p.b[:, :, None] @ g)[:, :, 0]  # of dt x: [C,B,E]
    db = (g @ (p.dt * p.x)[..., None])[..., 0]
    dc = (h @ gy[..., None])[..., 0]
    slope = decay.mul_(g)  # of dt a, once multiplied by the state before
    slope[0] *= start
    slope[1:] *= h[:-1]
    ddt = du * p.x + (slope * a).sum(2)
    return _Tokens(du * p.dt, ddt, db, dc), (slope * p.dt[:, :, None]).sum((0, 1)), into_start


def _plain(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, s: Tensor | None, places: Places
) -> tuple[Tensor, Tensor]:
    """Return what the kernel does, in torch operations."""
    y, last = selective_scan(
        x.float(), dt, a, b, c, initial_state=None if s is None else MatrixState(s), output_final_state=True,
        mask=places.mask, cu_seqlens=places.cu_seqlens, form="chunked", backend="torch",
    )  # fmt: skip
    assert last is not None
    return y, last.s


KERNEL = Scan(scan.selective_scan, scan.selective_scan_backward, _plain)
FORMS: dict[str, Callable[[_Tokens, Tensor, Tensor, int], Result]] = {
    "parallel": _parallel,
    "chunked": _chunked,
    "recurrent": _recurrent,
}


def _check(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor) -> None:
    check_inputs(x=x, dt=dt, a=a, b=b, c=c)
    fits = x.ndim == 3 and a.ndim == 2 and x.shape == dt.shape and a.shape[0] == x.shape[2] and b.shape == c.shape
    if not fits or tuple(b.shape) != (*x.shape[:2], a.shape[1]):
        got = f"x {shape(x)}, dt {shape(dt)}, a {shape(a)}, b {shape(b)}, c {shape(c)}"
        raise ValueError(f"got {got}; accepted: x, dt [batch, time, channels], a [channels, N], b, c [batch, time, N]")
