"""Rows that nothing was trained for, to see what a verdict rule makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from linnet.labs.core.results import Row
from linnet.labs.recall.config import RecallConfig


def made_up(config: RecallConfig, accuracies: Sequence[float], **metrics: Any) -> list[Row]:
    """One row for each seed."""
    return [
        {"config": config.replace(seed=seed).to_dict(), "metrics": {"accuracy": value, "chosen_by": value, **metrics}}
        for seed, value in enumerate(accuracies)
    ]


def around(mean: float) -> list[float]:
    """Three seeds, .01 apart."""
    return [mean - 0.01, mean, mean + 0.01]
