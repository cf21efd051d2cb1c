"""Resuming: check that a checkpoint belongs to the requested run.

Another model, other data or a changed hyperparameter is refused by name: the result would belong to neither run.
config.MAY_CHANGE lists what a resume may change (steps, how often to save or evaluate, ...).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..models import Model
from ..models.base import WEIGHTS, check_weights
from ..models.folder import TRAINER
from ..schema import Accepts, Maybe, Record, Table, Text, check
from . import checkpoint
from .checkpoint import Checkpoint, CheckpointError
from .config import TrainConfig
from .progress import CONTENT

# what a run adds to trainer.json
RUN = Record({"progress": CONTENT, "config": Table(Accepts()), "data": Table(Maybe(Text()))}, open=True)


def open_run(
    out: Path, resume: bool | str, model: Model, config: TrainConfig, data: Mapping[str, Any]
) -> Checkpoint | None:
    """Return the checkpoint to continue from, or None for a new run. The caller holds the folder's lock."""
    out.mkdir(parents=True, exist_ok=True)
    checkpoint.clean(out)
    if not resume:
        existing = checkpoint.names(out)
        if existing:
            raise CheckpointError(
                f"{out} holds a run already, up to {existing[-1]}; continue it with --resume, or choose another folder"
            )
        return None
    loaded = checkpoint.load(out, resume)
    if loaded is not None:
        check_same_run(loaded, model, config, data)
        if isinstance(resume, str):
            checkpoint.set_latest(out, loaded.folder.name)  # later resumes continue from it too
        progress = loaded.trainer["progress"]
        checkpoint.prune(out, progress["step"], config.keep, progress["best_step"])  # the run may have died before it
    return loaded


def check_same_run(saved: Checkpoint, model: Model, config: TrainConfig, data: Mapping[str, Any]) -> None:
    """Raise CheckpointError naming the first field in which the requested run differs from the saved one."""
    check(saved.trainer, RUN, saved.folder / TRAINER, "resume from an older checkpoint", refuse=CheckpointError)
    where, requested = saved.folder.name, model.config.to_dict()
    for name in (*requested, *saved.config):
        _check_equal(where, f"the model's {name}", saved.config.get(name), requested.get(name))
    check_weights(saved.model, model.state_dict(), str(saved.folder / WEIGHTS))
    try:
        before = TrainConfig.from_dict(saved.trainer["config"])
    except ValueError as error:
        raise CheckpointError(f"{saved.folder / TRAINER}: {error}; resume from an older checkpoint") from None
    changed = config.difference(before)
    if changed is not None:
        _check_equal(where, changed, getattr(before, changed), getattr(config, changed))
    for name, fingerprint in saved.trainer["data"].items():
        _check_equal(where, f"the fingerprint of the {name} data", fingerprint, data.get(name))


def _check_equal(where: str, what: str, saved: object, requested: object) -> None:
    if saved != requested:
        raise CheckpointError(
            f"{what} is {requested!r} but was {saved!r} when {where} was saved; "
            "resume with the old value, or start a new run in another folder"
        )
