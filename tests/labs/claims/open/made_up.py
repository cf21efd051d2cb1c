"""Rows of variants with scores that a test chooses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from linnet.labs.core.results import Row, make_row

STEPS = (100, 200, 300, 400)


def arm_rows(
    task: str,
    mixer: str | list[str],
    scores: Sequence[float | None],
    *,
    length: int,
    dead: float | None = None,
    state_bytes: int = 100,
    late: float = 0.0,
    **more: Any,
) -> list[Row]:
    """One row for each score, seed after seed; late: how much of the score came in the last quarter of the steps."""
    config = {"experiment": "arm", "task": task, "mixer": mixer, "length": length, **more}
    rows = []
    for seed, score in enumerate(scores):
        curve = [[step, (score or 0.0) - (late if step < STEPS[-1] else 0.0)] for step in STEPS]
        metrics = {"dead": dead, "state_bytes": state_bytes, "score": score, "curve": curve}
        rows.append(make_row({**config, "seed": seed}, metrics, 0.1))
    return rows
