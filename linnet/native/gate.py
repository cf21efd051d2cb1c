"""The gate to native code: a tensor becomes an address here and nowhere else, in a form that the kernels can read.

    dense(x)            contiguous, of one dtype, with no negation pending; x itself if it is all that already
    strided(x)          the same, but read in place by its strides: only the last axis must be contiguous
    addresses(tensors)  where their numbers are, or one sentence for a tensor that has none in this machine's memory

A kernel trusts the sizes and strides that it is given. With LINNET_CHECK=1 in the environment, or after
`set_check(True)`, every call first compares them with the tensors that it points to: `verify` raises RuntimeError with
the argument, the bytes needed and the bytes there. Off, which is the default, this costs one test of a flag per call.
With LINNET_CHECK=values the sequence ops also refuse numbers that are not finite where the past is not guarded against
them (refuse_unguarded in ops/causal.py).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import prod
from typing import Any, TypeVar

import torch
from torch import Tensor

CPU = torch.device("cpu")  # named wherever memory is allocated: the user may change the default device and dtype
CHECK = os.environ.get("LINNET_CHECK", "0") not in ("", "0")
VALUES = os.environ.get("LINNET_CHECK") == "values"
PLAIN = (Tensor, torch.nn.Parameter)  # classes that stand for nothing but their own numbers
ALIGNED = 3  # bits of an address that float32 leaves 0

T = TypeVar("T", Tensor, "Tensor | None")


class Unreadable(ValueError):
    """A tensor that has no numbers for a kernel; the sentence says why."""


def set_check(on: bool) -> bool:
    """Turn the verification of every call on or off; return what it was."""
    global CHECK
    before, CHECK = CHECK, bool(on)
    return before


def dense(x: T, dtype: torch.dtype = torch.float32) -> T:
    """Return `x` as kernels read it where they take no strides; None stays None."""
    if x is None:
        return x
    try:
        if x.is_neg():  # a view such as c.conj().imag: its memory holds the numbers with the other sign
            x = x.resolve_neg()
        return x.contiguous() if x.dtype is dtype else x.to(dtype).contiguous()
    except (RuntimeError, NotImplementedError) as error:
        raise _refused(x) from error


def strided(x: Tensor) -> Tensor:
    """Return float32 with a last stride of 1: the tensor itself if it is that already."""
    try:
        if x.dtype is torch.float32 and x.stride(-1) == 1 and not x.is_neg():
            return x
        if x.is_neg():
            x = x.resolve_neg()
        if x.dtype is not torch.float32:
            x = x.float()
        return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()
    except (RuntimeError, NotImplementedError) as error:
        raise _refused(x) from error


def addresses(tensors: Sequence[Tensor | None]) -> list[int]:
    """Return where each of these begins; 0 for None. The caller keeps them alive as long as the addresses are used."""
    try:
        return [
            0 if x is None else at if (at := x.data_ptr()) and not at & ALIGNED else _unusual(x, at) for x in tensors
        ]
    except RuntimeError as error:
        raise _refused(*tensors) from error


def address(x: Tensor | None) -> int:
    return addresses((x,))[0]


def in_memory(*tensors: Tensor | None) -> bool:
    """Return True when all have an address: none is a stand-in of a vmap over a backward pass, none lazily zero."""
    try:
        addresses(tensors)
    except Unreadable:
        return False
    return True


def ordinary(*tensors: Tensor | None) -> bool:
    """Return True for dense float32 tensors in the memory of the CPU; None counts as one."""
    for t in tensors:
        if t is None:
            continue
        if not (type(t) in PLAIN and t.dtype is torch.float32 and t.is_cpu and t.layout is torch.strided):
            return False
        if t.is_nested or not t.data_ptr():  # nested, empty or freed
            return False
    return True


def freed(x: Tensor) -> bool:
    """Return True for tensors whose memory was freed (`untyped_storage().resize_(0)`); False for stand-ins."""
    try:
        if x.data_ptr() or type(x) not in PLAIN or not x.is_cpu:
            return False
    except RuntimeError:
        return False
    return x.numel() > 0 and not x._is_zerotensor() and not torch._is_functional_tensor(x)


def aligned(size: int) -> Tensor:
    """Return `size` bytes on a 64-byte boundary."""
    memory = torch.empty(size + 64, dtype=torch.uint8, device=CPU)
    start = -address(memory) % 64
    return memory[start : start + size]


def _unusual(x: Tensor, at: int) -> int:
    """Return the address of an empty tensor, or of bytes; otherwise raise Unreadable."""
    if x.numel() == 0 or (at and at % x.element_size() == 0):
        return at
    raise _refused(x)


def _refused(*tensors: Tensor | None) -> Unreadable:
    """Return the error for the first of these that has no numbers for a kernel."""
    for x in tensors:
        if x is not None and (why := _reason(x)):
            return Unreadable(f"the native kernels cannot read {why}; give a plain copy, as x.to_dense().clone() is")
    return Unreadable("the native kernels cannot read one of these tensors; give plain copies, as x.clone() is")


def _reason(x: Tensor) -> str | None:
    kind = f"a {type(x).__name__} of {x.dtype}"
    if x.is_nested or x.layout != torch.strided:
        return f"{kind} in the layout {'nested' if x.is_nested else x.layout}, only strided ones"
    if x.device.type != "cpu":
        return f"{kind} on {x.device}, only on the cpu"
    try:
        at = x.data_ptr()
    except RuntimeError:
        return f"{kind} that is a transform's stand-in (vmap, grad, jvp) and has no memory"
    if not at and x.numel():
        return f"{kind} whose memory is not allocated (fake, functional, freed or lazily zero)"
    if at % x.element_size():
        return f"{kind} at an address that is not a multiple of {x.element_size()} bytes"
    return None


# ---- verification, for LINNET_CHECK ---------------------------------------------------------------------------------


def verify(
    where: str, x: Any, shape: Sequence[int], dtype: torch.dtype = torch.float32, strides: Sequence[int] | None = None
) -> None:
    """Raise RuntimeError unless `x` holds `shape` numbers of `dtype` with these `strides` (None: contiguous)."""
    if x is None:
        return
    strides = contiguous_strides(shape) if strides is None else strides
    if x.dtype != dtype or x.device.type != "cpu" or x.is_neg():
        got = f"{'negated ' if x.is_neg() else ''}{x.dtype} on {x.device}"
        raise RuntimeError(f"{where} is {got}; the kernel reads {dtype} on cpu")
    need = extent(shape, strides) * dtype.itemsize
    there = x.untyped_storage().nbytes() - x.storage_offset() * dtype.itemsize
    if need > there:
        raise RuntimeError(f"{where} needs {need} bytes from its address on, and its storage has {there} there")
    lies, given = _steps(x.shape, x.stride()), _steps(shape, strides)
    if lies != given and need:
        raise RuntimeError(f"{where} lies as {lies} (size, stride) in memory, and the kernel is given {given}")


def verify_bytes(where: str, need: int, there: int | None) -> None:
    """Do the same for an address in a struct; `there` None: it belongs to none of the tensors kept for the struct."""
    if there is None or need > there:
        got = "it belongs to no tensor of this call" if there is None else f"its storage has {there} there"
        raise RuntimeError(f"{where} needs {need} bytes from its address on, and {got}")


def room(x: Tensor) -> int:
    """Return the bytes that the storage of `x` has from its first number on."""
    return int(x.untyped_storage().nbytes() - x.storage_offset() * x.element_size())


def extent(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Return how many numbers there are from the first one touched to the last, both included."""
    return 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) if prod(shape) else 0


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))


def _steps(shape: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    return [(n, step) for n, step in zip(shape, strides, strict=True) if n != 1]
