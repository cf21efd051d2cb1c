"""Run units as tasks on Ray, the cluster at RAY_ADDRESS or a local one; `results` of runner.py calls this."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from .results import Row
from .runner import Function, Gate, Result, Results, sentence


def on_ray(units: Sequence[Any], function: Function, threads: int, gate: Gate) -> Results:
    """Run each unit as a task that streams its rows back; files it writes must be visible to every machine.

    All tasks are submitted at once, unless the gate limits the time: then as many as the cluster has cores.
    """
    try:
        import ray as installed
    except ImportError:
        raise ValueError(
            "workers is ray, and ray is not installed; run pip install 'linnet[sweep]', or give a number"
        ) from None
    ray: Any = installed  # its types change between versions
    started = not ray.is_initialized()
    if started:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        here = {} if os.environ.get("RAY_ADDRESS") else {"num_cpus": os.cpu_count()}
        ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR", **here)

    @ray.remote(num_cpus=threads, max_retries=0, num_returns="streaming")
    def task(unit: Any) -> Iterator[Row]:
        import torch

        torch.set_num_threads(threads)
        yield from function(unit)

    waiting, running = filter(gate.admit, units), dict[Any, Any]()
    cores = int(ray.cluster_resources().get("CPU", 1))
    slots = len(units) if gate.remaining() is None else max(1, cores // threads)
    try:
        while True:
            while len(running) < slots and (unit := next(waiting, None)) is not None:
                running[task.remote(unit)] = unit
            some, _ = ray.wait(list(running), num_returns=1, timeout=gate.remaining()) if running else ([], [])
            if not some and (not running or gate.remaining() == 0):
                return
            if not some:
                continue
            (ready,) = some
            try:
                yield Result(running[ready], ray.get(next(ready)))
            except StopIteration:
                del running[ready]
            except ray.exceptions.RayError as error:
                yield Result(running.pop(ready), error=sentence(getattr(error, "cause", None) or error))
    finally:
        for left in running:
            ray.cancel(left, force=True)
        if started:
            ray.shutdown()
