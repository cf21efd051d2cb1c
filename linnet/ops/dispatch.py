"""Which form and which back end run a call, and why: one small function that can explain itself.

    auto   ->  the native chunked kernel where it can run; else torch: recurrent for one token, chunked for more

The answer never depends on the choice, only the time it takes. Asking for a form or a back end by name is obeyed or
refused with BackendError, never quietly replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from ..errors import BackendError, unknown
from ..feature_maps import FeatureMap, resolve
from ..feature_maps.core import Core
from ..native import linear_attention as native
from .forms import FORMS

BACKENDS = ("native", "torch", "triton")


class Decision(NamedTuple):
    """What will run, and why."""

    form: str
    backend: str
    reason: str

    def __str__(self) -> str:
        return f"{self.form} form on the {self.backend} back end: {self.reason}"


def choose(
    form: str, backend: str, core: Core, length: int, dtype: torch.dtype, state_dtype: torch.dtype, device: str,
    one_step: bool = False,
) -> Decision:  # fmt: skip
    """For `length` queries of `dtype`, with sums kept in `state_dtype`; `one_step`: called by linear_attention_step."""
    check_names(form, backend)
    one_form = form in ("auto", "chunked") or (form == "recurrent" and length == 1)
    if backend == "native" and not one_form:
        raise BackendError(
            f"backend 'native' has the chunked form (and the recurrent one for a single token), not form={form!r} at "
            f"{length} tokens; use form='auto' or backend='torch'"
        )
    why_not = "backend='torch' was asked for" if backend == "torch" else None
    if why_not is None and not one_form:
        why_not = f"form={form!r} was asked for, which only torch has"
    if why_not is None:
        why_not = native.unsupported(core.kind, core.coeffs, dtype, device, state_dtype, one_step)
    if why_not is None:
        return Decision("chunked" if form == "auto" else form, "native", "the fused kernel takes this call")
    if backend == "native":
        raise BackendError(f"backend 'native' cannot run this call: {why_not}; use backend='auto' or 'torch'")
    if form != "auto":
        return Decision(form, "torch", why_not)
    chosen, cost = ("recurrent", "one token") if length == 1 else ("chunked", "O(T) time and memory")
    return Decision(chosen, "torch", f"{why_not}; {chosen} for {cost}")


def check_names(form: str, backend: str) -> None:
    if form != "auto" and form not in FORMS:
        raise unknown("form", form, ("auto", *FORMS))
    if backend != "auto" and backend not in BACKENDS:
        raise unknown("backend", backend, ("auto", *BACKENDS))
    if backend == "triton":
        raise BackendError("backend 'triton' has no GPU kernel in this version; use backend='torch' or 'auto'")


def explain_dispatch(
    q_shape: Sequence[int],
    *,
    value_dim: int | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    feature_map: str | FeatureMap | None = "elu",
    causal: bool = True,
    requires_grad: bool = False,
    form: str = "auto",
    backend: str = "auto",
) -> Decision:
    """What `linear_attention` would run for q of this shape [B,T,H,D], and why; `str` of it is one sentence.

    >>> print(explain_dispatch((1, 2048, 8, 64), form="parallel"))
    parallel form on the torch back end: form='parallel' was asked for, which only torch has; state 133,120 bytes per
    sequence
    """
    if len(q_shape) != 4:
        raise ValueError(f"q_shape is {tuple(q_shape)}; accepted: four sizes (batch, time, heads, width)")
    _, length, heads, head_dim = q_shape
    phi = resolve(feature_map, head_dim)
    state_dtype = torch.float64 if dtype == torch.float64 else torch.float32
    found = choose(form, backend, phi.core, length, dtype, state_dtype, torch.device(device).type)
    values = heads * phi.feature_dim * (1 + (head_dim if value_dim is None else value_dim))
    notes = [found.reason, f"state {values * state_dtype.itemsize:,} bytes per sequence"]
    if not causal:
        notes.append("bidirectional: one pass over the keys, one over the queries")
    if requires_grad:
        custom = found.form == "chunked" or found.backend == "native"
        notes.append("gradient by a custom backward in O(T) memory" if custom else "gradient by autograd")
    return found._replace(reason="; ".join(notes))
