"""The usual call by a short path: on short sequences, deciding what to run takes longer than running it.

Usual is float32 on the CPU, a map with nothing to prepare, no mask, packing or initial state (a step may have one), and
nothing that records or transforms. What remains of the decision depends on the options only and is taken once
(`_native_rule`). Any other call, and any argument that needs a sentence, goes the long way in attention.py; both give
the same bits.
"""

from __future__ import annotations

from functools import lru_cache
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from ...feature_maps import FeatureMap
from ...feature_maps.core import Core
from ...native import linear_attention as native
from ..native_allowed import by_hand, gradients, recorded, transformed
from ..precision import full_precision
from ..state import State
from .chunks import Batch, Rule
from .forms import chunked

FORMS, BACKENDS = ("auto", "chunked"), ("auto", "native")


def usual(q: Tensor, k: Tensor, v: Tensor, axes: int) -> bool:
    """Return True in a microsecond if the inputs are valid; anything else goes to checks.py for its sentence."""
    if not (type(q) is type(k) is type(v) is Tensor) or q.is_nested:
        return False
    shape, dtype, device = q.shape, q.dtype, q.device
    return (
        len(shape) == axes
        and k.shape == shape
        and v.shape[:-1] == shape[:-1]
        and shape[-1] > 0
        and k.dtype == v.dtype == dtype
        and k.device == v.device == device
        and dtype.is_floating_point
        and q.layout == k.layout == v.layout == torch.strided
    )


def run_usual(
    q: Tensor, k: Tensor, v: Tensor, phi: FeatureMap, causal: Any, normalize: Any, scale: Any, eps: Any,
    need_state: bool, form: Any, backend: Any,
) -> tuple[Tensor, State | None] | None:  # fmt: skip
    """Return out and the state, if needed, of inputs that are `usual`; None for a call that is not."""
    rule = _usual_rule(q, v, phi, causal, normalize, scale, eps, form, backend)
    if rule is None:
        return None
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        return None if need_state else (_apply(q, k, v, rule), None)
    out, _, s, z = native.forward(q, k, v, None, None, None, None, *_how(rule), need_state, False)
    return out, None if s is None or z is None else State(s, z)


def run_usual_step(
    q: Tensor, k: Tensor, v: Tensor, state: State | None, phi: FeatureMap, normalize: Any, scale: Any, eps: Any,
    backend: Any,
) -> tuple[Tensor, State] | None:  # fmt: skip
    """Return out and the state after one token of inputs that are `usual`; None for a call that is not.

    `state` fits q and v (check_state); it may be float64.
    """
    rule = _usual_rule(q, v, phi, True, normalize, scale, eps, "auto", backend)
    if rule is None:
        return None
    s0, z0 = (None, None) if state is None else state
    if not (s0 is None or z0 is None or type(s0) is type(z0) is Tensor):
        return None
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad or _wants_grad(s0, z0)):
        return None
    core, _, normalize, scale, eps, _ = rule
    out, s, z = native.step(q, k, v, s0, z0, core.kind, core.coeffs, normalize, scale, eps)
    return out, State(s, z)


def _wants_grad(s0: Tensor | None, z0: Tensor | None) -> bool:
    return s0 is not None and z0 is not None and (s0.requires_grad or z0.requires_grad)


def _usual_rule(
    q: Tensor, v: Tensor, phi: FeatureMap, causal: Any, normalize: Any, scale: Any, eps: Any, form: Any, backend: Any
) -> Rule | None:
    if not (q.dtype is torch.float32 and q.is_cpu and v.numel()) or transformed() or recorded():
        return None
    if not (type(causal) is type(normalize) is bool and type(eps) is float and (scale is None or type(scale) is float)):
        return None
    if form not in FORMS or backend not in BACKENDS or native.library() is None:
        return None
    return _native_rule(phi.core, phi.head_dim, phi.feature_dim, causal, normalize, scale, eps, form, backend)


@lru_cache(maxsize=256)
def _native_rule(
    core: Core, head_dim: int, feature_dim: int, causal: bool, normalize: bool, scale: float | None, eps: float,
    form: str, backend: str,
) -> Rule | None:  # fmt: skip
    """Return the rule of such calls if a kernel takes them; None if not, or if a number has to be refused."""
    scale = 1.0 if scale is None else scale
    if not (isfinite(scale) and isfinite(eps) and eps >= 0 and core.feature_dim(head_dim) == feature_dim):
        return None
    if native.unsupported(core.kind, core.coeffs, torch.float32, "cpu", torch.float32, one_step=False):
        return None
    return Rule(core, causal, normalize, scale, eps)


def _how(rule: Rule) -> tuple[str, tuple[float, ...], bool, bool, float, float]:
    core, causal, normalize, scale, eps, _ = rule
    return core.kind, core.coeffs, causal, normalize, scale, eps


class _Attend(torch.autograd.Function):
    """Three tensors in and one out, and one kernel call each way."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, rule: Rule) -> Tensor:
        out, inv, _, _ = native.forward(q, k, v, None, None, None, None, *_how(rule), False, True)
        ctx.save_for_backward(q, k, v, out, inv)
        ctx.rule = rule
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        q, k, v, out, inv = ctx.saved_tensors
        rule = ctx.rule
        if by_hand(g):
            run = native.backward
            dq, dk, dv, _, _ = run(g, None, None, q, k, v, None, None, None, None, out, inv, *_how(rule), False)
            return dq, dk, dv, None
        with full_precision(q):  # backward() may be called inside autocast
            return *gradients(lambda *x: chunked(Batch(*x), rule).out, (q, k, v), (g,)), None


# Function.apply first looks for what a functorch transform may have left; none is active here.
_apply = super(torch.autograd.Function, _Attend).apply
