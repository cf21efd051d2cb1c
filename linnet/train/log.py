"""What a run says of itself: events for whoever watches, log.jsonl for later, TensorBoard if asked for.

    {"kind": "step", "step": 100, "loss": 2.31, "lr": 0.001, "grad_norm": 0.8, "units": 409600, "seconds": 12.5, ...}
    {"kind": "eval", "step": 100, "loss": 2.40, ...}

A resumed run cuts away the lines after its checkpoint, so each step stands in the log once, whatever was killed when.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from errno import ENOSPC
from importlib import import_module
from math import isfinite
from os import strerror
from pathlib import Path
from typing import Any, TypeAlias

from ..atomic import atomic
from ..json_file import read_lines
from ..schema import Record, Text, Whole

NAME = "log.jsonl"
LINE = Record({"kind": Text(), "step": Whole()}, open=True)
LOGGED = ("step", "eval")  # these happen once per step; a save or a stop may happen again after a kill


@dataclass(frozen=True)
class Event:
    """Something happened: `kind` is start, step, eval, save, stop or done; `text` is a sentence where there is one."""

    kind: str
    step: int  # optimizer steps done
    values: dict[str, Any] = field(default_factory=dict)
    text: str = ""


OnEvent: TypeAlias = "Callable[[Event], None]"


class RunLog:
    """log.jsonl in `folder`, continued after `step` (None begins anew). Lines reach the system as they are written."""

    def __init__(self, folder: Path, *, step: int | None = None, tensorboard: bool = False) -> None:
        self.path = folder / NAME
        self.board = summary_writer(folder / "tensorboard", step or 0) if tensorboard else None
        self.damaged: list[str] = []  # lines of the log that could not be read
        if step is None or not self.path.exists():
            with atomic(self.path):
                pass
        else:
            self.damaged = cut_log(self.path, step)
        self.file = open(self.path, "ab", buffering=0)  # noqa: SIM115 - open as long as the run

    def write(self, event: Event) -> None:
        """One line, if this kind of event belongs in the log."""
        if event.kind not in LOGGED:
            return
        values = {name: _plain(x) for name, x in event.values.items()}
        line = json.dumps({"kind": event.kind, "step": event.step, **values}, allow_nan=False)
        data = line.encode() + b"\n"
        if self.file.write(data) != len(data):
            raise OSError(ENOSPC, strerror(ENOSPC), str(self.path))
        if self.board is not None:
            for name, x in values.items():
                if isinstance(x, (int, float)):
                    self.board.add_scalar(f"{event.kind}/{name}", x, event.step)

    def sync(self) -> None:
        """Down to the disk, before a checkpoint says that these lines are there."""
        os.fsync(self.file.fileno())
        if self.board is not None:
            self.board.flush()

    def close(self) -> None:
        self.file.close()
        if self.board is not None:
            self.board.close()


def read_log(path: Path, *, damaged: list[str] | None = None) -> Iterator[dict[str, Any]]:
    """The lines of a log as dicts; one that a kill left half-written at the end is not a line.

    damaged: a list that gets a sentence for every line that is not one; without it each is a warning.
    """
    for line in read_lines(path):
        why = line.problem or (None if LINE.misfit(line.value) is None else "not a step of a run")
        if why is None:
            yield line.value
            continue
        problem = f"line {line.number} of {path} is damaged ({why}) and left out"
        if damaged is None:
            warnings.warn(problem, stacklevel=2)
        else:
            damaged.append(problem)


def cut_log(path: Path, step: int) -> list[str]:
    """Keep the lines up to `step`, atomically; a sentence for each damaged line, which goes as well."""
    damaged: list[str] = []
    with atomic(path) as file:
        for line in read_log(path, damaged=damaged):
            if line["step"] <= step:
                file.write(json.dumps(line).encode() + b"\n")
    return damaged


def summary_writer(folder: Path, step: int) -> Any:
    """TensorBoard's writer, from tensorboard or tensorboardX; what it showed after `step` is hidden."""
    for module in ("torch.utils.tensorboard", "tensorboardX"):
        try:
            writer = import_module(module).SummaryWriter
        except ImportError:
            continue
        return writer(str(folder), purge_step=step + 1 if step else None)
    raise ValueError(
        "tensorboard is True, but neither tensorboard nor tensorboardX can be imported; "
        "install one with: pip install 'linnet[train]', or train without --tensorboard"
    )


def _plain(value: Any) -> Any:
    """JSON has no infinity and no NaN: a metric without a value is null."""
    return None if isinstance(value, float) and not isfinite(value) else value
