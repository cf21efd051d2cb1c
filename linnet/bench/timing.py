"""Timing: competitors take turns, round after round, with an sgemm in every round; and what a call adds to memory.

    one round = every call once (very short ones several times), each round starting with another competitor

A neighbour that slows the machine down slows a whole round; the minimum over the rounds is the machine at rest, and the
median beside it says how noisy the run was. The sgemm rate of the same rounds is the unit of "per cent of sgemm".
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch

from ..native import memory

SHORTEST = 2e-3  # seconds: what is shorter is repeated within its turn
MOST = 500  # repetitions
SGEMM = 1024
RESET = Path("/proc/self/clear_refs")
STATUS = Path("/proc/self/status")
MEMINFO = Path("/proc/meminfo")


def interleave(
    calls: Mapping[str, Callable[[], Any]], rounds: int, *, shortest: float = SHORTEST, warm: int = 0
) -> dict[str, list[float]]:
    """Seconds per call, one number for each round; a turn begins with `warm` calls that do not count."""
    repeats = {name: _repeats(call, shortest) for name, call in calls.items()}
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for turn in range(rounds):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            _timed(calls[name], warm)
            seconds[name].append(_timed(calls[name], repeats[name]))
    return seconds


def _repeats(call: Callable[[], Any], shortest: float) -> int:
    once = _timed(call, 1)  # also the warm-up
    if once >= shortest:
        return 1
    return max(1, min(MOST, round(shortest / _timed(call, 3))))


def _timed(call: Callable[[], Any], repeats: int) -> float:
    start = perf_counter()
    for _ in range(repeats):
        call()  # the result is dropped here, so its memory may serve the next call
    return (perf_counter() - start) / max(repeats, 1)


def sgemm(size: int = SGEMM) -> Callable[[], Any]:
    a, b, out = torch.randn(size, size), torch.randn(size, size), torch.empty(size, size)
    return lambda: torch.mm(a, b, out=out)


def sgemm_rate(seconds: float, size: int = SGEMM) -> float:
    """Flops per second."""
    return 2.0 * size**3 / seconds


def summary(seconds: list[float]) -> dict[str, Any]:
    return {"min_s": min(seconds), "median_s": median(seconds), "rounds": len(seconds)}


def extra_memory(call: Callable[[], Any]) -> tuple[Any, int | None]:
    """The result of a call, and by how many bytes the process grew at the worst moment of it, results included.

    Free memory goes back to the system first, so memory that is used again counts too; the kernel's own high-water mark
    is reset and read (Linux; None elsewhere). Good to about 0.3 MiB.
    """
    memory.release()
    _trim()
    before = peak_from_now()
    result, after = call(), peak()
    return result, None if before is None or after is None else max(0, after - before)


def peak_from_now() -> int | None:
    """Resident bytes of this process, from which its high-water mark is counted from now on; None where not told."""
    try:
        RESET.write_text("5")
    except OSError:
        return None
    return _field(STATUS, "VmRSS")


def peak() -> int | None:
    """The most resident bytes since `peak_from_now`, or since the process began."""
    return _field(STATUS, "VmHWM")


def _trim() -> None:
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc
    if trim is not None:
        trim(0)


def available_memory() -> int | None:
    """Bytes the system could still give, where it says so."""
    return _field(MEMINFO, "MemAvailable")


def _field(path: Path, field: str) -> int | None:
    """Bytes of a line such as "VmRSS:   1234 kB"; None where the system has no such file or line."""
    for line in path.read_text().splitlines() if path.is_file() else ():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    return None
