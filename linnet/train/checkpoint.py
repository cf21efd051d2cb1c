"""Checkpoints: folders of safetensors and JSON, written atomically.

    out/checkpoints/step-00001000/    model.safetensors  config.json  optimizer.safetensors  trainer.json
    out/latest                        "checkpoints/step-00001000"

A folder is written under a temporary name, flushed to disk and renamed; only then is `latest` updated and an old
checkpoint removed. trainer.json holds the size and CRC-32 of every file, including its own, and an error names the
damaged file. A checkpoint contains no code.
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
from ..errors import Option
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
    """The content of a checkpoint whose checksums have been verified."""

    folder: Path
    trainer: dict[str, Any]  # the content of trainer.json
    config: dict[str, Any]  # the model's configuration
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]  # "parameter.key" -> tensor


def save(
    out: Path, trainer: Mapping[str, Any], write_model: Callable[[Path], None], optimizer: Mapping[str, Tensor]
) -> Path:
    """Write the checkpoint of trainer["step"] and point `latest` at it; `write_model` writes the model to a folder."""
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
        if target.exists():  # from before a resume from an older checkpoint, which repeated these steps
            _remove(target)
        os.replace(temporary, target)
        _sync(target.parent)
        set_latest(out, target.name)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise CheckpointError(
            f"{target} could not be written ({error.__cause__ or error}), so training stops here; {way_out(out)}"
        ) from error
    except BaseException:  # interrupts included: no temporary folder stays behind
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return target


def load(out: Path, resume: bool | str = True) -> Checkpoint | None:
    """Return the checkpoint to continue from: the one in `latest` or the one named; None if there is none yet."""
    folder = _choose(out, resume)
    if folder is None:
        return None
    try:
        return read(folder)
    except CheckpointError as error:
        raise _with_older(error, folder) from error


def read(folder: Path) -> Checkpoint:
    """Verify every file against trainer.json and return the content; CheckpointError names the damaged file."""
    trainer = verify(folder)
    try:
        config = read_object(folder / CONFIG, "it is damaged")
        return Checkpoint(folder, trainer, config, _tensors(folder / WEIGHTS), _tensors(folder / OPTIMIZER))
    except (OSError, ValueError, SafetensorError) as error:
        raise CheckpointError(f"{folder} cannot be read ({error})") from error


def prune(out: Path, step: int, keep: int, best: int | None) -> None:
    """Remove checkpoints up to `step` beyond the `keep` newest, except the best one and the one in `latest`."""
    old = [name for name in names(out) if step_of(name) <= step][:-keep]
    spare = {pointed(out), None if best is None else folder_name(best)}
    for name in old:
        if name not in spare:
            _remove(out / FOLDER / name)


def clean(out: Path) -> None:
    """Remove temporary files and folders that a killed process left behind; the caller holds the folder's lock."""
    remove_torn(out)
    for path in (out / FOLDER).glob(".step-*.tmp"):
        shutil.rmtree(path, ignore_errors=True)


def _choose(out: Path, resume: bool | str) -> Path | None:
    existing = names(out)
    if isinstance(resume, str):
        if resume not in existing:
            accepted = ", ".join(existing) or "none"
            raise CheckpointError(f"resume is {resume!r}, which is not in {out / FOLDER}; accepted: {accepted}")
        return out / FOLDER / resume
    last = pointed(out) or (existing[-1] if existing else None)
    return None if last is None else out / FOLDER / last


def _with_older(error: CheckpointError, folder: Path) -> CheckpointError:
    """Return the error of a damaged checkpoint with the way out: the newest older one that is good."""
    out = folder.parent.parent
    before = [name for name in names(out) if step_of(name) < step_of(folder.name)]
    good = newest_good(out, before)
    if good is None:
        return CheckpointError(
            str(error), otherwise="there is no older good checkpoint, so start again in another folder"
        )
    return CheckpointError(str(error), Option("resume", good, "continue from the newest older good checkpoint"))


def way_out(out: Path) -> str:
    """Return the last good checkpoint and the way out after a failed write."""
    last = pointed(out)
    if last is None:
        return "nothing was saved before it, so free some space and start again"
    return f"the last good checkpoint is {last}: free some space and continue from it with --resume"


def _tensors(path: Path) -> dict[str, Tensor]:
    return {name: x.clone() for name, x in load_file(path).items()}  # copies: the file may be removed


def set_latest(out: Path, name: str) -> None:
    """Make `latest` name this checkpoint, atomically."""
    temporary = _temporary(out / POINTER)
    temporary.write_text(f"{FOLDER}/{name}\n", encoding="utf-8")
    _sync(temporary)
    os.replace(temporary, out / POINTER)
    _sync(out)


def _remove(folder: Path) -> None:
    """Remove a checkpoint; it is renamed first, so that a kill halfway leaves nothing that looks like one."""
    temporary = _temporary(folder)
    os.replace(folder, temporary)
    shutil.rmtree(temporary, ignore_errors=True)


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
