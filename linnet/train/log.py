"""The log of a run: events for a callback, lines in log.jsonl and, on request, TensorBoard.

    {"kind": "step", "step": 100, "loss": 2.31, "lr": 0.001, "grad_norm": 0.8, "units": 409600, "seconds": 12.5, ...}
    {"kind": "eval", "step": 100, "loss": 2.40, ...}

A resumed run removes the lines after its checkpoint, so each step appears exactly once, however the run was killed.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from errno import ENOSPC
from importlib import import_module
from os import strerror
from pathlib import Path
from typing import Any, TypeAlias

from ..atomic import atomic
from ..json_file import finite_or_none, read_lines
from ..schema import Record, Text, Whole

NAME = "log.jsonl"
LINE = Record({"kind": Text(), "step": Whole()}, open=True)
LOGGED = ("step", "eval")  # these happen once per step; a save or a stop may be repeated after a kill


@dataclass(frozen=True)
class Event:
    """An event of a run: `kind` is start, step, eval, save, stop or done; `text` describes it, or is empty."""

    kind: str
    step: int  # optimizer steps done
    values: dict[str, Any] = field(default_factory=dict)
    text: str = ""


OnEvent: TypeAlias = "Callable[[Event], None]"


class RunLog:
    """Writer of log.jsonl in `folder`, continued after `step` (None: a new log); every line is written unbuffered."""

    def __init__(self, folder: Path, *, step: int | None = None, tensorboard: bool = False) -> None:
        self.path = folder / NAME
        self.board = summary_writer(folder / "tensorboard", step or 0) if tensorboard else None
        self.damaged: list[str] = []  # a message for each damaged line
        if step is None or not self.path.exists():
            with atomic(self.path):
                pass
        else:
            self.damaged = cut_log(self.path, step)
        self.file = open(self.path, "ab", buffering=0)  # noqa: SIM115 - open as long as the run

    def write(self, event: Event) -> None:
        """Write one line if this kind of event is logged."""
        if event.kind not in LOGGED:
            return
        values = finite_or_none(event.values)
        line = json.dumps({"kind": event.kind, "step": event.step, **values}, allow_nan=False)
        data = line.encode() + b"\n"
        if self.file.write(data) != len(data):
            raise OSError(ENOSPC, strerror(ENOSPC), str(self.path))
        if self.board is not None:
            for name, x in values.items():
                if isinstance(x, (int, float)):
                    self.board.add_scalar(f"{event.kind}/{name}", x, event.step)

    def sync(self) -> None:
        """Flush the log to disk, before a checkpoint that refers to these lines."""
        os.fsync(self.file.fileno())
        if self.board is not None:
            self.board.flush()

    def close(self) -> None:
        self.file.close()
        if self.board is not None:
            self.board.close()


def read_log(path: Path, *, damaged: list[str] | None = None) -> Iterator[dict[str, Any]]:
    """Yield the lines of a log as dicts; an incomplete last line, left by a kill, is skipped.

    damaged: a list that receives a message for every damaged line; without it, each one is a warning.
    """
    for line in read_lines(path):
        why = line.problem or (None if LINE.misfit(line.value) is None else "not a step of a run")
        if why is None:
            yield line.value
            continue
        problem = f"line {line.number} of {path} is damaged ({why}) and skipped"
        if damaged is None:
            warnings.warn(problem, stacklevel=2)
        else:
            damaged.append(problem)


def cut_log(path: Path, step: int) -> list[str]:
    """Keep the undamaged lines up to `step`, atomically; return a message for each damaged line."""
    damaged: list[str] = []
    with atomic(path) as file:
        for line in read_log(path, damaged=damaged):
            if line["step"] <= step:
                file.write(json.dumps(line).encode() + b"\n")
    return damaged


def summary_writer(folder: Path, step: int) -> Any:
    """Return a writer of tensorboard or tensorboardX that hides earlier values after `step`."""
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
