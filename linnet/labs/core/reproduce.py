"""Run claims into a folder: timings first and alone, then everything else on all workers.

Existing rows are not computed again, and a row that two claims share is computed once. A unit that fails is recorded
and the others continue. After Ctrl-C or a kill at any moment, the same command resumes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .claim import Claim, Unit
from .clock import CLOCK, Clock
from .folder import Run, write_failures
from .results import ROWS, Row, Store, key
from .runner import Failure, Hooks, check_workers, run_all


def reproduce(
    claims: Sequence[Claim],
    run: Run,
    out: Path,
    *,
    workers: int | str = 1,
    watch: Hooks | None = None,
    skip_damaged: bool = False,
) -> list[Failure]:
    """Compute every row of the claims that OUT does not have yet; return the units that failed."""
    workers, watch = check_workers(workers), watch or Hooks()
    failed: list[dict[str, Any]] = []
    with Store(out / ROWS, skip_damaged=skip_damaged) as store:
        setting = run.setting(out, done=store.has)
        units = missing([unit for claim in claims for unit in claim.units(setting)], store)
        clock = Clock(out / CLOCK, workers)
        watch.start(units, store.rows())

        def keep(row: Row) -> None:
            clock.tick()
            watch.row(row)

        def note(failure: Failure) -> None:
            of = [unit for unit in units if str(unit) == failure.unit]
            keys = [key(config) for unit in of for config in unit.configs if not store.has(config)]
            failed.append({**failure._asdict(), "keys": keys})
            write_failures(out, failed)
            watch.failure(failure)

        write_failures(out, [])
        callbacks: dict[str, Any] = {"on_row": keep, "on_failure": note}
        alone, shared = [u for u in units if u.alone], [u for u in units if not u.alone]
        failures = run_all(alone, rows_of, store, workers=1, threads=os.cpu_count() or 1, **callbacks)
        return failures + run_all(shared, rows_of, store, workers=workers, **callbacks)


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
