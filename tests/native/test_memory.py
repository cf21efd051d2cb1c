"""The pool of large outputs: memory comes back when the last tensor on it dies, never before."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import pytest
import torch

from linnet.native import gate, memory

MEGA = 1 << 20


@pytest.fixture(autouse=True)
def fresh_pool() -> None:
    gc.collect()
    memory.release()


def test_memory_that_was_never_written_is_nan_in_tests() -> None:
    """What tests/conftest.py promises: without it an output that a kernel skips may compare equal by luck."""
    x = torch.zeros(3)
    small = (torch.empty(3), torch.empty_like(x), x.new_empty(3), torch.empty_strided((3,), (1,)), memory.fresh(3))
    for unwritten in (*small, x.clone().resize_(9)[3:], memory.empty(MEGA), gate.aligned(64).view(torch.float32)):
        assert unwritten.isnan().all()
    memory.empty(MEGA).zero_()
    assert len(memory._unused) > 0, "the next tensor is given used memory"
    assert memory.empty(MEGA).isnan().all()
    assert torch.empty(3, dtype=torch.int64).eq(torch.iinfo(torch.int64).max).all()


@pytest.mark.skipif(os.environ.get("LINNET_CHECK") == "0", reason="turned off in the environment")
def test_extents_are_verified_in_tests() -> None:
    assert gate.CHECK


def test_small_tensors_are_ordinary() -> None:
    assert memory.empty(3, 5).shape == (3, 5)
    assert not memory._unused


def test_a_block_is_used_again_only_when_nothing_holds_it() -> None:
    a = memory.empty(2, MEGA)
    address, view = a.data_ptr(), a[1, 5:9]
    a.fill_(1.0)
    del a
    b = memory.empty(2, MEGA)
    assert b.data_ptr() != address, "a view still holds the first block"
    b.fill_(2.0)
    assert view.eq(1.0).all()
    array = view.numpy()
    del view
    assert memory.empty(2, MEGA).data_ptr() != address, "a numpy array still holds it"
    del array
    assert memory.empty(2, MEGA).data_ptr() in (address, b.data_ptr()) or memory._unused


def test_a_freed_block_comes_back() -> None:
    a = memory.empty(MEGA)
    address = a.data_ptr()
    del a
    assert len(memory._unused) == 1
    b = memory.empty(MEGA - 7)
    assert b.data_ptr() == address
    assert not memory._unused


def test_gradients_keep_their_memory() -> None:
    x = torch.zeros(MEGA, requires_grad=True)
    g = memory.empty(MEGA).fill_(3.0)
    (x * 1.0).backward(g)
    del g
    assert x.grad is not None
    other = memory.empty(MEGA).fill_(5.0)
    assert x.grad.eq(3.0).all()
    assert other.eq(5.0).all()


def test_the_pool_keeps_no_more_than_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "KEEP", 24 * MEGA)
    held = [memory.empty(2 * MEGA) for _ in range(6)]  # 8 MiB each
    held.clear()
    last = memory.empty(4 * MEGA)
    assert last.numel() == 4 * MEGA
    assert sum(map(len, memory._unused)) <= memory.KEEP


def test_kept_memory_is_not_faulted_in_again() -> None:
    """In a process of its own: the setting stays for the life of one."""
    code = """
import resource, torch
from linnet.native import memory
PAIRS, FLOATS = 20, 10 << 20
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(PAIRS):
        pair = [torch.ones(FLOATS), torch.ones(FLOATS)]
        del pair
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
before, kept = faults(), memory.keep_freed()
torch.ones(2 * FLOATS)
faults()
pages = PAIRS * 2 * FLOATS * 4 // resource.getpagesize()
print(pages, before, faults() if kept else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    pages, before, after = map(int, done.stdout.split())
    if before < pages / 4:
        pytest.skip("this system maps large pages, or keeps memory, without being told")
    assert after < before / 10
