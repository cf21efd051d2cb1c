"""Checks shared by the settings of all bench commands, and the number of cores; no torch, so refusals are instant."""

from __future__ import annotations

import os
from collections.abc import Collection


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_given(**options: Collection[object]) -> None:
    """Refuse an option without a value; underscores in a name are dashes in the flag."""
    for name, values in options.items():
        if not values:
            raise ValueError(f"--{name.replace('_', '-')} has no value; give one or more, or leave the option out")


def check_rounds(rounds: int, fewest: int) -> None:
    if rounds < fewest:
        raise ValueError(f"--rounds is {rounds}; accepted: {fewest} or more, fewer are only noise")


def check_threads(counts: Collection[int]) -> None:
    for count in counts:
        if not 1 <= count <= cores():
            raise ValueError(f"--threads has {count}; accepted: 1 to {cores()}, the cores of this machine")
