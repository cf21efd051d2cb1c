"""Running recall configurations into a folder: what is missing is run, what is there is kept.

    OUT/rows.jsonl     a row for every run          OUT/clock.json     wall clock of all the times it was started

Long runs begin first, so that the last worker does not wait for one of them. A killed sweep goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..clock import Clock
from ..results import Row, Store, check_experiment
from ..runner import Failure, Function, check_workers, run_all
from ..runner import Hooks as Hooks
from .config import EXPERIMENT, RecallConfig
from .run import rows_of
from .sweep import Plan

ROWS, CLOCK = "rows.jsonl", "clock.json"
SLOW = {"delta": 2.0, "gated_delta": 2.0, "gla": 3.0, "mamba": 6.0, "rwkv4": 4.0, "rwkv7": 4.0, "lsh": 4.0}


def run_configs(
    stages: Sequence[Callable[[list[Row]], Sequence[RecallConfig]]],
    out: Path,
    *,
    workers: int | str = 1,
    hooks: Hooks | None = None,
) -> list[Failure]:
    """Every stage in turn: a function from the rows so far to the runs to make; returns the runs that failed."""
    workers, hooks, failures = check_workers(workers), hooks or Hooks(), []
    with Store(out / ROWS) as store:
        check_experiment(store.rows(), EXPERIMENT, out)
        clock = Clock(out / CLOCK, workers)
        for stage in stages:
            units = [config for config in stage(store.rows()) if not store.has(config.to_dict())]
            units.sort(key=lambda config: -cost(config.to_dict()))
            hooks.start([config.to_dict() for config in units])
            failures += run_units(units, rows_of, store, clock, hooks)
    return failures


def run_units(units: Sequence[Any], function: Function, store: Store, clock: Clock, hooks: Hooks) -> list[Failure]:
    """Units into the store, with every row on the clock and told to whoever watches."""

    def keep(row: Row) -> None:
        clock.tick()
        hooks.row(row)

    workers = clock.run["workers"]
    return run_all(units, function, store, workers=workers, on_row=keep, on_failure=hooks.failure)


def run_plan(plan: Plan, out: Path, **how: Any) -> list[Failure]:
    """The sweep: the search, if there is one, then the runs to report."""
    stages: list[Callable[[list[Row]], Sequence[RecallConfig]]] = [plan.runs]
    if plan.search:
        stages.insert(0, lambda rows: plan.searches())
    return run_configs(stages, out, **how)


def cost(config: Mapping[str, Any]) -> float:
    """How long a run takes, compared with others."""
    c = RecallConfig.from_dict(config)
    tokens = c.steps * c.batch_size * c.seq_len
    quadratic = 1 + c.seq_len / 512 if c.mixer in ("softmax", "lsh") else 1.0
    return tokens * quadratic * SLOW.get(c.mixer, 1.0) * (1 + c.d_model / 64) * (1 + c.vocab_size / 4096)
