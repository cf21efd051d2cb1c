"""Every test runs on one torch thread, memory that was never written is full of NaN, and extents are verified.

An output that a kernel forgot to write then fails its comparison, instead of passing on a lucky zero. Covered: all that
torch allocates without writing it (empty, empty_like, new_empty, empty_strided, resize_; integers get their largest
value, bytes 255, which four by four are NaN too) and the pool of linnet/native/memory.py. What the kernels allocate
themselves is filled by `./run test --sanitize`. And a call that would read out of bounds raises an error (LINNET_CHECK,
linnet/native/gate.py), also in the processes that tests start.
"""

from __future__ import annotations

import os

os.environ.setdefault("LINNET_CHECK", "1")  # read when linnet is imported

import mmap

import torch
from hypothesis import settings

from linnet.native import memory

take = memory._take


def take_unwritten(size: int) -> mmap.mmap:
    """A block of the pool, all bits set: NaN in every floating dtype, also where an earlier tensor left its numbers."""
    block = take(size)
    torch.frombuffer(block, dtype=torch.uint8).fill_(255)
    return block


def pytest_configure() -> None:
    torch.set_num_threads(1)
    memory._take = take_unwritten
    # A busy machine is no failure: hypothesis would count an example of more than 200 ms as one.
    settings.register_profile("linnet", deadline=None)
    settings.load_profile("linnet")
    # "warn" turns deterministic mode on, and with it the NaN filling; unlike use_deterministic_algorithms it does not
    # import torch's compiler. Operations without a deterministic version warn, and warnings are errors here.
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.set_deterministic_debug_mode("warn")
