"""RunStore: the files and events of a run, handled by rank 0 for all processes.

It locks the run's folder (linnet/lock.py), loads a checkpoint into every process, writes new ones, keeps the log and
emits events. If rank 0 fails, every process raises the same error instead of waiting for it forever.
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
from .distributed import ProcessGroup
from .divergence import first_not_finite
from .log import Event, OnEvent, RunLog
from .progress import Progress
from .resume import open_run


@dataclass
class RunStore:
    """Checkpoints, log and events of a run; nothing is written if `out` is None.

    `data` (fingerprints) and `meta` go into every checkpoint.
    """

    out: Path | None
    config: TrainConfig
    group: ProcessGroup
    on_event: OnEvent | None
    data: dict[str, str | None]
    meta: dict[str, Any]

    def __post_init__(self) -> None:
        self.saved: Path | None = None  # the newest checkpoint of this run
        self._loaded: Checkpoint | None = None  # on rank 0, between `open` and `restore`
        self._log: RunLog | None = None
        self._lock = ExitStack()

    def open(self, model: Model, resume: bool | str) -> tuple[Progress, Choice, str]:
        """Return the starting point, the precision and a description; call `restore` once there is an optimizer."""
        note = self._on_rank_zero(lambda: self._open(model, resume))
        self.saved = Path(note["folder"]) if note["folder"] else None
        progress, choice = Progress.from_dict(note["progress"]), Choice(*note["autocast"])
        if self.out is not None and self.group.rank == 0:
            step = progress.step if self.saved else None
            self._log = RunLog(self.out, step=step, tensorboard=self.config.tensorboard)
        damaged = "".join(f"; {problem}" for problem in self._log.damaged) if self._log is not None else ""
        return progress, choice, f"{note['text']}; precision: {choice.text}{damaged}"

    def restore(self, model: Model, optimizer: torch.optim.Optimizer) -> None:
        """Load weights and moments from the checkpoint that `open` chose, if any."""
        if self.saved is not None:
            loaded, self._loaded = self._loaded, None
            self.group.load_model(model, loaded.model if loaded else {})
            self.group.load_optimizer(model, optimizer, loaded.optimizer if loaded else {})

    def save(self, model: Model, optimizer: torch.optim.Optimizer, progress: Progress) -> str | None:
        """Write a checkpoint, unless a weight is not finite: then return its name."""
        if self.out is None:
            return None
        out = self.out
        weights = self.group.model_state(model)
        moments = self.group.optimizer_state(model, optimizer)
        about = {"step": progress.step, "progress": progress.to_dict(), "config": self.config.to_dict()}
        about |= {"data": self.data, "meta": self.meta}

        def write() -> dict[str, Any]:
            bad = first_not_finite(weights)
            if bad is not None:
                return {"bad": bad}
            if self._log is not None:
                self._log.sync()
            folder = checkpoint.save(out, about, lambda to: model.save_pretrained(to, weights), moments)
            checkpoint.prune(out, progress.step, self.config.keep, progress.best_step)
            return {"folder": str(folder)}

        note = self._on_rank_zero(write)
        if "bad" not in note:
            self.saved = Path(note["folder"])
            self.emit("save", progress.step, {"folder": note["folder"]}, f"saved {self.saved.name}")
        return note.get("bad")

    def emit(self, kind: str, step: int, values: dict[str, Any], text: str = "", *, log: bool = True) -> None:
        """Write an event to the log (if `log`) and pass it to `on_event`."""
        event = Event(kind, step, values, text)
        if self._log is not None and log:
            try:
                self._log.write(event)
            except OSError as error:
                raise CheckpointError(
                    f"{self._log.path} cannot be written ({error.strerror}), so training stops here; "
                    f"{checkpoint.way_out(self._log.path.parent)}"
                ) from error
        if self.on_event is not None:
            self.on_event(event)

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
        self._lock.close()

    def _open(self, model: Model, resume: bool | str) -> dict[str, Any]:
        """Lock the folder, load the checkpoint and return what every process needs to begin."""
        if self.out is not None:
            self._lock.enter_context(exclusive(self.out))
        loaded = None if self.out is None else open_run(self.out, resume, model, self.config, self.data)
        self._loaded = loaded
        progress = Progress() if loaded is None else Progress.from_dict(loaded.trainer["progress"])
        choice = choose_autocast(self.config.autocast, model, None if loaded is None else progress.autocast)
        start = "from the start, as there is no checkpoint yet" if resume else "from the start"
        return {
            "progress": replace(progress, autocast=choice.name).to_dict(),
            "autocast": list(choice),
            "folder": "" if loaded is None else str(loaded.folder),
            "text": start if loaded is None else f"from {loaded.folder.name}",
        }

    def _on_rank_zero(self, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Run `work` on rank 0 and return its result, or raise its failure, on every rank."""
        note: dict[str, Any] = {}
        failure: Exception | None = None
        if self.group.rank == 0:
            try:
                note = work()
            except (ValueError, OSError) as error:
                failure, note = error, {"failure": str(error)}
        note = self.group.broadcast_json(note)
        if failure is not None:
            raise failure
        if "failure" in note:
            raise CheckpointError(note["failure"])
        return note
