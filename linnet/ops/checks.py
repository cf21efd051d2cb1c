"""The checks that sequence ops share: q, k, v, mask, cu_seqlens, scale, state.

Each check raises ValueError with one sentence: the value received, what is accepted, the way out. Every op checks in
one order: inputs, options, mask, cu_seqlens, initial_state, form and backend.
B batch, T time, H heads, D query/key width, V value width:  q, k [B,T,H,D]   v [B,T,H,V]   mask [B,T].
Only shapes, dtypes and devices are read (cu_seqlens and positions excepted), so a check is cheap compared with the op.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import sqrt
from typing import Any

import torch
from torch import Tensor

from ..errors import StateError, is_number, whole
from ..native.gate import freed

WIDE = (torch.float32, torch.float64)  # a sum over a million tokens needs at least these
NARROW = (torch.float16, torch.bfloat16)  # enough to store inputs, keys and values
LONGEST = 2**40  # tokens of one stream, at most: positions have 5 digits in base 256, and stay far from an overflow
COUNTS = {1: "one axis", 2: "two axes", 3: "three axes", 4: "four axes"}


def check_qkv(q: Tensor, k: Tensor, v: Tensor, causal: bool = True) -> None:
    """Check q [B,Tq,H,D], k [B,Tk,H,D], v [B,Tk,H,V]: one floating dtype, one device; Tq = Tk when causal."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        check_floating(name, x)
        if x.ndim != 4:
            raise ValueError(f"{name} has shape {shape(x)}; accepted: four axes [batch, time, heads, width]")
    Q, K = q.shape, k.shape
    if Q[0] != K[0] or Q[2:] != K[2:]:
        raise _disagree("q and k must agree in batch, heads and width", q, k, v)
    if K[:3] != v.shape[:3]:
        raise _disagree("k and v must agree in batch, time and heads", q, k, v)
    if causal and Q[1] != K[1]:
        raise _disagree("causal attention needs as many queries as keys", q, k, v, "; use causal=False for cross")
    if Q[3] == 0:
        raise _disagree("q and k must be at least 1 wide", q, k, v)
    check_same("q", q, k=k, v=v)


def _disagree(wanted: str, q: Tensor, k: Tensor, v: Tensor, way_out: str = "") -> ValueError:
    return ValueError(f"{wanted}, but got q {shape(q)}, k {shape(k)}, v {shape(v)}{way_out}")


def check_token(axes: Sequence[str], **tensors: Tensor | None) -> None:
    """Check the inputs of a step: floating tensors with these axes, time not among them."""
    for name, x in tensors.items():
        if x is None:
            continue
        check_floating(name, x)
        if x.ndim != len(axes):
            accepted = f"{COUNTS[len(axes)]} [{', '.join(axes)}]"
            raise ValueError(f"{name} has shape {shape(x)}; a step accepts one token, {accepted}")


def check_step(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Check one token: q, k [B,H,D] and v [B,H,V]; the rest as `check_qkv`."""
    check_token(("batch", "heads", "width"), q=q, k=k, v=v)
    check_qkv(q[:, None], k[:, None], v[:, None])


def check_inputs(**tensors: Tensor | None) -> None:
    """Check for floating tensors on the device of the first; dtypes may differ, None is left out."""
    first, x = next(iter(tensors.items()))
    assert x is not None
    check_floating(first, x)
    del tensors[first]
    check_others(first, x, **tensors)


def check_others(first: str, x: Tensor, **others: Tensor | None) -> None:
    """Check for floating tensors on the device of `x`, which has been checked."""
    device = x.device
    for name, y in others.items():
        if y is None:
            continue
        check_floating(name, y)
        if y.device != device:
            raise ValueError(f"{first} is on {device} but {name} on {y.device}; use {name}.to({first}.device)")


def check_floating(name: str, x: Tensor) -> None:
    if not isinstance(x, Tensor):
        raise ValueError(f"{name} is a {type(x).__name__}; accepted: a torch.Tensor; use torch.as_tensor({name})")
    if not x.is_floating_point():
        raise ValueError(f"{name} has dtype {x.dtype}; accepted: a floating dtype; use {name}.float()")
    check_memory(**{name: x})


def check_memory(**tensors: Tensor | None) -> None:
    """Raise for a tensor that is not strided, or whose storage was freed: torch would read a null pointer."""
    for name, x in tensors.items():
        if x is None:
            continue
        if x.is_nested or x.layout != torch.strided:
            got = "nested" if x.is_nested else str(x.layout)
            way_out = f"torch.nested.to_padded_tensor({name}, 0.0) and a mask" if x.is_nested else f"{name}.to_dense()"
            raise ValueError(f"{name} has the layout {got}; accepted: a strided tensor; use {way_out}")
        if not torch.compiler.is_compiling() and freed(x):
            got = f"{name} {shape(x)} has no memory, its storage was freed"
            raise ValueError(f"{got}; accepted: a tensor with numbers; fill its storage again, or load it")


def check_same(first: str, x: Tensor, **others: Tensor) -> None:
    """Check that the others are on the device and in the dtype of `x`."""
    for name, y in others.items():
        if y.dtype != x.dtype:
            raise ValueError(
                f"{first} is {x.dtype} but {name} is {y.dtype}; accepted: one dtype; use {name}.to({first}.dtype)"
            )
        if y.device != x.device:
            raise ValueError(f"{first} is on {x.device} but {name} on {y.device}; use {name}.to({first}.device)")


def check_mask(mask: Tensor | None, batch: int, length: int, device: torch.device | None = None) -> None:
    """Check for [B,T] bool, True = real token. Numbers are refused: a NaN among them would count as real."""
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
    """Return the offsets [S+1] of a packed batch, 0 = c_0 <= c_1 <= ... <= c_S = T. Sequences may be empty."""
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
    """Return the factor on q.k: a finite number, or 1 / sqrt(D) for None."""
    if scale is None:
        return 1 / sqrt(head_dim)
    if not is_number(scale):
        raise ValueError(f"scale is {scale!r}; accepted: a finite number, or None for 1/sqrt({head_dim})")
    return float(scale)


def check_positions(start: Tensor, end: Tensor | None = None) -> None:
    """Raise StateError unless rows with `start` [B] tokens, and `end` [B] after this call, stay in bounds."""
    if torch.compiler.is_compiling() or start.is_meta or start.numel() == 0:
        return
    low, high = (int(x) for x in torch.aminmax(start))
    if low < 0 or high > LONGEST:
        worst = low if low < 0 else high
        raise StateError(f"position {worst} is out of range; accepted: 0 to {LONGEST} tokens that a row has seen")
    if end is not None and int(end.max()) > LONGEST:
        raise too_long(high)


def too_long(seen: int) -> StateError:
    """Return the error for a stream that has reached its maximum length."""
    return StateError(
        f"a stream has seen {seen} tokens and cannot continue; accepted: {LONGEST} tokens in all; begin a new stream"
    )


def check_chunk_size(chunk_size: int) -> None:
    whole("chunk_size", chunk_size, 1)


def widened(state: Any, kind: type[Any], dtype: torch.dtype = torch.float32) -> Any:
    """Return a state of this kind that is in half precision in the wider `dtype`, and any other unchanged.

    What does not fit is left for the checks to refuse. Gradients have the dtype in which the state was given.
    """
    if not isinstance(state, kind) or dtype not in WIDE:
        return state
    numbers = [x for x in state if isinstance(x, Tensor) and x.dtype != torch.bool]
    if not numbers or numbers[0].dtype not in NARROW or any(x.dtype != numbers[0].dtype for x in numbers):
        return state
    return kind._make([x.to(dtype) if isinstance(x, Tensor) and x.dtype != torch.bool else x for x in state])


def check_form(state: Any, kind: type[Any]) -> None:
    """Raise StateError unless `state` is of this class of state.py and its tensors fit what the class says of them."""
    if not isinstance(state, kind):
        raise StateError(f"the state is a {type(state).__name__}; accepted here: {kind.__name__}")
    fields = {name: x for name, x in state._asdict().items() if x is not None or name not in kind.optional}
    for name, x in fields.items():
        if not isinstance(x, Tensor):
            raise StateError(f"{kind.__name__}.{name} is a {type(x).__name__}; accepted: a torch.Tensor")
    got = f"{kind.__name__} has " + ", ".join(f"{n} {shape(x)} {x.dtype} on {x.device}" for n, x in fields.items())
    numbers = {name: x for name, x in fields.items() if name not in kind.flags}
    sizes: dict[str, int] = {}  # of each axis, as the first field that has it says
    if not all(_fits(x, kind.axes[name], sizes) for name, x in numbers.items()):
        raise StateError(f"{got}; accepted: {' and '.join(f'{name} [{kind.axes[name]}]' for name in numbers)}")
    first, *others = numbers.values()
    if first.dtype not in kind.dtypes or any(x.dtype != first.dtype for x in others):
        accepted = ", ".join(map(str, kind.dtypes))
        raise StateError(f"{got}; accepted: one dtype out of {accepted}; use state.to(dtype=...)")
    for name in kind.flags:
        if name in fields and not (fields[name].dtype == torch.bool and _fits(fields[name], kind.axes[name], sizes)):
            wanted = [sizes[axis] for axis in kind.axes[name].split(",")]
            raise StateError(f"{got}; accepted: a bool {name} [{kind.axes[name]}] = {wanted}")
    if any(x.device != first.device for x in fields.values()):
        raise StateError(f"{got}; accepted: one device; use state.to({str(first.device)!r})")
    check_memory(**{f"{kind.__name__}.{name}": x for name, x in fields.items()})


def _fits(x: Tensor, axes: str, sizes: dict[str, int]) -> bool:
    """Return True if x has these axes in the sizes known so far; the sizes of new ones are added."""
    letters = axes.split(",")
    return x.ndim == len(letters) and all(
        sizes.setdefault(letter, size) == size for letter, size in zip(letters, x.shape, strict=True)
    )


def shape(x: Tensor) -> str:
    if torch.compiler.is_compiling():  # a sentence that is not raised must neither break the graph nor fix a size in it
        return "[...]"
    return str(list(x.shape))
