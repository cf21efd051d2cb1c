"""Time one thread against several, on an idle machine and next to programs that use the same cores.

    ratio = median time on several threads / median time on one, turns of both alternating in one process

A team of threads waits for its slowest member. If every core also runs another program, a thread that waits by spinning
takes time that its own team needs; csrc/load.cpp detects that and lets threads sleep instead. "Spinning" is the same
call with that switched off. Competing programs are Python loops that end by themselves.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

from ...errors import unknown
from .checks import check_given, check_rounds, cores

TASKS = {
    "train": "a training step of the preset char-small, 4 x 256 characters",
    "decode float32": "a token of the preset mnist, batch 1, float32 weights",
    "decode int8": "a token of the preset mnist, batch 1, int8 weights",
}
FEWEST_ROUNDS = 3
MOST_COMPETITORS = 64
LIFETIME = 600.0  # seconds after which a competing program ends, even if this one was killed
TURN = 0.3  # seconds per turn on one thread; several time slices of the scheduler
WARM = 2  # untimed turns on several threads: the load is detected in the first
QUICK: dict[str, Any] = {"rounds": FEWEST_ROUNDS, "tasks": ("train", "decode float32")}
LOOP = """
import os, sys, time
end, parent = time.monotonic() + float(sys.argv[1]), int(sys.argv[2])
while time.monotonic() < end and os.getppid() == parent:
    for _ in range(100_000): pass
"""


@dataclass(frozen=True, kw_only=True)
class LoadSettings:
    """What to time, and how many programs compete."""

    tasks: tuple[str, ...] = tuple(TASKS)
    competitors: tuple[int, ...] = (0, 2)
    threads: int = min(2, cores())
    rounds: int = 12

    def __post_init__(self) -> None:
        for name in self.tasks:
            if name not in TASKS:
                raise unknown("task", name, TASKS)
        check_given(tasks=self.tasks, competitors=self.competitors)
        if not 2 <= self.threads <= cores():
            accepted = f"2 to {cores()}, the cores of this machine" if cores() > 1 else "none with one core"
            raise ValueError(f"--threads is {self.threads}; accepted: {accepted}")
        check_rounds(self.rounds, FEWEST_ROUNDS)
        for count in self.competitors:
            if not 0 <= count <= MOST_COMPETITORS:
                raise ValueError(f"--competitors has {count}; accepted: 0 to {MOST_COMPETITORS} programs")


@contextmanager
def competing(count: int) -> Iterator[None]:
    """Run `count` programs that never pause for the duration of the block."""
    command = [sys.executable, "-S", "-c", LOOP, str(LIFETIME), str(os.getpid())]
    programs = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
        for program in programs:
            program.wait()


def training() -> Callable[[], Any]:
    from .train import subject

    return subject("elu", 256, 1024, preset_name="char-small").step


def decoding(weights: str) -> Callable[[], Any]:
    import torch

    from .decode_race import native_engine, random_model

    engine = native_engine(random_model("mnist"), weights)
    return partial(engine.step, torch.zeros(1, dtype=torch.int64), rows=engine.add(rows=1))


def make(task: str) -> Callable[[], Any]:
    return training() if task == "train" else decoding(task.split()[1])


def race(settings: LoadSettings, task: str, call: Callable[[], Any], competitors: int) -> dict[str, Any]:
    """Return one row: a task next to `competitors` competing programs."""
    row: dict[str, Any] = {"task": task, "competitors": competitors, "threads": settings.threads}
    with competing(competitors):
        repeats = max(1, round(TURN / turn(call, 1, 1)))
        row["one"], row["several"], row["slept"] = pair(settings, call, repeats, "auto")
        _, row["spinning"], _ = pair(settings, call, repeats, "spin")
    return row


def pair(
    settings: LoadSettings, call: Callable[[], Any], repeats: int, how: str
) -> tuple[dict[str, float], dict[str, float], float]:
    """Return times on one thread, on several threads that wait as `how` says, and the share of turns that slept."""
    from ...native import library

    seconds: dict[int, list[float]] = {1: [], settings.threads: []}
    slept = 0
    for number in range(-WARM, settings.rounds):
        for threads in sorted(seconds, reverse=number % 2 == 1):
            with library.waiting(how):
                took = turn(call, threads, repeats)
                if number >= 0:
                    seconds[threads].append(took)
                    slept += threads > 1 and library.busy()
    one, several = ({"min_s": min(times), "median_s": median(times)} for times in seconds.values())
    several |= {"ratio": several["median_s"] / one["median_s"], "ratio_min": several["min_s"] / one["min_s"]}
    return one, several, slept / settings.rounds


def turn(call: Callable[[], Any], threads: int, repeats: int) -> float:
    """Return the seconds of a call on `threads` threads, after one untimed call."""
    import torch

    torch.set_num_threads(threads)
    call()
    start = perf_counter()
    for _ in range(repeats):
        call()
    return (perf_counter() - start) / repeats
