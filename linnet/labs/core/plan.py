"""Fit claims into a stated time: whole claims, cheap ones first, spread over the papers, and no start past the end.

    plan = make_plan(work, limit)        claims in the order to run them, and those for which no time is expected
    Limit(seconds, workers, pace)        the gate of the runner: a unit starts if the rest of a claim of its fits

A claim is judged only when all of its rows exist, so time goes to claims that can be finished. What has no time is "not
run", with its cost; the same command continues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from math import ceil
from time import monotonic
from typing import NamedTuple

from ...errors import ArgumentError
from .claim import Unit
from .pace import Pace
from .results import key
from .runner import Gate

MINUTES = {"quick": 8.0}  # unless --minutes is given; the other budgets take the time they need
OVERTIME = 1 / 8  # of the limit, after which units that still run are ended
RESERVE = 10.0  # seconds kept for starting workers and for writing the page


def check_minutes(minutes: str | float | None, budget: str) -> float | None:
    """Return the limit of a run in minutes, from a number or text; None where there is none."""
    if minutes is None:
        return MINUTES.get(budget)
    try:
        value = float(minutes)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        accepted = f"a number above 0, such as {MINUTES['quick']:g}"
        raise ArgumentError("minutes", minutes, accepted, "rows are kept, and the same command continues")
    return value


@dataclass(frozen=True)
class Work:
    """The units of a claim whose rows are missing."""

    name: str
    paper: str
    units: tuple[Unit, ...]


class Limit(Gate):
    """Admits a unit while the rest of a claim that needs it is expected to end in time, and learns the pace."""

    def __init__(
        self,
        seconds: float,
        workers: int = 1,
        pace: Pace | None = None,
        clock: Callable[[], float] = monotonic,
        began: float | None = None,
    ) -> None:
        super().__init__(clock)
        self.total, self.workers, self.pace = seconds, workers, pace or Pace()
        self.began = clock() if began is None else began
        self.open: dict[str, dict[str, Unit]] = {}

    def expect(self, work: Iterable[Work]) -> None:
        """Receive the claims that are to run."""
        self.open = {one.name: {unit_key(unit): unit for unit in one.units} for one in work}

    def left(self) -> float:
        """Return the seconds left."""
        return self.total - (self.clock() - self.began)

    def room(self) -> float:
        """Return the seconds left for work."""
        return self.left() - min(RESERVE, self.total / 10)

    def admit(self, unit: Unit) -> bool:
        this = unit_key(unit)
        asking = [name for name, units in self.open.items() if this in units]
        if not any(self.cost(self.open[name].values()) <= self.room() for name in asking):
            for name in asking:
                del self.open[name]
            return False
        for name in asking:
            del self.open[name][this]
        return True

    def finished(self, unit: Unit, seconds: float) -> None:
        self.pace.note(unit, seconds)

    def remaining(self) -> float:
        return max(0.0, self.left() + self.total * OVERTIME)

    def cost(self, units: Iterable[Unit]) -> float:
        """Return the wall clock expected of units on this machine."""
        return wall_clock(list(units), self.workers, self.pace)


class Plan(NamedTuple):
    """Claims in the order to run them: those expected to fit, and those not."""

    fits: list[Work]
    later: list[Work]


def make_plan(work: Sequence[Work], limit: Limit) -> Plan:
    """Return the claims that fit into the time left, taken paper by paper, each time the cheapest one left.

    Units that two claims share count once. A claim that is too long does not keep later, shorter ones out.
    """
    planned: dict[str, Unit] = {}
    plan, room = Plan([], []), limit.room()
    for one in in_turn(work, limit):
        more = {unit_key(unit): unit for unit in one.units}
        if limit.cost((planned | more).values()) <= room:
            planned |= more
            plan.fits.append(one)
        else:
            plan.later.append(one)
    return plan


def in_turn(work: Sequence[Work], limit: Limit) -> list[Work]:
    """Return the claims by cost within their paper, the papers taking turns; the paper of the cheapest begins."""
    by_paper: dict[str, list[Work]] = {}
    for one in sorted(work, key=lambda one: limit.cost(one.units)):
        by_paper.setdefault(one.paper, []).append(one)
    longest = max(map(len, by_paper.values()), default=0)
    return [claims[turn] for turn in range(longest) for claims in by_paper.values() if turn < len(claims)]


def distinct(work: Iterable[Work]) -> list[Unit]:
    """Return the units of claims in their order, each once; within a claim the long ones first."""
    units: dict[str, Unit] = {}
    for one in work:
        for unit in sorted(one.units, key=lambda unit: -unit.seconds):
            units.setdefault(unit_key(unit), unit)
    return list(units.values())


def unit_key(unit: Unit) -> str:
    """Return what tells a unit from others: two claims that share a row share its unit."""
    return key(unit.configs[0])


def wall_clock(units: Sequence[Unit], workers: int, pace: Pace) -> float:
    """Return the expected seconds of units: timings one by one, the others on all workers, the longest first."""
    timings = sum(pace.seconds(unit) for unit in units if unit.alone)
    free = [0.0] * workers
    heapify(free)
    for seconds in sorted((pace.seconds(unit) for unit in units if not unit.alone), reverse=True):
        heapreplace(free, free[0] + seconds)
    return timings + max(free)


class Postponed(NamedTuple):
    """A claim without time: its seconds on this machine, and the --minutes of a run that reaches it."""

    seconds: float
    minutes: int


def postponed(work: Sequence[Work], limit: Limit) -> dict[str, Postponed]:
    """Return the claims that are left, in the order in which the same command would run them."""
    records: dict[str, Postponed] = {}
    spent, least = limit.total - limit.left() + RESERVE, int(limit.total / 60) + 1
    order = in_turn(work, limit)
    for count, one in enumerate(order, 1):
        minutes = ceil((spent + limit.cost(distinct(order[:count]))) / 60)
        records[one.name] = Postponed(round(limit.cost(one.units), 1), max(minutes, least))
    return records


def reason(time: Mapping[str, float]) -> str:
    """Return why a claim was not run, from its record in the folder."""
    return f"no time left: about {spoken(time['seconds'])} more: --minutes {time['minutes']:g}"


def spoken(seconds: float) -> str:
    """Return a time in words: 40 seconds, 2 minutes."""
    if seconds < 90:
        return f"{max(10, ceil(seconds / 10) * 10)} seconds"
    return f"{round(seconds / 60)} minutes"
