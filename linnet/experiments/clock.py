"""Wall clock of an experiment over all the times it was started: a small JSON file beside the rows.

    {"format": 1, "runs": [{"started", "seconds", "workers", "rows"}, ...]}

Written again at every row, so that a run which was killed counts up to its last row.
"""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from time import monotonic
from typing import Any

from ..atomic import atomic
from ..errors import StateError
from ..json_file import read_json
from ..schema import Each, Number, Record, Text, Whole, check

FORMAT = 1
RUN = Record({"seconds": Number(0)}, {"started": Text(), "rows": Whole(0)}, open=True)
CONTENT = Record({"format": Whole(FORMAT, FORMAT), "runs": Each(RUN)})


class Clock:
    """Counts from when it is made; `tick` after every row."""

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
    """Every run so far; none if there is no file."""
    if not path.exists():
        return []
    way_out = "delete it, and times count from now"
    found = check(read_json(path, way_out, refuse=StateError), CONTENT, path, way_out, refuse=StateError)
    return [dict(run) for run in found["runs"]]


def minutes(path: Path) -> float:
    """Wall clock of all runs together."""
    return sum(run["seconds"] for run in read_runs(path)) / 60
