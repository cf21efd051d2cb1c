"""Rows of trained arms as a run would leave them, with scores that a test chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from linnet.labs.core.claim import Row

STEPS = 100
STILL = (2, 1.5, 1, 1)  # a curve that no longer falls over its last quarter


def arm_rows(
    experiment: str,
    metric: str,
    scores: Mapping[str, Sequence[float]],
    config: Mapping[str, Any],
    metrics: Mapping[str, Any] | None = None,
    falls: Sequence[float] = (4, 3, 2, 1),
) -> list[Row]:
    """One row for each arm and seed; the four points of its curve are `falls` times the score."""
    rows = []
    for variant, values in scores.items():
        for seed, score in enumerate(values):
            about = {"experiment": experiment, "arm": variant, "seed": seed, **config}
            curve = [[STEPS * (i + 1) // 4, score * times] for i, times in enumerate(falls)]
            common = {"loss": score, "train_seconds": 2.0, "units": 1000, "parameters": 4321, "curve": curve}
            rows.append({"config": about, "metrics": {**common, metric: score, **(metrics or {})}})
    return rows
