"""Resuming: is this checkpoint the first half of the run that was asked for?

Another model, other data or a changed field of TrainConfig that enters the numbers is refused by name: the result would
be neither run. What a resume may change (steps, how often to save or evaluate, ...) is listed in config.FREE.
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

# what a run puts into trainer.json beside what every checkpoint has
RUN = Record({"progress": CONTENT, "config": Table(Accepts()), "data": Table(Maybe(Text()))}, open=True)


def open_run(
    out: Path, resume: bool | str, model: Model, config: TrainConfig, data: Mapping[str, Any]
) -> Checkpoint | None:
    """The checkpoint to continue from, or None for a new run. The caller holds the folder, which is tidy then."""
    out.mkdir(parents=True, exist_ok=True)
    checkpoint.clean(out)
    if not resume:
        there = checkpoint.names(out)
        if there:
            raise CheckpointError(
                f"{out} holds a run already, up to {there[-1]}; continue it with --resume, or choose another folder"
            )
        return None
    found = checkpoint.load(out, resume)
    if found is not None:
        check_same(found, model, config, data)
        if isinstance(resume, str):
            checkpoint.point(out, found.folder.name)  # from now on the run goes on from the one named by hand
        progress = found.trainer["progress"]
        checkpoint.prune(out, progress["step"], config.keep, progress["best_step"])  # a kill may have come before it
    return found


def check_same(found: Checkpoint, model: Model, config: TrainConfig, data: Mapping[str, Any]) -> None:
    """CheckpointError naming the first field in which the run asked for is not the run that was saved."""
    check(found.trainer, RUN, found.folder / TRAINER, "resume from an older checkpoint", refuse=CheckpointError)
    where, wanted = found.folder.name, model.config.to_dict()
    for name in (*wanted, *found.config):
        _equal(where, f"the model's {name}", found.config.get(name), wanted.get(name))
    check_weights(found.model, model.state_dict(), str(found.folder / WEIGHTS))
    try:
        before = TrainConfig.from_dict(found.trainer["config"])
    except ValueError as error:
        raise CheckpointError(f"{found.folder / TRAINER}: {error}; resume from an older checkpoint") from None
    changed = config.difference(before)
    if changed is not None:
        _equal(where, changed, getattr(before, changed), getattr(config, changed))
    for name, fingerprint in found.trainer["data"].items():
        _equal(where, f"the fingerprint of the {name} data", fingerprint, data[name])


def _equal(where: str, what: str, saved: object, given: object) -> None:
    if saved != given:
        raise CheckpointError(
            f"{what} is {given!r} but was {saved!r} when {where} was saved; "
            "resume with what it was, or start a new run in another folder"
        )
