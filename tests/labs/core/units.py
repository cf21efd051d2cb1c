"""Units of work for the tests, in a module that a worker can import: small, exact, and able to fail in every way."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from linnet.labs.core import Row, make_row


@dataclass(frozen=True)
class Count:
    """Counts from 1 to `top`; at `fail_at` it raises, at `die_at` its process is killed, at `sleep_at` it waits."""

    name: str
    top: int = 3
    fail_at: int = 0
    die_at: int = 0
    sleep_at: int = 0
    note: Path | None = None  # where to write the number of the process

    def __str__(self) -> str:
        return f"count {self.name}"


def count(unit: Count) -> Iterator[Row]:
    if unit.note is not None:
        unit.note.write_text(str(os.getpid()))
    for i in range(1, unit.top + 1):
        if i == unit.fail_at:
            raise ValueError(f"no {i}\nfor {unit.name}")
        if i == unit.die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if i == unit.sleep_at:
            time.sleep(120)
        seen = {"process": os.getpid(), "threads": torch.get_num_threads(), "omp": os.environ.get("OMP_NUM_THREADS")}
        yield make_row({"name": unit.name, "i": i, "seed": 0}, {"square": i * i}, 0.0, seen)
