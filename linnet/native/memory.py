"""Large outputs on memory that has been used before.

A fresh tensor of some MiB is fresh pages, and the first write to each of them is a page fault: at 32,000 tokens the faults
cost as much as the attention itself. Blocks of 1 MiB and more therefore come from a small pool of anonymous maps with
2 MiB pages. A tensor keeps its block alive; a block that only the pool still holds is handed out again. The pool keeps
at most `KEEP` bytes that nobody uses.
"""

from __future__ import annotations

import mmap
import sys
import threading
from math import prod

import torch
from torch import Tensor

SMALLEST = 1 << 20
PAGE = 2 << 20
KEEP = 256 << 20

_blocks: list[mmap.mmap] = []
_lock = threading.Lock()


def empty(*shape: int) -> Tensor:
    """torch.empty(*shape) in float32 on the cpu; from the pool when it is large."""
    count = prod(shape)
    if count * 4 < SMALLEST or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(shape)
    with _lock:
        block = _take(count * 4)
        return torch.frombuffer(block, dtype=torch.float32, count=count).view(shape)


def unused() -> list[mmap.mmap]:
    """The blocks no tensor holds, smallest first."""
    # Referenced by the pool, by the loop variable and by the argument of getrefcount.
    return sorted((block for block in _blocks if sys.getrefcount(block) <= 3), key=len)


def release() -> None:
    """Give every unused block back to the system."""
    with _lock:
        for block in unused():
            _blocks.remove(block)


def _take(size: int) -> mmap.mmap:
    free = unused()
    for block in free:
        if size <= len(block) <= 2 * size + PAGE:
            return block
    while free and sum(map(len, free)) + size > KEEP:
        _blocks.remove(free.pop())
    block = mmap.mmap(-1, -(-size // PAGE) * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block.madvise(mmap.MADV_HUGEPAGE)
    _blocks.append(block)
    return block
