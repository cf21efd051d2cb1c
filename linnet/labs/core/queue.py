"""The work of a run without a limit of time, as it becomes ready: a unit may wait for the rows of others.

    for unit in Queue(work): ...       the next unit that is missing and does not wait, taken when a worker is free

Claims in the order of the seconds that their first open stage still needs, so that what can be decided first is decided
first. `work` is asked again every time, because a finished row may change what is left.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from .claim import Unit
from .plan import Limit, Work, unit_key
from .runner import Gate

AUTOGROUP = Path("/proc/self/autogroup")
NICE = 19  # the lowest priority: a run of hours yields to everything else


class Queue(Iterator[Unit]):
    """Yields every unit once; when nothing is ready it stops, and continues when asked again later."""

    def __init__(self, work: Callable[[], Sequence[Work]]) -> None:
        self.work, self.given = work, set[str]()

    def __next__(self) -> Unit:
        work = sorted(self.work(), key=lambda one: next_stage(one.units))
        for later in (False, True):  # the first open stage of every claim before a later one of any
            for one in work:
                first = min(unit.stage for unit in one.units)
                for unit in one.units:
                    if (unit.stage > first) == later and not unit.waits and unit_key(unit) not in self.given:
                        self.given.add(unit_key(unit))
                        return unit
        raise StopIteration


class Deadline(Gate):
    """Starts units until the time of a limit is over, and ends those that run an eighth longer; all rows are kept."""

    def __init__(self, limit: Limit) -> None:
        super().__init__(limit.clock)
        self.limit = limit

    def admit(self, unit: Unit) -> bool:
        return self.limit.left() > 0

    def remaining(self) -> float:
        return self.limit.remaining()


def next_stage(missing: Sequence[Unit]) -> float:
    """Return the expected seconds that the first open stage of a claim still needs."""
    stage = min(unit.stage for unit in missing)
    return sum(unit.seconds for unit in missing if unit.stage == stage)


def lower_priority() -> None:
    """Give this process and those that it starts the lowest priority, where the system has priorities.

    Linux shares its cores among sessions first (autogroups), so that a separate session (setsid, cron) yields to
    others only if the session is nice as well. A terminal has other programs too, and is left as it is.
    """
    if hasattr(os, "nice"):
        with suppress(OSError):
            os.nice(NICE)
            if os.getsid(0) == os.getpid():
                AUTOGROUP.write_text(str(NICE), encoding="ascii")
