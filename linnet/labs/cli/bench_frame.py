"""The frame of every bench command: progress, partial results on Ctrl-C, threads restored, output and exit status.

document = new_document(rows=[])
with measuring(document, console) as progress:
    for one in progress.track(cases): document["rows"].append(...)
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ...cli import doctor
from ...cli.common import deliver

FORMAT = 1  # of the JSON document


def new_document(**content: Any) -> dict[str, Any]:
    """Return a document with the machine and the versions it is measured on, then `content`."""
    from ...native import library

    about = {"machine": doctor.cpu(), "versions": doctor.versions(), "native": library.info()}
    return {"format": FORMAT, **about, **content, "interrupted": False}


def publish(
    document: dict[str, Any],
    json: bool,
    show: Callable[[dict[str, Any], Console], None],
    plot: Path | None,
    draw: Callable[[dict[str, Any], Path], None],
    trustworthy: Callable[[dict[str, Any]], bool],
) -> None:
    """Draw and print a document; exit with 130 if it was interrupted, with 1 if a result of ours is wrong."""
    try:
        deliver(document, json, show)
    finally:
        if plot is not None:
            draw(document, plot)
    if not trustworthy(document):
        sys.exit(1)


@contextmanager
def measuring(document: dict[str, Any], console: Console) -> Iterator[Progress]:
    """Show progress on `console`; Ctrl-C ends the block and marks the document as interrupted."""
    import torch

    columns = (TextColumn("{task.description}"), BarColumn(20), TimeElapsedColumn(), TextColumn("left"))
    before = torch.get_num_threads()
    try:
        with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
            yield progress
    except KeyboardInterrupt:
        document["interrupted"] = True
    finally:
        torch.set_num_threads(before)
