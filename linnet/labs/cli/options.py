"""What the laboratory's commands share: which options were given, and refusals of options that exclude each other."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def given(**options: Any) -> dict[str, Any]:
    """Return the options that are not None, lists as tuples."""
    lists = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
    return {name: value for name, value in lists.items() if value is not None}


def worker_count(workers: str | None) -> str:
    """Return what --workers says, or one process per core."""
    return workers or str(os.cpu_count() or 1)


def check_one_format(json: bool, markdown: bool) -> None:
    if json and markdown:
        raise ValueError("--json and --markdown both write to standard output; leave one out")


def check_show_only(folder: Path, unused: list[str]) -> None:
    """Refuse options of a run next to --show, which runs nothing."""
    if unused:
        raise ValueError(f"--show prints the contents of {folder}; leave --{unused[0].replace('_', '-')} out")
