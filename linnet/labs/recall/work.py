"""Run recall configurations into a folder: missing rows are computed, existing rows are kept.

    OUT/rows.jsonl     a row for every run          OUT/clock.json     wall clock of all runs together

Long runs start first, so that no worker waits for one of them at the end. A killed sweep resumes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..core.clock import CLOCK, Clock, run_timed
from ..core.results import ROWS, Row, Store, check_experiment
from ..core.runner import Failure, Hooks, check_workers
from .config import EXPERIMENT, RecallConfig
from .run import rows_of
from .sweep import Plan

SLOW = {"delta": 2.0, "gated_delta": 2.0, "gla": 3.0, "mamba": 6.0, "rwkv4": 4.0, "rwkv7": 4.0, "lsh": 4.0}


def run_configs(
    stages: Sequence[Callable[[list[Row]], Sequence[RecallConfig]]],
    out: Path,
    *,
    workers: int | str = 1,
    hooks: Hooks | None = None,
) -> list[Failure]:
    """Run every stage, a function from the rows so far to the runs to do, in turn; return the runs that failed."""
    workers, hooks, failures = check_workers(workers), hooks or Hooks(), []
    with Store(out / ROWS) as store:
        check_experiment(store.rows(), EXPERIMENT, out)
        clock = Clock(out / CLOCK, workers)
        for stage in stages:
            units = [config for config in stage(store.rows()) if not store.has(config.to_dict())]
            units.sort(key=lambda config: -cost(config.to_dict()))
            hooks.start([config.to_dict() for config in units])
            failures += run_timed(units, rows_of, store, clock, hooks)
    return failures


def run_plan(plan: Plan, out: Path, **how: Any) -> list[Failure]:
    """Run the search, if there is one, then the runs to report."""
    stages: list[Callable[[list[Row]], Sequence[RecallConfig]]] = [plan.runs]
    if plan.search:
        stages.insert(0, lambda rows: plan.searches())
    return run_configs(stages, out, **how)


def cost(config: Mapping[str, Any]) -> float:
    """Return the relative duration of a run."""
    c = RecallConfig.from_dict(config)
    tokens = c.steps * c.batch_size * c.seq_len
    quadratic = 1 + c.seq_len / 512 if c.mixer in ("softmax", "lsh") else 1.0
    return tokens * quadratic * SLOW.get(c.mixer, 1.0) * (1 + c.d_model / 64) * (1 + c.vocab_size / 4096)
