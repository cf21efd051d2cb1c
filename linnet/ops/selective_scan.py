"""Selective scan, the core of Mamba: every channel keeps N numbers, and the token decides what to keep and to add.

    h_t = exp(dt_t a) h_{t-1} + dt_t b_t x_t,   y_t = c_t . h_t            a < 0, dt >= 0, so no decay exceeds 1

Gu & Dao 2023, arXiv:2312.00752, algorithm 2 (a kept exactly, b by Euler's rule, as the paper's code has it).
B batch, T time, E channels, N numbers per channel, C chunk:  x, dt, y [B,T,E]   a [E,N]   b, c [B,T,N]   s [B,E,N]
All three forms sum in float32 or wider. The states of all tokens, T E N numbers a row, never stand in memory at once
in the chunked form: the gradient computes a chunk of them again from the state it began with.
Inside, time comes first and channels last, [T,B,N,E]: a token's numbers lie together, and the long axis is innermost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from .checks import check_chunk_size, check_floating, check_mask, check_matrix, compute_dtype, shape
from .dispatch import check_names
from .eager import by_hand, gradients
from .fused import full_precision
from .scan import backwards, doubling, eager, in_order

CHUNK = 8  # tokens whose states are in memory at once: 4 and 8 tie, 16 and 32 leave the cache; the answer is the same
Result: TypeAlias = "tuple[Tensor, Tensor]"  # y [T,B,E], s [B,N,E]


def selective_scan(
    x: Tensor,
    dt: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    *,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    mask: Tensor | None = None,
    form: str = "auto",
    chunk_size: int = CHUNK,
) -> tuple[Tensor, Tensor | None]:
    """x, dt [B,T,E], a [E,N], b, c [B,T,N] -> y [B,T,E] in the dtype of x, and the state s [B,E,N] when asked for.

    `mask` [B,T] bool, True = real token, padding anywhere: it answers 0 and changes nothing else.
    `form`: "auto", "parallel", "chunked" or "recurrent"; `chunk_size` changes memory and speed, not the answer.
    """
    _check(x, dt, a, b, c, initial_state, chunk_size)
    check_mask(mask, x.shape[0], x.shape[1], x.device)
    check_names(form, "torch")
    s = x.new_zeros(x.shape[0], *a.shape, dtype=torch.float32) if initial_state is None else initial_state
    wide = compute_dtype(x, s)
    if form == "auto":
        form = "recurrent" if x.shape[1] == 1 else "chunked"
    parts = (x, dt, b, c) if mask is None else tuple(p.masked_fill(~mask[..., None], 0.0) for p in (x, dt, b, c))
    with full_precision(x):
        tokens, s = _Tokens(*(p.to(wide).transpose(0, 1).contiguous() for p in parts)), s.to(wide).mT.contiguous()
        y, s = _FORMS[form](tokens, a.to(wide).mT, s, chunk_size) if len(tokens.x) else (tokens.x, s)
    return y.transpose(0, 1).to(x.dtype), s.mT.contiguous() if output_final_state else None


class _Tokens(NamedTuple):
    """What every token brings, time first."""

    x: Tensor  # [T,B,E]
    dt: Tensor  # [T,B,E]
    b: Tensor  # [T,B,N]
    c: Tensor  # [T,B,N]

    def split(self, size: int) -> list[_Tokens]:
        return [_Tokens(*part) for part in zip(*(x.split(size) for x in self), strict=True)]


def _parallel(p: _Tokens, a: Tensor, s: Tensor, _: int) -> Result:
    """All states at once, by doubling."""
    decay = torch.exp(p.dt[:, :, None] * a)  # [T,B,N,E]
    h = doubling(decay, p.b[..., None] * (p.dt * p.x)[:, :, None], s)
    return (p.c[:, :, None] @ h)[:, :, 0], h[-1]


def _recurrent(p: _Tokens, a: Tensor, s: Tensor, _: int) -> Result:
    """The equation, token by token."""
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
    """For a graph that is recorded, and for gradients of gradients."""
    outs = []
    for part in p.split(size):
        y, s = _parallel(part, a, s, size)
        outs.append(y)
    return torch.cat(outs), s


class _Chunks(torch.autograd.Function):
    """The chunked form with its gradient; kept for the way back are the inputs and one state per chunk."""

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
        da, found = torch.zeros_like(a), []
        parts = zip(_Tokens(x, dt, b, c).split(ctx.size), gy.split(ctx.size), starts, strict=True)
        for part, gy_part, start in reversed(list(parts)):
            own, da_part, gs = _chunk_gradients(part, a, start, gy_part, gs)
            da += da_part
            found.append(own)
        return *(torch.cat(own[::-1]) for own in zip(*found, strict=True)), da, gs, None


def _states(p: _Tokens, a: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """The decays and the states of a chunk, both [C,B,N,E]."""
    decay = (p.dt[:, :, None] * a).exp_()
    return decay, in_order(decay, p.b[..., None] * (p.dt * p.x)[:, :, None], s)


def _chunk_gradients(p: _Tokens, a: Tensor, start: Tensor, gy: Tensor, gs: Tensor) -> tuple[_Tokens, Tensor, Tensor]:
    """From gy [C,B,E] and that of the last state, gs [B,N,E], the gradients of the tokens, of a, of the first state."""
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


_FORMS: dict[str, Callable[[_Tokens, Tensor, Tensor, int], Result]] = {
    "parallel": _parallel,
    "chunked": _chunked,
    "recurrent": _recurrent,
}


def _check(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, s: Tensor | None, chunk_size: int) -> None:
    for name, tensor in (("x", x), ("dt", dt), ("a", a), ("b", b), ("c", c)):
        check_floating(name, tensor)
    got = f"x {shape(x)}, dt {shape(dt)}, a {shape(a)}, b {shape(b)}, c {shape(c)}"
    fits = x.ndim == 3 and a.ndim == 2 and x.shape == dt.shape and a.shape[0] == x.shape[2] and b.shape == c.shape
    if not fits or tuple(b.shape) != (*x.shape[:2], a.shape[1]):
        raise ValueError(f"got {got}; accepted: x, dt [batch, time, channels], a [channels, N], b, c [batch, time, N]")
    wanted = [x.shape[0], *a.shape]
    check_matrix(s, "[B,E,N]", wanted, x.device)
    check_chunk_size(chunk_size)
