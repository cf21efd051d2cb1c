"""What every sequence mixer asks of its arguments, in one place: q, k, v, mask, cu_seqlens, scale, state.

Each check raises ValueError with one sentence: the value received, what is accepted, the way out.
B batch, T time, H heads, D query/key width, V value width:  q, k [B,T,H,D]   v [B,T,H,V]   mask [B,T].
Only shapes, dtypes and devices are read (cu_seqlens and positions excepted), so a check costs nothing compared with
the op.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import isfinite, sqrt
from typing import Any

import torch
from torch import Tensor

from ..errors import StateError

WIDE = (torch.float32, torch.float64)  # a sum over a million tokens needs at least these
NARROW = (torch.float16, torch.bfloat16)  # enough to keep inputs, keys and values as they came
LONGEST = 2**40  # tokens of one stream, at most: positions have 5 digits in base 256, and stay far from an overflow
FIELDS = {  # what the numbers of a state look like, by its fields: axes of each, how many they share, in words, dtypes
    "sz": ([4, 3], 3, "s [B,H,F,V] and z [B,H,F]", WIDE),
    "kv": ([4, 4], 3, "k [B,T,H,D] and v [B,T,H,V]", NARROW + WIDE),
    "x": ([3], 1, "x [B,W,E]", NARROW + WIDE),
    "sx": ([4, 3], 1, "s [B,H,F,V] and x [B,W,E]", WIDE),
}


def check_qkv(q: Tensor, k: Tensor, v: Tensor, causal: bool = True) -> None:
    """q [B,Tq,H,D], k [B,Tk,H,D], v [B,Tk,H,V]: one floating dtype, one device; Tq = Tk when causal."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        check_floating(name, x)
        if x.ndim != 4:
            raise ValueError(f"{name} has shape {shape(x)}; accepted: four axes [batch, time, heads, width]")
    got = f"q {shape(q)}, k {shape(k)}, v {shape(v)}"
    if q.shape[0] != k.shape[0] or q.shape[2:] != k.shape[2:]:
        raise ValueError(f"q and k must agree in batch, heads and width, but got {got}")
    if k.shape[:3] != v.shape[:3]:
        raise ValueError(f"k and v must agree in batch, time and heads, but got {got}")
    if causal and q.shape[1] != k.shape[1]:
        raise ValueError(f"causal attention needs as many queries as keys, but got {got}; use causal=False for cross")
    if q.shape[3] == 0:
        raise ValueError(f"q and k must be at least 1 wide, but got {got}")
    check_same("q", q, k=k, v=v)


def check_step(q: Tensor, k: Tensor, v: Tensor) -> None:
    """One token: q, k [B,H,D] and v [B,H,V]; the rest as `check_qkv`."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        check_floating(name, x)
        if x.ndim != 3:
            raise ValueError(f"{name} has shape {shape(x)}; a step accepts one token, three axes [batch, heads, width]")
    check_qkv(q[:, None], k[:, None], v[:, None])


def check_floating(name: str, x: Tensor) -> None:
    if not isinstance(x, Tensor):
        raise ValueError(f"{name} is a {type(x).__name__}; accepted: a torch.Tensor; use torch.as_tensor({name})")
    if not x.is_floating_point():
        raise ValueError(f"{name} has dtype {x.dtype}; accepted: a floating dtype; use {name}.float()")
    if x.is_nested or x.layout != torch.strided:
        got = "nested" if x.is_nested else str(x.layout)
        way_out = f"torch.nested.to_padded_tensor({name}, 0.0) and a mask" if x.is_nested else f"{name}.to_dense()"
        raise ValueError(f"{name} has the layout {got}; accepted: a strided tensor; use {way_out}")


def check_same(first: str, x: Tensor, **others: Tensor) -> None:
    """All on the device and in the dtype of `x`."""
    for name, y in others.items():
        if y.dtype != x.dtype:
            raise ValueError(
                f"{first} is {x.dtype} but {name} is {y.dtype}; accepted: one dtype; use {name}.to({first}.dtype)"
            )
        if y.device != x.device:
            raise ValueError(f"{first} is on {x.device} but {name} on {y.device}; use {name}.to({first}.device)")


def check_mask(mask: Tensor | None, batch: int, length: int, device: torch.device | None = None) -> None:
    """[B,T] bool, True = real token. Numbers are refused, for a NaN in them would count as real."""
    if mask is None:
        return
    if not isinstance(mask, Tensor):
        raise ValueError(f"mask is a {type(mask).__name__}; accepted: a bool tensor, True = real token")
    if mask.dtype != torch.bool:
        got, way_out = f"dtype {mask.dtype}", "mask.bool()"
        if mask.is_floating_point() and bool(mask.isnan().any()):
            got, way_out = f"{got} with NaN in it", "mask.nan_to_num().bool() if NaN is padding"
        raise ValueError(f"mask has {got}; accepted: bool, True = real token; use {way_out}")
    if tuple(mask.shape) != (batch, length):
        raise ValueError(f"mask has shape {shape(mask)}; accepted: [batch, time] = [{batch}, {length}]")
    if device is not None and mask.device != device:
        raise ValueError(f"mask is on {mask.device}, the inputs are on {device}; use mask.to({str(device)!r})")


def check_cu_seqlens(cu_seqlens: Tensor | Sequence[int], length: int, batch: int = 1) -> list[int]:
    """Offsets [S+1] of a packed batch as a list: 0 = c_0 <= c_1 <= ... <= c_S = T. Sequences may be empty."""
    if batch != 1:
        raise ValueError(f"cu_seqlens packs along time, so batch must be 1, not {batch}; use x.flatten(0, 1)[None]")
    try:
        offsets = torch.as_tensor(cu_seqlens)
    except (TypeError, ValueError, RuntimeError) as error:
        got = f"{cu_seqlens!r}, a {type(cu_seqlens).__name__}"
        raise ValueError(f"cu_seqlens is {got}; accepted: a tensor or list of offsets, from 0 to {length}") from error
    if offsets.dtype not in (torch.int32, torch.int64) or offsets.ndim != 1 or len(offsets) < 2:
        got = f"shape {shape(offsets)} and dtype {offsets.dtype}"
        raise ValueError(f"cu_seqlens has {got}; accepted: offsets [S+1] of S >= 1 sequences, int32 or int64")
    values: list[int] = offsets.tolist()
    if values[0] != 0 or values[-1] != length:
        raise ValueError(f"cu_seqlens runs from {values[0]} to {values[-1]}; accepted: from 0 to the length {length}")
    for left, right in pairwise(values):
        if right < left:
            raise ValueError(f"cu_seqlens decreases from {left} to {right}; accepted: offsets that never decrease")
    return values


def check_scale(scale: float | None, head_dim: int) -> float:
    """The factor on q.k: a finite number, or None for 1 / sqrt(D)."""
    if scale is None:
        return 1 / sqrt(head_dim)
    if isinstance(scale, bool) or not isinstance(scale, (int, float)) or not isfinite(scale):
        raise ValueError(f"scale is {scale!r}; accepted: a finite number, or None for 1/sqrt({head_dim})")
    return float(scale)


def check_positions(start: Tensor, end: Tensor | None = None) -> None:
    """StateError unless rows that have seen `start` [B] tokens, and `end` [B] after this call, stay in bounds."""
    if torch.compiler.is_compiling() or start.is_meta or start.numel() == 0:
        return
    low, high = (int(x) for x in torch.aminmax(start))
    if low < 0 or high > LONGEST:
        worst = low if low < 0 else high
        raise StateError(f"position {worst} is out of range; accepted: 0 to {LONGEST} tokens that a row has seen")
    if end is not None and int(end.max()) > LONGEST:
        raise too_long(high)


def too_long(seen: int) -> StateError:
    """What is said where a stream ends."""
    return StateError(
        f"a stream has seen {seen} tokens and cannot read on; accepted: {LONGEST} tokens in all; begin a new stream"
    )


def check_chunk_size(chunk_size: int) -> None:
    if isinstance(chunk_size, bool) or not isinstance(chunk_size, int) or chunk_size < 1:
        raise ValueError(f"chunk_size is {chunk_size!r}; accepted: an integer >= 1")


def check_matrix(state: Any, axes: str, wanted: Sequence[int], device: torch.device) -> None:
    """StateError unless `state`, of an op whose state is one tensor, is None or such a tensor of floating numbers.

    Half precision is accepted as it comes: the op widens it to float32, as it does its inputs.
    """
    if state is None:
        return
    if not isinstance(state, Tensor) or list(state.shape) != [*wanted] or state.dtype not in NARROW + WIDE:
        got = f"has shape {shape(state)} {state.dtype}" if isinstance(state, Tensor) else f"is a {type(state).__name__}"
        accepted = f"{axes} = {[*wanted]}, float32 or float64, or half precision, which is widened"
        raise StateError(f"initial_state {got}; accepted here: {accepted}; a call returns it in float32 or float64")
    if state.device != device:
        raise StateError(f"initial_state is on {state.device}, the inputs on {device}; use state.to({str(device)!r})")


def widened(state: Any, kind: type[Any], dtype: torch.dtype = torch.float32) -> Any:
    """A state of this kind whose numbers are all of one half precision, in the wider `dtype`; any other as it is.

    What does not fit is left for the checks to refuse. Gradients come back in the dtype the state was given in.
    """
    if not isinstance(state, kind) or dtype not in WIDE:
        return state
    numbers = [x for x in state if isinstance(x, Tensor) and x.dtype != torch.bool]
    if not numbers or numbers[0].dtype not in NARROW or any(x.dtype != numbers[0].dtype for x in numbers):
        return state
    return kind._make(x.to(dtype) if isinstance(x, Tensor) and x.dtype != torch.bool else x for x in state)


def check_form(state: Any, kind: type[Any]) -> None:
    """StateError unless `state` is of this NamedTuple kind (see state.py) and its tensors fit one another."""
    if not isinstance(state, kind):
        raise StateError(f"the state is a {type(state).__name__}; accepted here: {kind.__name__}")
    fields: dict[str, Any] = state._asdict()
    mask = fields.get("mask")
    if mask is None and "mask" in kind._field_defaults:
        fields.pop("mask")
    for name, x in fields.items():
        if not isinstance(x, Tensor):
            raise StateError(f"{kind.__name__}.{name} is a {type(x).__name__}; accepted: a torch.Tensor")
    got = f"{kind.__name__} has " + ", ".join(f"{n} {shape(x)} {x.dtype} on {x.device}" for n, x in fields.items())
    ranks, alike, wanted, accepted = FIELDS["".join(name for name in kind._fields if name != "mask")]
    first, *others = numbers = [x for name, x in fields.items() if name != "mask"]
    if [x.ndim for x in numbers] != ranks or any(x.shape[:alike] != first.shape[:alike] for x in others):
        raise StateError(f"{got}; accepted: {wanted}")
    if first.dtype not in accepted or any(x.dtype != first.dtype for x in others):
        raise StateError(f"{got}; accepted: one dtype out of {', '.join(map(str, accepted))}; use state.to(dtype=...)")
    if mask is not None and (mask.dtype != torch.bool or mask.shape != first.shape[:2]):
        raise StateError(f"{got}; accepted: a bool mask [B,T] = {list(first.shape[:2])}")
    if any(x.device != first.device for x in fields.values()):
        raise StateError(f"{got}; accepted: one device; use state.to({str(first.device)!r})")


def compute_dtype(x: Tensor, state: Tensor) -> torch.dtype:
    """What an op computes in: float32, or float64 if one of the two is."""
    return torch.promote_types(torch.promote_types(x.dtype, state.dtype), torch.float32)


def shape(x: Tensor) -> str:
    if torch.compiler.is_compiling():  # a sentence that is not raised must neither break the graph nor fix a size in it
        return "[...]"
    return str(list(x.shape))
