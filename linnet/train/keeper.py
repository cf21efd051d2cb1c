"""Keeper: what a run leaves behind and says of itself, done by the first process for all of them.

It holds the run's folder (linnet/lock.py), opens a checkpoint and gives it to every process, writes the next ones,
keeps the log and passes events on. When the first process fails at that, every process leaves with the same sentence,
instead of waiting for it for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ..lock import exclusive
from ..models import Model
from . import checkpoint
from .autocast import Choice, choose_autocast
from .checkpoint import Checkpoint, CheckpointError
from .config import TrainConfig
from .distributed import Team
from .log import Event, OnEvent, RunLog
from .progress import Progress
from .resume import open_run
from .trouble import not_finite


@dataclass
class Keeper:
    """`out` None: nothing is written. `data` and `meta` go into every checkpoint."""

    out: Path | None
    config: TrainConfig
    team: Team
    on_event: OnEvent | None
    data: dict[str, str | None]
    meta: dict[str, Any]

    def __post_init__(self) -> None:
        self.saved: Path | None = None  # the newest checkpoint of this run
        self._found: Checkpoint | None = None
        self._log: RunLog | None = None
        self._lock = ExitStack()

    def open(self, model: Model, resume: bool | str) -> tuple[Progress, Choice, str]:
        """Where the run begins, in which precision, and in words; `restore` follows once there is an optimizer."""
        note = self._on_first(lambda: self._opened(model, resume))
        self.saved = Path(note["folder"]) if note["folder"] else None
        progress, choice = Progress.from_dict(note["progress"]), Choice(*note["autocast"])
        if self.out is not None and self.team.rank == 0:
            step = progress.step if self.saved else None
            self._log = RunLog(self.out, step=step, tensorboard=self.config.tensorboard)
        lost = "".join(f"; {problem}" for problem in self._log.damaged) if self._log is not None else ""
        return progress, choice, f"{note['text']}; precision: {choice.text}{lost}"

    def restore(self, model: Model, optimizer: torch.optim.Optimizer) -> None:
        """Weights and moments of the checkpoint that was opened, if there was one."""
        if self.saved is not None:
            found, self._found = self._found, None
            self.team.load_model(model, found.model if found else {})
            self.team.load_optimizer(model, optimizer, found.optimizer if found else {})

    def save(self, model: Model, optimizer: torch.optim.Optimizer, progress: Progress) -> str | None:
        """Write a checkpoint; or write none and return the name of a weight that is not finite."""
        if self.out is None:
            return None
        out = self.out
        weights = self.team.model_state(model)
        moments = self.team.optimizer_state(model, optimizer)
        about = {"step": progress.step, "progress": progress.to_dict(), "config": self.config.to_dict()}
        about |= {"data": self.data, "meta": self.meta}

        def write() -> dict[str, Any]:
            bad = not_finite(weights)
            if bad is not None:
                return {"bad": bad}
            if self._log is not None:
                self._log.sync()
            folder = checkpoint.save(out, about, lambda to: model.save_pretrained(to, weights), moments)
            checkpoint.prune(out, progress.step, self.config.keep, progress.best_step)
            return {"folder": str(folder)}

        note = self._on_first(write)
        if "bad" not in note:
            self.saved = Path(note["folder"])
            self.say("save", progress.step, {"folder": note["folder"]}, f"saved {self.saved.name}")
        return note.get("bad")

    def say(self, kind: str, step: int, values: dict[str, Any], text: str = "", *, log: bool = True) -> None:
        """One event, to the log (unless it is not its turn) and to whoever watches."""
        event = Event(kind, step, values, text)
        if self._log is not None and log:
            try:
                self._log.write(event)
            except OSError as error:
                raise CheckpointError(
                    f"{self._log.path} cannot be written ({error.strerror}), so training stops here; "
                    f"{checkpoint.last_good(self._log.path.parent)}"
                ) from error
        if self.on_event is not None:
            self.on_event(event)

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
        self._lock.close()

    def _opened(self, model: Model, resume: bool | str) -> dict[str, Any]:
        """What every process must know to begin. The folder is locked before anything in it is read or written."""
        if self.out is not None:
            self._lock.enter_context(exclusive(self.out))
        found = None if self.out is None else open_run(self.out, resume, model, self.config, self.data)
        self._found = found
        progress = Progress() if found is None else Progress.from_dict(found.trainer["progress"])
        choice = choose_autocast(self.config.autocast, model, None if found is None else progress.autocast)
        start = "from the start, as there is no checkpoint yet" if resume else "from the start"
        return {
            "progress": replace(progress, autocast=choice.name).to_dict(),
            "autocast": list(choice),
            "folder": "" if found is None else str(found.folder),
            "text": start if found is None else f"from {found.folder.name}",
        }

    def _on_first(self, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        note: dict[str, Any] = {}
        failure: Exception | None = None
        if self.team.rank == 0:
            try:
                note = work()
            except (ValueError, OSError) as error:
                failure, note = error, {"failure": str(error)}
        note = self.team.tell(note)
        if failure is not None:
            raise failure
        if "failure" in note:
            raise CheckpointError(note["failure"])
        return note
