"""The chunked form as two torch operators, so that autograd, torch.compile and torch.export see one node for each.

    linnet::linear_attention            q, k, v, mask, s0, z0  ->  out, inv, s, z
    linnet::linear_attention_backward   g, gs, gz and all of these  ->  dq, dk, dv, ds0, dz0

Both run the native kernel, or the chunked form of forms.py and backward.py with the shapes and letters of chunks.py.
Recorded graphs use the operators; an eager call uses the same functions directly. Second derivatives go through plain
torch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import Any, TypeAlias

import torch
from torch import Tensor

from ...feature_maps.core import Core
from ...native import linear_attention as native
from ..checks import check_cu_seqlens
from ..dispatch import choose_linear
from ..native_allowed import by_hand, gradients, plain, recorded, transformed
from ..precision import full_precision
from .backward import chunked_backward
from .chunks import Batch, Rule
from .forms import Result, chunked

Grads: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]  # dq, dk, dv, ds0, dz0

_TENSORS = "Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor? s0, Tensor? z0, Tensor? cu_seqlens"
_RULE = "str kind, float[] coeffs, bool causal, bool normalize, float scale, float eps, int chunk_size, str backend"
_library = torch.library.Library("linnet", "DEF")
_library.define(f"linear_attention({_TENSORS}, {_RULE}) -> (Tensor, Tensor, Tensor, Tensor)")
_library.define(
    f"linear_attention_backward(Tensor g, Tensor? gs, Tensor? gz, {_TENSORS}, Tensor out, Tensor inv, {_RULE})"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)


def attend(
    b: Batch, cu_seqlens: Tensor | None, rule: Rule, backend: str, need_state: bool
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """Return out, inv, s, z of the chunked form; s, z may be None unless `need_state`, inv unless autograd needs it."""
    if torch.compiler.is_compiling():
        return _operator(b, cu_seqlens, rule, backend)
    if transformed():
        return by_sequence(chunked, b, cu_seqlens, rule)
    if not plain(*b) or (backend == "native" and recorded()):  # a tensor subclass may stand for a graph
        return _operator(b, cu_seqlens, rule, backend)
    if needs_graph(b):
        return _Attend.apply(*b, cu_seqlens, rule, backend, need_state)
    return _forward(b, cu_seqlens, rule, backend, need_state, need_inv=False)


def _operator(b: Batch, cu_seqlens: Tensor | None, rule: Rule, backend: str) -> Any:
    core, *rest = rule
    return torch.ops.linnet.linear_attention(*b, cu_seqlens, core.kind, core.coeffs, *rest, backend)


def needs_graph(b: Batch) -> bool:
    """Return True when autograd, a transform or a recorder has to see this call."""
    if transformed() or torch._C._len_torch_dispatch_stack() or torch._C._is_tracing() or not plain(*b):
        return True
    if not torch.is_grad_enabled():
        return False
    state = b.s0 is not None and b.z0 is not None and (b.s0.requires_grad or b.z0.requires_grad)
    return b.q.requires_grad or b.k.requires_grad or b.v.requires_grad or state


def empty(b: Batch) -> bool:
    """Return True for no rows, heads or values: a kernel has nothing to write, and torch returns the right shapes."""
    return b.q.shape[0] == 0 or b.q.shape[-2] == 0 or b.v.shape[-1] == 0


def by_sequence(form: Callable[[Batch, Rule], Result], b: Batch, cu_seqlens: Tensor | None, rule: Rule) -> Result:
    """Run the form on each sequence of a packed batch in turn, or on the whole batch if it is not packed."""
    if cu_seqlens is None:
        return form(b, rule)
    out, inv, s, z = zip(*(form(one, rule) for one in _sequences(b, cu_seqlens)), strict=True)
    return Result(torch.cat(out, dim=1), torch.cat(inv, dim=1), torch.cat(s), torch.cat(z))


def _forward(
    b: Batch, cu_seqlens: Tensor | None, rule: Rule, backend: str, need_state: bool = True, need_inv: bool = True
) -> Any:
    if backend != "native" or empty(b):
        return by_sequence(chunked, b, cu_seqlens, rule)
    q, k, v, mask, s0, z0 = b
    core, causal, normalize, scale, eps, _ = rule
    how = (core.kind, core.coeffs, causal, normalize, scale, eps)
    return native.forward(q, k, v, mask, cu_seqlens, s0, z0, *how, need_state, need_inv)


def _backward(
    g: Tensor, gs: Tensor | None, gz: Tensor | None, b: Batch, cu_seqlens: Tensor | None, out: Tensor, inv: Tensor,
    rule: Rule, backend: str, need_state: bool = True,
) -> Any:  # fmt: skip
    """Return dq, dk, dv, ds0, dz0; the last two may be None unless `need_state`."""
    if backend == "native" and not empty(b):
        q, k, v, mask, s0, z0 = b
        core, causal, normalize, scale, eps, _ = rule
        how = (core.kind, core.coeffs, causal, normalize, scale, eps)
        return native.backward(g, gs, gz, q, k, v, mask, cu_seqlens, s0, z0, out, inv, *how, need_state)
    if cu_seqlens is None:
        return chunked_backward(g, gs, gz, b, out, inv, rule)
    parts = []
    for i, one in enumerate(_sequences(b, cu_seqlens)):
        lo, hi = cu_seqlens[i : i + 2].tolist()
        end_s, end_z = (None if x is None else x[i : i + 1] for x in (gs, gz))
        parts.append(chunked_backward(g[:, lo:hi], end_s, end_z, one, out[:, lo:hi], inv[:, lo:hi], rule))
    dq, dk, dv, ds, dz = zip(*parts, strict=True)
    return torch.cat(dq, 1), torch.cat(dk, 1), torch.cat(dv, 1), torch.cat(ds), torch.cat(dz)


def _sequences(b: Batch, cu_seqlens: Tensor) -> list[Batch]:
    parts = []
    for i, (lo, hi) in enumerate(pairwise(cu_seqlens.tolist())):
        mask = None if b.mask is None else b.mask[:, lo:hi]
        s0, z0 = (None if x is None else x[i : i + 1] for x in (b.s0, b.z0))
        parts.append(Batch(b.q[:, lo:hi], b.k[:, lo:hi], b.v[:, lo:hi], mask, s0, z0))
    return parts


@lru_cache(maxsize=256)
def _rule(kind: str, coeffs: tuple[float, ...], *rest: Any) -> Rule:
    return Rule(Core(kind, coeffs), *rest)


def _resolve(b: Batch, rule: Rule, backend: str) -> str:
    """Choose the backend when the operator runs: a compiled graph may run on another machine."""
    if backend != "auto":
        return backend
    return choose_linear("chunked", backend, rule.core, b.q.shape[1], b.q.dtype, b.dtype, b.q.device.type).backend


def _forward_op(q: Tensor, k: Tensor, v: Tensor, mask: Any, s0: Any, z0: Any, cu_seqlens: Any, *how: Any) -> Any:
    kind, coeffs, *rest, backend = how
    b, rule = Batch(q, k, v, mask, s0, z0), _rule(kind, tuple(coeffs), *rest)
    if cu_seqlens is not None:
        check_cu_seqlens(cu_seqlens, k.shape[1], k.shape[0])
    return tuple(_forward(b, cu_seqlens, rule, _resolve(b, rule, backend)))


def _backward_op(g: Tensor, gs: Any, gz: Any, *rest: Any) -> Grads:
    b, (cu_seqlens, out, inv, kind, coeffs, *how, backend) = Batch(*rest[:6]), rest[6:]
    rule = _rule(kind, tuple(coeffs), *how)
    return _backward(g, gs, gz, b, cu_seqlens, out, inv, rule, _resolve(b, rule, backend))


def _forward_fake(q: Tensor, k: Tensor, v: Tensor, mask: Any, s0: Any, z0: Any, cu_seqlens: Any, *how: Any) -> Any:
    B, T, H, D = q.shape
    dtype = Batch(q, k, v, mask, s0, z0).dtype
    rows = B if cu_seqlens is None else cu_seqlens.shape[0] - 1
    F = Core(how[0], tuple(how[1])).feature_dim(D)
    state = (q.new_empty(rows, H, F, v.shape[3], dtype=dtype), q.new_empty(rows, H, F, dtype=dtype))
    return v.new_empty(B, T, H, v.shape[3]), q.new_empty(B, T, H, dtype=dtype), *state


def _backward_fake(g: Tensor, gs: Any, gz: Any, q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Any:
    like = tuple(x.new_empty(x.shape) for x in (q, k, v))
    return *like, *_forward_fake(q, k, v, *rest[:4], *rest[6:])[2:]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    kind, coeffs, *rest, ctx.backend = inputs[7:]
    ctx.rule = _rule(kind, tuple(coeffs), *rest)
    ctx.save_for_backward(*inputs[:7], *output[:2])
    ctx.set_materialize_grads(False)


def _autograd(ctx: Any, g: Tensor | None, _: Any, gs: Tensor | None, gz: Tensor | None) -> tuple[Any, ...]:
    """The gradient of the operator: a second operator."""
    core, *rest = ctx.rule

    def run(*args: Any) -> Grads:
        return torch.ops.linnet.linear_attention_backward(*args, core.kind, core.coeffs, *rest, ctx.backend)

    return *_gradients(ctx, g, gs, gz, run), None, *(None for _ in range(8))


def _gradients(ctx: Any, g: Tensor | None, gs: Tensor | None, gz: Tensor | None, run: Callable[..., Grads]) -> Any:
    """Return gradients of q, k, v, mask, s0, z0 by `run`, or in plain torch when they must be differentiable."""
    *tensors, cu_seqlens, out, inv = ctx.saved_tensors
    b = Batch(*tensors)
    g = torch.zeros_like(out) if g is None else g
    with full_precision(b.q):  # backward() may be called inside autocast
        if torch.is_grad_enabled():  # create_graph: here out and inv must be functions of the inputs too
            again = by_sequence(chunked, b, cu_seqlens, ctx.rule)
            dq, dk, dv, ds, dz = _backward(g, gs, gz, b, cu_seqlens, again.out, again.inv, ctx.rule, "torch")
        else:
            dq, dk, dv, ds, dz = run(g, gs, gz, *b, cu_seqlens, out, inv)
    return dq, dk, dv, None, *((None, None) if b.s0 is None else (ds.to(b.s0.dtype), dz.to(b.s0.dtype)))


def _batched(ctx: Any, *grads: Tensor | None) -> list[Any]:
    """Return the same for a batch of gradients (vmap), by autograd through differentiable operations."""
    *tensors, cu_seqlens, _, _ = ctx.saved_tensors

    def run(*tensors: Any) -> tuple[Tensor, Tensor, Tensor]:
        out, _, s, z = by_sequence(chunked, Batch(*tensors), cu_seqlens, ctx.rule)
        return out, s, z

    return gradients(run, tuple(tensors), grads)


class _Attend(torch.autograd.Function):
    """The same node without the dispatcher, whose Python overhead exceeds the kernel on short sequences."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        *tensors, cu_seqlens, ctx.rule, ctx.backend, need_state = args
        out, inv, s, z = _forward(Batch(*tensors), cu_seqlens, ctx.rule, ctx.backend, need_state)
        ctx.save_for_backward(*tensors, cu_seqlens, out, inv)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(inv)
        return out, inv, s, z

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, _: Any, gs: Tensor | None, gz: Tensor | None) -> Any:
        def run(g: Tensor, gs: Any, gz: Any, *rest: Any) -> Grads:
            *tensors, cu_seqlens, out, inv = rest
            b = Batch(*tensors)
            return _backward(g, gs, gz, b, cu_seqlens, out, inv, ctx.rule, ctx.backend, b.s0 is not None)

        if not torch.is_grad_enabled() and not by_hand(g, gs, gz):
            return *_batched(ctx, g, gs, gz), None, None, None, None
        return *_gradients(ctx, g, gs, gz, run), None, None, None, None


_library.impl("linear_attention", _forward_op, "CompositeExplicitAutograd")
_library.impl("linear_attention_backward", _backward_op, "CompositeExplicitAutograd")
torch.library.register_fake("linnet::linear_attention", _forward_fake, lib=_library)
torch.library.register_fake("linnet::linear_attention_backward", _backward_fake, lib=_library)
torch.library.register_autograd("linnet::linear_attention", _autograd, setup_context=_setup_context, lib=_library)
