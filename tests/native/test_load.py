"""How threads wait for each other: as the load says, with the same bits either way, wherever the library is used."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep

import pytest
import torch
from torch import Tensor

from linnet.native import library
from linnet.native.matmul import matmul, pack
from linnet.ops import linear_attention

pytestmark = [
    pytest.mark.skipif(library.library() is None, reason="no native library"),
    pytest.mark.skipif(sys.platform != "linux" or not library.info()["openmp"], reason="OpenMP on Linux only"),
]
TASKS = Path("/proc/self/task")


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def attention() -> Tensor:
    q, k, v = torch.randn(3, 2, 128, 4, 32, generator=torch.Generator().manual_seed(0))
    return linear_attention(q, k, v, backend="native")[0]


def product() -> Tensor:
    torch.manual_seed(1)
    return matmul(pack(torch.randn(96, 64), kind="int8"), torch.randn(5, 64))


def decoded() -> Tensor:
    from linnet.generate import open_engine
    from linnet.models import build, preset

    torch.manual_seed(2)
    engine = open_engine(build(preset("char-small", vocab_size=32)).eval(), backend="native")
    rows = engine.add(rows=2)
    return torch.stack([engine.step(torch.tensor([i, 3]), rows=rows) for i in range(4)])


@pytest.mark.parametrize("work", [attention, product, decoded])
def test_sleeping_and_spinning_threads_give_the_same_bits(work: Callable[[], Tensor]) -> None:
    expected = work()
    for how in ("sleep", "spin", "auto"):
        for threads in (1, 2, 3, 4):
            torch.set_num_threads(threads)
            with library.waiting(how):
                assert torch.equal(work(), expected), (how, threads)


def test_a_parked_thread_comes_and_goes() -> None:
    attention()
    with library.waiting("spin"):
        before = len(list(TASKS.iterdir()))
        with library.waiting("sleep"):
            assert library.busy()
            attention()
            torch.randn(300, 300) @ torch.randn(300, 300)
            assert len(list(TASKS.iterdir())) > before
    with library.waiting("spin"):
        assert not library.busy()
        end = monotonic() + 60  # libgomp's own workers leave after the parked thread, in their own time
        while len(list(TASKS.iterdir())) > before and monotonic() < end:
            sleep(0.01)
        assert len(list(TASKS.iterdir())) <= before


def test_an_unknown_way_is_refused() -> None:
    with pytest.raises(ValueError, match="waiting is 'nap'; accepted: auto, spin, sleep"), library.waiting("nap"):
        pass


def test_several_threads_call_while_the_way_changes() -> None:
    expected, wrong = attention(), []

    def call() -> None:
        wrong.extend(0 for _ in range(20) if not torch.equal(attention(), expected))

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    for how in ("sleep", "spin", "auto", "sleep"):
        with library.waiting(how):
            torch.set_num_threads(3)
    for caller in callers:
        caller.join()
    assert not wrong


def run(code: str) -> str:
    """The last line that such a program prints; it must end by itself, and well."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert found.returncode == 0, found.stderr
    return found.stdout.splitlines()[-1]


CROWDED = """
import os, torch
from linnet.native import library
from linnet.native.matmul import matmul, pack
weights, x = pack(torch.randn(1024, 256)), torch.randn(64, 256)
expected = matmul(weights, x)
os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1])
torch.set_num_threads(2)
matmul(weights, x)
for task in os.listdir("/proc/self/task"):
    os.sched_setaffinity(int(task), os.sched_getaffinity(0))
for _ in range(100_000):
    assert torch.equal(matmul(weights, x), expected)
    if library.busy():
        break
print(library.busy())
"""


def test_two_threads_on_one_core_are_noticed() -> None:
    """The process starts with all cores and keeps one: each thread takes the time the other needs."""
    assert run(CROWDED) == "True"


FORKED = """
import os, torch
from linnet.native import library
from linnet.native.matmul import matmul, pack
torch.set_num_threads(2)
weights, x = pack(torch.randn(64, 64)), torch.randn(4, 64)
expected = matmul(weights, x)
with library.waiting("sleep"):
    child = os.fork()
    if not child:
        torch.set_num_threads(1)  # the threads of OpenMP stay behind, as ever
        same = torch.equal(matmul(weights, x), expected)
        with library.waiting("spin"), library.waiting("sleep"):
            same = same and library.busy()
        os._exit(0 if same else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), library.busy())
    library.waiting("sleep").__enter__()  # and ends like that
"""


def test_a_forked_child_and_the_end_of_the_process() -> None:
    assert run(FORKED) == "0 True"
