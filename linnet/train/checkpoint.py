"""Checkpoints: folders of safetensors and JSON, each complete or not there at all.

    out/checkpoints/step-00001000/    model.safetensors  config.json  optimizer.safetensors  trainer.json
    out/latest                        "checkpoints/step-00001000"

A folder is written under a temporary name, flushed to the disk and renamed; only then does `latest` move and an old one
go. trainer.json holds the size and CRC-32 of every file, its own included: what is damaged is refused by name.
Nothing in a checkpoint can run.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ..atomic import remove_torn
from ..checksum import crc32_of_json
from ..json_file import as_json, read_object
from ..models.base import READABLE
from ..models.folder import (
    CONFIG,
    FOLDER,
    FORMAT,
    OPTIMIZER,
    POINTER,
    TRAINER,
    VERSION,
    WEIGHTS,
    facts_of,
    folder_name,
    newest_good,
    pointed,
    step_of,
)
from ..models.folder import CheckpointError as CheckpointError
from ..models.folder import names as names
from ..models.folder import verify as verify


class Checkpoint(NamedTuple):
    """One that has been read whole and found good."""

    folder: Path
    trainer: dict[str, Any]  # what trainer.json says
    config: dict[str, Any]  # the model's configuration
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]  # "parameter.key" -> tensor


def save(
    out: Path, trainer: Mapping[str, Any], write_model: Callable[[Path], None], optimizer: Mapping[str, Tensor]
) -> Path:
    """Write the checkpoint of trainer["step"] and point `latest` at it. `write_model` fills a folder with the model."""
    target = out / FOLDER / folder_name(trainer["step"])
    temporary = _temporary(target)
    try:
        temporary.mkdir(parents=True)
        write_model(temporary)
        save_file({name: x.detach().contiguous() for name, x in optimizer.items()}, temporary / OPTIMIZER)
        (temporary / OPTIMIZER).chmod(READABLE)
        files = {path.name: facts_of(path) for path in sorted(temporary.iterdir())}
        content = as_json({"format": FORMAT, "version": VERSION, **trainer, "files": files})
        text = json.dumps(content | {"crc32": crc32_of_json(content)}, indent=1)
        (temporary / TRAINER).write_text(text, encoding="utf-8")
        for path in (*temporary.iterdir(), temporary):
            _sync(path)
        if target.exists():  # left by steps that a resume from an older checkpoint has taken again
            _remove(target)
        os.replace(temporary, target)
        _sync(target.parent)
        point(out, target.name)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise CheckpointError(
            f"{target} could not be written ({error.__cause__ or error}), so training stops here; {last_good(out)}"
        ) from error
    except BaseException:  # an interrupt as well: nothing half-written stays behind
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return target


def load(out: Path, resume: bool | str = True) -> Checkpoint | None:
    """The checkpoint to continue from: the one `latest` names, or the one named. None when there is none yet."""
    folder = _chosen(out, resume)
    if folder is None:
        return None
    try:
        return read(folder)
    except CheckpointError as error:
        raise CheckpointError(f"{error}; {_older(folder)}") from error


def read(folder: Path) -> Checkpoint:
    """Everything in a checkpoint, once every file is as trainer.json says; CheckpointError names the file and why."""
    trainer = verify(folder)
    try:
        config = read_object(folder / CONFIG, "it is damaged")
        return Checkpoint(folder, trainer, config, _tensors(folder / WEIGHTS), _tensors(folder / OPTIMIZER))
    except (OSError, ValueError, SafetensorError) as error:
        raise CheckpointError(f"{folder} cannot be read ({error})") from error


def prune(out: Path, step: int, keep: int, best: int | None) -> None:
    """Remove checkpoints up to `step` beyond the `keep` newest, but never the best one nor the one `latest` names."""
    old = [name for name in names(out) if step_of(name) <= step][:-keep]
    spare = {pointed(out), None if best is None else folder_name(best)}
    for name in old:
        if name not in spare:
            _remove(out / FOLDER / name)


def clean(out: Path) -> None:
    """Remove what a killed process left half-written: whoever calls this holds the folder's lock."""
    remove_torn(out)
    for path in (out / FOLDER).glob(".step-*.tmp"):
        shutil.rmtree(path, ignore_errors=True)


def _chosen(out: Path, resume: bool | str) -> Path | None:
    there = names(out)
    if isinstance(resume, str):
        if resume not in there:
            some = ", ".join(there) or "none"
            raise CheckpointError(f"resume is {resume!r}, which is not in {out / FOLDER}; accepted: {some}")
        return out / FOLDER / resume
    last = pointed(out) or (there[-1] if there else None)
    return None if last is None else out / FOLDER / last


def _older(folder: Path) -> str:
    out = folder.parent.parent
    before = [name for name in names(out) if step_of(name) < step_of(folder.name)]
    good = newest_good(out, before)
    if good is None:
        return "there is no older good checkpoint, so start again in another folder"
    return f"the newest older good one is {good}: continue from it with --resume {good}"


def last_good(out: Path) -> str:
    """What is left when something could not be written, and what to do about it."""
    last = pointed(out)
    if last is None:
        return "nothing was saved before it, so make room and start again"
    return f"the last good checkpoint is {last}: make room and continue from it with --resume"


def _tensors(path: Path) -> dict[str, Tensor]:
    return {name: x.clone() for name, x in load_file(path).items()}  # copies: the file may go away


def point(out: Path, name: str) -> None:
    """Let `latest` name this checkpoint, in one atomic move."""
    temporary = _temporary(out / POINTER)
    temporary.write_text(f"{FOLDER}/{name}\n", encoding="utf-8")
    _sync(temporary)
    os.replace(temporary, out / POINTER)
    _sync(out)


def _remove(folder: Path) -> None:
    """Under a temporary name first: a kill half-way leaves nothing that looks like a checkpoint."""
    gone = _temporary(folder)
    os.replace(folder, gone)
    shutil.rmtree(gone, ignore_errors=True)


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
