"""What several commands share: option types, output as JSON or tables, durations, a progress bar."""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

FLAG = Parameter(negative="")
SEVERAL = Parameter(consume_multiple=True, negative="")  # --option a b c
Numbers = Annotated[list[int] | None, SEVERAL]
PATIENCE = 2.0  # seconds before a bar appears
REFRESH = 0.2  # seconds between two updates of the bar


def deliver(document: dict[str, Any], json: bool, show: Callable[[dict[str, Any], Console], None]) -> None:
    """Print a document as JSON or as tables; exit with status 130 if it was interrupted."""
    if json:
        print(json_format.dumps(document, indent=1))
    else:
        show(document, Console(width=None if sys.stdout.isatty() else 150))
    if document.get("interrupted"):
        sys.exit(130)


def check_output_file(option: str, path: Path, such_as: str) -> None:
    """Raise ValueError unless `path` can be a file: its folder exists, and it is not a folder itself."""
    if not path.absolute().parent.is_dir():
        raise ValueError(f"--{option} is {path}, but there is no folder {path.parent}; create it first")
    if path.is_dir():
        raise ValueError(f"--{option} is {path}, which is a folder; accepted: a file, such as {path / such_as}")


def duration(seconds: float) -> str:
    """Return a duration as text: 1:02:03, 2:03 or 3 s."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{rest:02}"
    return f"{minutes}:{rest:02}" if minutes else f"{rest} s"


class Bar:
    """Show progress and the time left after two seconds: a bar on a terminal, one line in a file or a pipe."""

    def __init__(self, text: str, *, console: Console | None = None, patience: float = PATIENCE) -> None:
        self.text, self.console = text, console or Console(stderr=True, highlight=False)
        self.bar = Progress(
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]} left"),
            console=self.console, transient=True, disable=not self.console.is_terminal,
        )  # fmt: skip
        self.task: TaskID | None = None
        self.began = perf_counter()
        self.next = self.began + patience

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def __call__(self, done: int, total: int) -> None:
        now = perf_counter()
        if now < self.next:
            return
        self.next = now + REFRESH
        left = duration((now - self.began) / done * (total - done))
        if self.task is None:
            self.task = self.bar.add_task(self.text, total=total, left=left)
            self.bar.start()
            if self.bar.disable:
                self.console.print(f"{self.text}: about {left} left", soft_wrap=True, markup=False)
        self.bar.update(self.task, completed=done, left=left)
