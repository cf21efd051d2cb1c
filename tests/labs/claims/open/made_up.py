"""Rows of arms with scores that a test chooses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from linnet.labs.core.results import Row, make_row


def arm_rows(
    task: str,
    mixer: str | list[str],
    scores: Sequence[float | None],
    *,
    length: int,
    dead: float | None = None,
    state_bytes: int = 100,
    **more: Any,
) -> list[Row]:
    """One row for each score, seed after seed."""
    config = {"experiment": "arm", "task": task, "mixer": mixer, "length": length, **more}
    metrics = {"dead": dead, "state_bytes": state_bytes}
    return [make_row({**config, "seed": seed}, {**metrics, "score": score}, 0.1) for seed, score in enumerate(scores)]
