"""Running claims into a folder: timings first, with nothing beside them, then everything else on all workers.

A row that is there is not made again, one that two claims share is made once. A unit that fails is written down and the
others go on. Ctrl-C or a kill at any moment; the same command goes on where it was.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..clock import Clock
from ..results import Row, Store, key
from ..runner import Failure, Hooks, check_workers, run_all
from .claim import Claim, Unit
from .folder import CLOCK, ROWS, Run, write_failures


def reproduce(
    claims: Sequence[Claim],
    run: Run,
    out: Path,
    *,
    workers: int | str = 1,
    watch: Hooks | None = None,
    skip_damaged: bool = False,
) -> list[Failure]:
    """Every row of the claims that OUT does not have yet; returns the units that failed."""
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
        heard: dict[str, Any] = {"on_row": keep, "on_failure": note}
        alone, shared = [u for u in units if u.alone], [u for u in units if not u.alone]
        failures = run_all(alone, rows_of, store, workers=1, threads=os.cpu_count() or 1, **heard)
        return failures + run_all(shared, rows_of, store, workers=workers, **heard)


def missing(units: Iterable[Unit], store: Store) -> list[Unit]:
    """Those with a row to make, each once: two claims may ask for the same."""
    planned: set[str] = set()
    found = []
    for unit in units:
        keys = {key(config) for config in unit.configs if not store.has(config)}
        if keys - planned:
            found.append(unit)
            planned |= keys
    return found


def rows_of(unit: Unit) -> Iterable[Row]:
    """What the runner calls."""
    return unit.function(unit.work)
