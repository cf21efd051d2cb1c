"""Interleaved timing: competitors take turns, round after round, with an sgemm in every round.

    one round = every call once (very short ones several times), each round starting with another competitor

Another program slows down a whole round; the minimum over the rounds is the machine at rest, and the median shows how
noisy the run was. The sgemm rate of the same rounds is the unit of "per cent of sgemm".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from time import perf_counter
from typing import Any

import torch

from ...native.process_memory import available_memory as available_memory
from ...native.process_memory import extra_memory as extra_memory

SHORTEST = 2e-3  # seconds: shorter calls are repeated within their turn
MOST = 500  # repetitions
SGEMM = 1024


def interleave(
    calls: Mapping[str, Callable[[], Any]], rounds: int, *, shortest: float = SHORTEST, warm: int = 0
) -> dict[str, list[float]]:
    """Return seconds per call, one number per round; a turn begins with `warm` untimed calls."""
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
        call()  # the result is dropped here, so that its memory can be reused
    return (perf_counter() - start) / max(repeats, 1)


def sgemm(size: int = SGEMM) -> Callable[[], Any]:
    a, b, out = torch.randn(size, size), torch.randn(size, size), torch.empty(size, size)
    return lambda: torch.mm(a, b, out=out)


def sgemm_rate(seconds: float, size: int = SGEMM) -> float:
    """Return flops per second."""
    return 2.0 * size**3 / seconds


def summary(seconds: list[float]) -> dict[str, Any]:
    return {"min_s": min(seconds), "median_s": median(seconds), "rounds": len(seconds)}
