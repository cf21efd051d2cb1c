"""Progress of an experiment on stderr with the time left: a bar on a terminal, elsewhere a line now and then.

The estimate scales the relative costs `cost(config)` of the remaining rows by the pace so far. `one_line(row)` is
printed where there is no bar.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from ...cli.common import duration

QUIET = 15.0  # seconds without a line, where there is no bar

Watcher = TypeVar("Watcher", bound="RowsWatcher")


class RowsWatcher:
    """Call `start` with the configurations of the rows to compute, then `row` and `failure` as they happen."""

    def __init__(
        self,
        console: Console,
        title: str,
        cost: Callable[[dict[str, Any]], float],
        one_line: Callable[[dict[str, Any]], str],
    ) -> None:
        self.console, self.title, self.cost, self.one_line = console, title, cost, one_line
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[now]}"), TimeElapsedColumn())
        self.bar = Progress(*columns, console=console, disable=not console.is_terminal, transient=True)
        self.began = self.spoken = monotonic()
        self.total = self.done = 0.0
        self.rows = self.all = 0
        self.line_at_end = True  # print a line at the last row announced, however soon
        self.task: Any = None

    def __enter__(self: Watcher) -> Watcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def start(self, configs: Sequence[dict[str, Any]]) -> None:
        """Announce more rows; may be called again when the first ones decide what follows."""
        self.all, self.total = self.all + len(configs), self.total + sum(map(self.cost, configs))
        now = f"{self.rows}/{self.all}"
        if self.task is None:
            self.task = self.bar.add_task(self.title, total=self.total, now=now)
            self.bar.start()
        self.bar.update(self.task, total=self.total, now=now)

    def row(self, row: dict[str, Any]) -> None:
        self.rows, self.done = self.rows + 1, self.done + self.cost(row["config"])
        now = f"{self.rows}/{self.all}, {self.left()} left"
        self.bar.update(self.task, completed=self.done, now=now)
        if self.bar.disable and (monotonic() - self.spoken >= QUIET or (self.line_at_end and self.rows == self.all)):
            self.spoken = monotonic()
            self._say(f"{now}; last: {self.one_line(row)}")

    def failure(self, failure: Any) -> None:
        self._say(f"failed: {failure.unit}: {failure.error}")

    def left(self) -> str:
        return duration(self.seconds_left())

    def seconds_left(self) -> float:
        return (monotonic() - self.began) * (self.total - self.done) / max(self.done, 1e-9)

    def _say(self, text: str) -> None:
        self.console.print(text, soft_wrap=True, markup=False, highlight=False)
