"""Wall clock of an experiment, summed over all of its runs: a small JSON file next to the rows.

    {"format": 1, "runs": [{"started", "seconds", "workers", "rows"}, ...]}

The file is rewritten at every row, so that a killed run counts up to its last row.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from time import monotonic
from typing import Any

from ...atomic import atomic
from ...errors import StateError
from ...json_file import read_json
from ...schema import Each, Number, Record, Text, Whole, check
from .results import ROWS, Row, Store, check_experiment, read_rows
from .runner import Failure, Function, Hooks, run_all

CLOCK = "clock.json"
FORMAT = 1
RUN = Record({"seconds": Number(0)}, {"started": Text(), "rows": Whole(0)}, open=True)
CONTENT = Record({"format": Whole(FORMAT, FORMAT), "runs": Each(RUN)})


class Clock:
    """Counts from its construction; call `tick` after every row."""

    def __init__(self, path: Path, workers: int | str) -> None:
        self.path, self.before = path, read_runs(path)
        self.began = monotonic()
        started = datetime.now(timezone.utc).isoformat(timespec="seconds")
        self.run: dict[str, Any] = {"started": started, "seconds": 0.0, "workers": workers, "rows": 0}

    def tick(self, rows: int = 1) -> None:
        self.run["rows"] += rows
        self.run["seconds"] = round(monotonic() - self.began, 3)
        with atomic(self.path) as file:
            file.write(json.dumps({"format": FORMAT, "runs": [*self.before, self.run]}, indent=1).encode())


def read_runs(path: Path) -> list[dict[str, Any]]:
    """Return every run so far; none if there is no file."""
    if not path.exists():
        return []
    way_out = "delete it, and time counts from now"
    content = check(read_json(path, way_out, refuse=StateError), CONTENT, path, way_out, refuse=StateError)
    return [dict(run) for run in content["runs"]]


def run_timed(units: Sequence[Any], function: Function, store: Store, clock: Clock, hooks: Hooks) -> list[Failure]:
    """Run units into the store; every row advances the clock and is passed to `hooks.row`."""

    def keep(row: Row) -> None:
        clock.tick()
        hooks.row(row)

    workers = clock.run["workers"]
    return run_all(units, function, store, workers=workers, on_row=keep, on_failure=hooks.failure)


def read_timed(folder: Path, experiment: str, command: str) -> tuple[list[Row], float]:
    """Return the rows of a folder of this experiment, and the minutes they took; refuse a folder without rows."""
    rows = read_rows(folder / ROWS)
    if not rows:
        raise ValueError(f"{folder} has no rows yet; run {command} --out {folder} first")
    check_experiment(rows, experiment, folder)
    return rows, minutes(folder / CLOCK)


def minutes(path: Path) -> float:
    """Return the wall clock of all runs together, in minutes."""
    return sum(run["seconds"] for run in read_runs(path)) / 60
