"""Explain what a call of any op would run: the decision of dispatch.py, the size of the state and the gradient.

print(linnet.explain_dispatch((1, 2048, 8, 64), op="delta_rule"))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..errors import unknown, whole
from ..feature_maps import FeatureMap, resolve
from .conv import short_conv
from .dispatch import OPS, Decision, choose, choose_linear
from .gated import decay, selective_scan, wkv
from .linear import attention as linear
from .native_allowed import unsupported
from .softmax import full, lsh, window

CHANNELS = ("selective_scan", "wkv", "short_conv", "base_conv")  # their first input is [batch, time, channels]
OWN_BACKWARD = ("linear_attention", "decayed_attention", "delta_rule", "selective_scan")  # in the chunked form
NEEDED = {  # the options that a decision or the size of a state depends on
    "selective_scan": ("state_dim",),
    "sliding_window_attention": ("window",),
    "lsh_attention": ("span", "rounds"),
    "short_conv": ("kernel_size",),
}


def explain_dispatch(
    q_shape: Sequence[int],
    *,
    op: str = "linear_attention",
    value_dim: int | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    feature_map: str | FeatureMap | None = "elu",
    causal: bool = True,
    requires_grad: bool = False,
    form: str = "auto",
    backend: str = "auto",
    **sizes: int,
) -> Decision:
    """Return what a call of `op` would run, and why; `str` of it is one sentence.

    `q_shape` is the shape of the first input: [B,T,H,D], or [B,T,E] for selective_scan, wkv and the convolutions.
    Some ops need a size that is not in it: `state_dim` (selective_scan), `window` (sliding_window_attention), `span`
    and `rounds` (lsh_attention), `kernel_size` (short_conv). `feature_map` is for linear_attention.

    >>> print(explain_dispatch((1, 2048, 8, 64), form="parallel"))
    parallel form on the torch backend: form='parallel' was requested, which only torch has; state 133,120 bytes per
    sequence
    """
    if op not in OPS:
        raise unknown("op", op, OPS)
    _check_sizes(op, q_shape, sizes)
    kind = torch.device(device).type
    chosen = _decision(op, q_shape, dtype, kind, feature_map, form, backend, sizes)
    notes = [chosen.reason, _state(op, q_shape, value_dim, dtype, feature_map, sizes)]
    if not causal:
        notes.append("bidirectional: one pass over the keys, one over the queries")
    if requires_grad:
        custom = chosen.backend == "native" or (chosen.form == "chunked" and op in OWN_BACKWARD)
        notes.append("gradient by a custom backward in O(T) memory" if custom else "gradient by autograd")
    return chosen._replace(reason="; ".join(notes))


def _decision(
    op: str, shape: Sequence[int], dtype: torch.dtype, device: str, feature_map: str | FeatureMap | None, form: str,
    backend: str, sizes: dict[str, int],
) -> Decision:  # fmt: skip
    length = shape[1]
    if op == "linear_attention":
        core = resolve(feature_map, shape[3]).core
        return choose_linear(form, backend, core, length, dtype, _wide(dtype), device)
    if OPS[op].native:
        small = op in ("short_conv", "base_conv") and backend == "auto"  # these leave few numbers to torch
        size = shape[0] * length * shape[2] if small else None
        wide = dtype if op == "base_conv" else _wide(dtype)  # which does not widen
        return choose(op, form, backend, length, lambda: unsupported(wide, device, size))
    auto = lsh.auto_form(length, sizes["rounds"], sizes["span"]) if op == "lsh_attention" else None
    return choose(op, form, backend, length, auto=auto)


def _state(
    op: str, shape: Sequence[int], value_dim: int | None, dtype: torch.dtype, feature_map: str | FeatureMap | None,
    sizes: dict[str, int],
) -> str:  # fmt: skip
    """Return the size of the state, as the op's own `state_bytes` counts it."""
    if op == "base_conv":
        return "no state: whole sequences only"
    how: dict[str, Any] = {"dtype": dtype}
    if op in CHANNELS:
        width = shape[2]
        if op == "short_conv":
            count = short_conv.state_bytes(shape[1], width=width, kernel_size=sizes["kernel_size"], **how)
        elif op == "wkv":
            count = wkv.state_bytes(shape[1], channels=width, **how)
        else:
            count = selective_scan.state_bytes(shape[1], channels=width, state_dim=sizes["state_dim"], **how)
        return f"state {count:,} bytes per sequence"
    _, length, heads, width = shape
    values = width if value_dim is None else value_dim
    how |= {"heads": heads, "value_dim": values}
    if op == "linear_attention":
        count = linear.state_bytes(length, feature_dim=resolve(feature_map, width).feature_dim, **how)
    elif op == "sliding_window_attention":
        count = window.state_bytes(length, window=sizes["window"], head_dim=width, **how)
    elif op in ("softmax_attention", "lsh_attention"):
        count = full.state_bytes(length, head_dim=width, **how)
        return f"state {count:,} bytes per sequence of {length} tokens, growing with each"
    else:
        count = decay.state_bytes(length, key_dim=width, **how)
    return f"state {count:,} bytes per sequence"


def _check_sizes(op: str, shape: Sequence[int], sizes: dict[str, int]) -> None:
    if op in CHANNELS and len(shape) != 3:
        raise ValueError(f"q_shape is {tuple(shape)}; accepted for {op}: three sizes (batch, time, channels)")
    if op not in CHANNELS and len(shape) != 4:
        raise ValueError(f"q_shape is {tuple(shape)}; accepted for {op}: four sizes (batch, time, heads, width)")
    needed = NEEDED.get(op, ())
    for name in sizes:
        if name not in needed:
            raise unknown(f"size for {op}", name, needed or ("none",))
    for name in needed:
        whole(name, sizes.get(name), 1, hint=f"{op} needs it")


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32
