"""How fast this machine is now, compared with the quiet two cores on which `Unit.seconds` were taken.

    pace = measure(workers)      as many processes as workers run a small workload at once: a busy core is a slow one
    pace.seconds(unit)           expected here; every unit that finishes corrects it, its own experiment's most

A pace of 2 means that work takes twice its expected seconds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from time import perf_counter
from typing import Any, NamedTuple

from .claim import Unit
from .results import Row
from .runner import results

# Steps of `Workload` per second where Unit.seconds hold: in each of two processes, and in one with two threads
SHARED, ALONE = 155.0, 236.0
PROBE = 1.5  # seconds of each measurement
WARM = 3  # steps before it counts
PRIOR = 30.0  # expected seconds of finished work that weigh as much as the measurement
OWN = 10.0  # expected seconds of an experiment's finished work that weigh as much as all other experiments
SLOWEST = 20.0  # a measured pace beyond this is an accident of the moment


class Seconds(NamedTuple):
    """Finished work: its wall clock, and what was expected of it."""

    actual: float = 0.0
    expected: float = 0.0

    def added(self, actual: float, expected: float) -> Seconds:
        return Seconds(self.actual + actual, self.expected + expected)

    def pace(self, before: float, weight: float) -> float:
        """Return actual over expected, drawn towards `before` by its weight in expected seconds."""
        return (before * weight + self.actual) / (weight + self.expected)


class Pace:
    """The pace of work that shares the cores with other units, and of work that has them alone."""

    def __init__(self, shared: float = 1.0, alone: float = 1.0) -> None:
        self.measured = {False: shared, True: alone}
        self.finished: dict[Any, Seconds] = {}

    def note(self, unit: Unit, seconds: float) -> None:
        """Learn from a unit that finished."""
        for group in (unit.alone, (unit.alone, experiment(unit))):
            self.finished[group] = self.finished.get(group, Seconds()).added(seconds, unit.seconds)

    def of(self, unit: Unit) -> float:
        """Return the pace of this unit's experiment, as far as it is known."""
        everything = self.overall(unit.alone)
        return self.finished.get((unit.alone, experiment(unit)), Seconds()).pace(everything, OWN)

    def overall(self, alone: bool = False) -> float:
        """Return the pace of all work of a kind."""
        return self.finished.get(alone, Seconds()).pace(self.measured[alone], PRIOR)

    def seconds(self, unit: Unit) -> float:
        """Return the wall clock expected of a unit on this machine."""
        return unit.seconds * self.of(unit)


def experiment(unit: Unit) -> str:
    """Return the experiment of a unit's rows."""
    return str(unit.configs[0].get("experiment", ""))


def measure(workers: int | str) -> Pace:
    """Return the pace of this machine under its present load, in a few seconds; 1 for a cluster, which is elsewhere."""
    if workers == "ray":
        return Pace()
    probes = [Probe()] * int(workers)
    rates = [done.row["rate"] for done in results(probes, probe, workers) if done.row is not None]
    alone = [done.row["rate"] for done in results([Probe()], probe, 1, os.cpu_count() or 1) if done.row is not None]
    return Pace(relative(SHARED, rates), relative(ALONE, alone))


def relative(reference: float, rates: list[float]) -> float:
    """Return how many times slower than the reference the mean rate is; 1 where none could be taken."""
    mean = sum(rates) / len(rates) if rates else reference
    return min(reference / max(mean, reference / SLOWEST), SLOWEST)


class Probe(NamedTuple):
    """A measurement of `seconds` in one worker."""

    seconds: float = PROBE

    def __str__(self) -> str:
        return "the speed of this machine"


def probe(what: Probe) -> Iterator[Row]:
    """Yield the rate of the workload in steps per second; the runner calls this in every worker."""
    work = Workload()
    for _ in range(WARM):
        work.step()
    steps, began = 0, perf_counter()
    while (taken := perf_counter() - began) < what.seconds or not steps:
        work.step()
        steps += 1
    yield {"rate": steps / taken if taken > 0 else SHARED}


class Workload:
    """What most units do: a training step of a small attention layer in torch, and an op of the native library."""

    BATCH, TOKENS, HEADS, WIDTH = 16, 64, 2, 32

    def __init__(self) -> None:
        import torch

        draw = torch.Generator().manual_seed(0)
        d = self.HEADS * self.WIDTH
        self.x = torch.randn(self.BATCH, self.TOKENS, d, generator=draw)
        self.weights = [torch.randn(d, n * d, generator=draw).div_(8).requires_grad_() for n in (3, 4)]
        self.optimizer = torch.optim.Adam(self.weights, lr=1e-4)

    def step(self) -> None:
        """Train for one step, then attend without gradients."""
        import torch

        from ...ops.linear.attention import linear_attention

        split = (self.BATCH, self.TOKENS, self.HEADS, 3 * self.WIDTH)
        q, k, v = (self.x @ self.weights[0]).view(split).chunk(3, dim=-1)
        scores = torch.softmax(torch.einsum("bthd,bshd->bhts", q, k), dim=-1)
        mixed = torch.einsum("bhts,bshd->bthd", scores, v).reshape(self.x.shape)
        loss = torch.nn.functional.gelu((self.x + mixed) @ self.weights[1]).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        with torch.no_grad():
            linear_attention(q.detach(), k.detach(), v.detach())
