"""Rows that nothing was trained for, to see what a rule and its licence make of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from linnet.labs.core.claim import Evidence
from linnet.labs.core.licence import licence
from linnet.labs.core.results import Row
from linnet.labs.core.verdicts import Verdict
from linnet.labs.recall.config import RecallConfig
from linnet.labs.recall.study import Judged

CURVE = ((25, 0.2), (50, 0.5), (75, 0.9), (100, 0.9))  # recall by step: settled
RISING = ((25, 0.2), (50, 0.3), (75, 0.5), (100, 0.9))


def made_up(config: RecallConfig, accuracies: Sequence[float], **metrics: Any) -> list[Row]:
    """One row for each seed, trained until its recall no longer rose."""
    about = {"curve": CURVE, **metrics}
    return [
        {"config": config.replace(seed=seed).to_dict(), "metrics": {"accuracy": value, "chosen_by": value, **about}}
        for seed, value in enumerate(accuracies)
    ]


def around(mean: float, seeds: int = 3) -> list[float]:
    """Three seeds, .01 apart, or more of them within the same range."""
    return [mean + 0.01 * (2 * seed / (seeds - 1) - 1) if seeds > 1 else mean for seed in range(seeds)]


def outcome(found: Verdict) -> tuple[str, str]:
    """Return the outcome that is printed, and the words after "Not tested: "."""
    if not isinstance(found, Judged):
        return licence(Evidence(found.state))[::2]
    allowed = licence(Evidence(found.state, found.regime, found.controls, found.repeats))
    return allowed.outcome, allowed.short


def unsettled(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with a recall that still rises when training ends."""
    return [{**row, "metrics": {**row["metrics"], "curve": RISING}} for row in rows]
