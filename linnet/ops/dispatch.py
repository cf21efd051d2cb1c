"""Which form and which backend run a call, and why: one table of ops and one function that decides.

    auto   ->  the native kernel where it can run; else torch: recurrent for one token, chunked for more

The choice never changes the result, only the time it takes. A form or backend requested by name either runs or is
refused; it is never silently replaced. `explain.py` shows the decision for any op.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from ..errors import BackendError, unknown
from ..feature_maps.core import Core
from ..native import linear_attention as native

FORMS = ("parallel", "chunked", "recurrent")
BACKENDS = ("native", "torch", "triton")


class Op(NamedTuple):
    """The forms of an op, and those that have a native kernel."""

    forms: tuple[str, ...]
    native: tuple[str, ...] = ()


OPS = {
    "linear_attention": Op(FORMS, native=("chunked",)),
    "decayed_attention": Op(FORMS, native=("chunked",)),
    "delta_rule": Op(FORMS, native=("chunked",)),
    "selective_scan": Op(FORMS, native=("chunked",)),
    "wkv": Op(FORMS, native=("chunked",)),
    "wkv7": Op(FORMS, native=("chunked",)),
    "softmax_attention": Op(("parallel",)),
    "sliding_window_attention": Op(("chunked",)),
    "lsh_attention": Op(FORMS),
    "short_conv": Op(("parallel",), native=("parallel",)),
    "base_conv": Op(("parallel",), native=("parallel",)),
}
COSTS = {"parallel": "all tokens at the same time", "chunked": "O(T) time and memory", "recurrent": "one token"}


class Decision(NamedTuple):
    """What will run, and why."""

    form: str
    backend: str
    reason: str

    def __str__(self) -> str:
        return f"{self.form} form on the {self.backend} backend: {self.reason}"


def choose(
    op: str, form: str, backend: str, length: int, unsupported: Callable[[], str | None] | None = None,
    auto: str | None = None,
) -> Decision:  # fmt: skip
    """Return the form and backend for a call of `op` with `length` tokens.

    `unsupported` returns why the op's kernel cannot run this call, as the rest of a sentence, or None if it can.
    `auto` is what form="auto" means on torch, for an op with its own rule.
    """
    check_names(op, form, backend)
    has = OPS[op]
    fits = form == "auto" or form in has.native or (form == "recurrent" and length == 1 and "chunked" in has.native)
    if backend == "native" and has.native and not fits:
        single = " (and the recurrent one for a single token)" if "recurrent" in has.forms else ""
        raise BackendError(
            f"backend 'native' has the {has.native[0]} form{single}, not form={form!r} at {length} tokens; "
            "use form='auto' or backend='torch'"
        )
    why_not: str | None
    if backend == "torch":
        why_not = "backend='torch' was requested"
    elif not has.native:
        why_not = f"{op} has no native kernel"
    elif not fits:
        why_not = f"form={form!r} was requested, which only torch has"
    else:
        why_not = None if unsupported is None else unsupported()
    if why_not is None:
        return Decision(has.native[0] if form == "auto" else form, "native", "the fused kernel takes this call")
    if backend == "native":
        raise BackendError(f"backend 'native' cannot run this call: {why_not}; use backend='auto' or 'torch'")
    if form != "auto":
        return Decision(form, "torch", why_not)
    chosen = auto or _usual_form(has, length)
    return Decision(chosen, "torch", f"{why_not}; {chosen} for {COSTS[chosen]}")


def choose_linear(
    form: str, backend: str, core: Core, length: int, dtype: torch.dtype, state_dtype: torch.dtype, device: str,
    one_step: bool = False,
) -> Decision:  # fmt: skip
    """`choose` for linear attention, with sums in `state_dtype`; `one_step`: called by linear_attention_step."""

    def unsupported() -> str | None:
        return native.unsupported(core.kind, core.coeffs, dtype, device, state_dtype, one_step)

    return choose("linear_attention", form, backend, length, unsupported)


def check_names(op: str, form: str, backend: str) -> None:
    """Raise unless `op` has this form and the backend exists."""
    forms = OPS[op].forms
    if form != "auto" and form not in forms:
        if form not in FORMS:
            raise unknown("form", form, ("auto", *forms))
        raise ValueError(f"form is {form!r}, which {op} does not have; accepted: auto, {', '.join(forms)}")
    if backend != "auto" and backend not in BACKENDS:
        raise unknown("backend", backend, ("auto", *BACKENDS))
    if backend == "triton":
        raise BackendError("backend 'triton' has no GPU kernel in this version; use backend='torch' or 'auto'")


def check_torch(op: str, backend: str) -> None:
    """Raise unless one token of `op` can run on this backend; for steps that have no kernel."""
    check_names(op, "auto", backend)
    if backend == "native":
        raise BackendError(f"backend 'native' cannot run this call: {op}_step has no native kernel; use backend='auto'")


def _usual_form(has: Op, length: int) -> str:
    if len(has.forms) == 1:
        return has.forms[0]
    return "recurrent" if length == 1 else "chunked"
