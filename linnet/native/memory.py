"""Large outputs on memory that has been used before.

A new tensor of some MiB is new pages, and the first write to each of them is a page fault: at 32,000 tokens the faults
cost as much as the attention itself. Blocks of 128 KiB and more, which malloc would map again each time, come from a
pool of anonymous maps, with 2 MiB pages where they fit. A tensor keeps its block alive; the block returns to the pool
when the memory of the tensor is freed. The pool keeps at most `KEEP` unused bytes, a sixteenth of the machine.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import weakref
from math import prod

import torch
from torch import Tensor

from .gate import CPU

SMALLEST = 128 << 10
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h
SMALL_PAGE, LARGE_PAGE = 64 << 10, 2 << 20
KEEP = max(64 << 20, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 16) if hasattr(os, "sysconf") else 0

_floats: Tensor | None = None  # an empty tensor to make others like it
_unused: list[mmap.mmap] = []
_lock = threading.Lock()


def empty(*shape: int) -> Tensor:
    """Return torch.empty(*shape) in float32 on the cpu; from the pool when it is large."""
    count = prod(shape)
    if count * 4 < SMALLEST or not hasattr(mmap, "MADV_HUGEPAGE"):
        return fresh(*shape) if _floats is None else _floats.new_empty(shape)  # quicker than torch.empty
    with _lock:
        block = _take(count * 4)
    view = (ctypes.c_char * len(block)).from_buffer(block)
    # list.append needs no lock, which matters: the tensor may die inside a garbage collection that holds it.
    weakref.finalize(view, _unused.append, block).atexit = False
    return torch.frombuffer(view, dtype=torch.float32, count=count).view(shape)


def empty_like(x: Tensor) -> Tensor:
    """Return `empty` of the shape of `x`, a float32 tensor."""
    small = x.numel() * 4 < SMALLEST and x.is_contiguous()
    return torch.empty_like(x) if small else empty(*x.shape)  # quicker than by its shape


def fresh(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return torch.empty(*shape) on the cpu, whatever the default dtype and device are."""
    global _floats
    x = torch.empty(shape, dtype=dtype, device=CPU)
    if _floats is None and type(x) is Tensor and dtype == torch.float32:  # not a fake one
        _floats = x.new_empty(0)
    return x


def release() -> None:
    """Return every unused block to the system."""
    with _lock:
        _unused.clear()


def _take(size: int) -> mmap.mmap:
    page = SMALL_PAGE if size < LARGE_PAGE else LARGE_PAGE
    size = -(-size // page) * page
    for i, block in enumerate(_unused):
        if size <= len(block) <= size + size // 2:
            return _unused.pop(i)
    while _unused and sum(map(len, _unused)) + size > KEEP:
        _unused.remove(max(_unused, key=len))
    block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if page == LARGE_PAGE:
        block.madvise(mmap.MADV_HUGEPAGE)
    return block


def keep_freed() -> bool:
    """Make malloc keep what torch frees for the next tensor, instead of a map and its page faults for each.

    For programs that allocate the same tensors over and over, such as a training loop; the process keeps the most
    memory it ever had. glibc only; False elsewhere.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is None:
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, 1 << 30) and mallopt(M_TRIM_THRESHOLD, 2**31 - 1))
