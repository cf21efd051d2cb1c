"""Run claims into a folder: timings first and alone, then everything else on all workers.

Existing rows are not computed again, and a row that two claims share is computed once. A unit that fails is recorded
and the others continue. After Ctrl-C, a kill at any moment or the end of a limit of time, the same command resumes.
With a limit (plan.py) the cheapest claim comes first, so that a result is seen at once, then the speed of the machine.
A day run takes its units from a queue (queue.py): some of them follow from the rows of others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ...errors import StateError
from .claim import DAY, Claim, Unit
from .clock import CLOCK, Clock
from .folder import Run, write_failures, write_postponed
from .manifest import MANIFEST
from .pace import Pace, measure
from .plan import Limit, Plan, Work, distinct, make_plan, postponed
from .queue import Deadline, Queue
from .results import ROWS, Row, Store, key
from .runner import Failure, Gate, Hooks, check_workers, run_all

Measure = Callable[[int | str], Pace]
PESSIMIST = 4.0  # work that fits at this pace needs no measurement
CHEAP = 10.0  # expected seconds of a claim that may run before the measurement, so that a result is seen at once
ROUNDS = 5  # plans of one run: what is left is planned again with the pace learned so far


def reproduce(
    claims: Sequence[Claim],
    run: Run,
    out: Path,
    *,
    workers: int | str = 1,
    watch: Hooks | None = None,
    skip_damaged: bool = False,
    limit: Limit | None = None,
    measure: Measure = measure,
) -> list[Failure]:
    """Compute every row of the claims that OUT does not have yet; return the units that failed.

    limit: the time that may be used; claims without time are recorded (folder.py), and are not failures.
    """
    workers, watch = check_workers(workers), watch or Hooks()
    with Store(out / ROWS, skip_damaged=skip_damaged) as store:
        setting = run.setting(out, row=store.get)

        runner = Runner(out, store, workers, watch)

        def left() -> list[Work]:
            work = [Work(one.name, one.paper, tuple(missing(one.work(setting), store))) for one in claims]
            return [one for one in work if one.units and not runner.failed(one.units)]

        work = left()
        if run.budget != DAY:
            check_unsealed(out, work)
        write_failures(out, [])
        write_postponed(out, {})
        if run.budget == DAY:
            watch.start([unit for one in work for unit in one.units], store.rows())
            runner.run_queue(Queue(left), Deadline(limit) if limit is not None else None)
        elif limit is None:
            units = missing((unit for one in work for unit in one.units), store)
            watch.start(units, store.rows())
            runner.run(units)
        else:
            watch.start([], store.rows())
            runner.prepare(limit, work, measure)
            runner.run_within(limit, left)
            write_postponed(out, {name: time._asdict() for name, time in postponed(left(), limit).items()})
        return runner.failures


def check_unsealed(out: Path, work: Sequence[Work]) -> None:
    """Raise StateError if rows would be added to a folder whose rows are sealed."""
    if work and (out / MANIFEST).exists():
        raise StateError(
            f"{out} is sealed by {MANIFEST}, and rows of {work[0].name} are missing; name another folder with --out, "
            f"or delete {MANIFEST} and seal the folder again afterwards with `linnet report {out} --seal`"
        )


class Runner:
    """Runs units into a store, and records what failed."""

    def __init__(self, out: Path, store: Store, workers: int | str, watch: Hooks) -> None:
        self.out, self.store, self.workers, self.watch = out, store, workers, watch
        self.clock = Clock(out / CLOCK, workers)
        self.units: list[Unit] = []
        self.failures: list[Failure] = []
        self.records: list[dict[str, Any]] = []

    def run(self, units: Sequence[Unit], gate: Gate | None = None) -> None:
        """Run timings in this process, one at a time and with all threads, then the other units."""
        alone, shared = [unit for unit in units if unit.alone], [unit for unit in units if not unit.alone]
        self._run(alone, 1, os.cpu_count() or 1, gate)
        self._run(shared, self.workers, 1, gate)

    def run_queue(self, queue: Queue, gate: Gate | None) -> None:
        """Run units as they become ready, each on one thread; on Ray those that are ready together."""
        before = -1
        while len(queue.given) > before:
            before = len(queue.given)
            self._run(queue, self.workers, 1, gate)

    def prepare(self, limit: Limit, work: Sequence[Work], measure: Measure) -> None:
        """Measure the machine, unless the work surely fits or no time is left; before that, run a claim of seconds."""
        if limit.room() <= 0 or PESSIMIST * limit.cost(distinct(work)) <= limit.room():
            return
        together = [one for one in work if not any(unit.alone for unit in one.units)]
        first = min(together, key=lambda one: limit.cost(one.units), default=None)
        if first is not None and limit.cost(first.units) <= CHEAP:
            limit.expect([first])
            self.watch.start(first.units, ())
            self._run(first.units, 1, 1, limit)
        limit.pace = measure(self.workers)
        self.clock.run["pace"] = [round(limit.pace.measured[alone], 3) for alone in (False, True)]
        self.watch.remark(in_words(make_plan(work, limit), limit))

    def run_within(self, limit: Limit, left: Callable[[], list[Work]]) -> None:
        """Run the claims that fit; plan what is left again with the pace learned, in case it fits after all."""
        for _ in range(ROUNDS):
            fits = make_plan(left(), limit).fits
            if not fits:
                return
            limit.expect(fits)
            units = distinct(fits)
            self.watch.start(units, ())
            self.run(units, limit)
            self.clock.run["learned"] = [round(limit.pace.overall(alone), 3) for alone in (False, True)]
            self.clock.tick(0)

    def failed(self, units: Iterable[Unit]) -> bool:
        """Return whether one of these units failed."""
        names = {failure.unit for failure in self.failures}
        return any(str(unit) in names for unit in units)

    def _run(self, units: Iterable[Unit], workers: int | str, threads: int, gate: Gate | None) -> None:
        how: dict[str, Any] = {"workers": workers, "threads": threads, "gate": gate}
        self.failures += run_all(
            self._seen(units), rows_of, self.store, on_row=self._keep, on_failure=self._note, **how
        )

    def _seen(self, units: Iterable[Unit]) -> Iterator[Unit]:
        """Note the units as they start, for the records of failures."""
        return map(self._start, units)

    def _start(self, unit: Unit) -> Unit:
        self.units.append(unit)
        return unit

    def _keep(self, row: Row) -> None:
        self.clock.tick()
        self.watch.row(row)

    def _note(self, failure: Failure) -> None:
        of = [unit for unit in self.units if str(unit) == failure.unit]
        keys = [key(config) for unit in of for config in unit.configs if not self.store.has(config)]
        self.records.append({**failure._asdict(), "keys": keys})
        write_failures(self.out, self.records)
        self.watch.failure(failure)


def in_words(plan: Plan, limit: Limit) -> str:
    """Return the plan in a sentence."""
    pace, every = limit.pace.overall(), len(plan.fits) + len(plan.later)
    speed = f"work takes {pace:.1f} times its usual time here" if pace > 1.05 else "this machine has its usual speed"
    which = f"{len(plan.fits)} of {every}" if plan.later else f"all {every}"
    return f"{speed}: {which} claims are expected to fit into {limit.total / 60:g} minutes"


def missing(units: Iterable[Unit], store: Store) -> list[Unit]:
    """Return the units with a missing row, each once even where two claims share it."""
    planned: set[str] = set()
    needed = []
    for unit in units:
        keys = {key(config) for config in unit.configs if not store.has(config)}
        if keys - planned:
            needed.append(unit)
            planned |= keys
    return needed


def rows_of(unit: Unit) -> Iterable[Row]:
    """Yield the rows of a unit; the runner calls this."""
    return unit.function(unit.work)
