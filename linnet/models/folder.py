"""The folder of a model, or of a training run: which weights are meant, and are they whole?

    FOLDER/config.json, model.safetensors                       written by save_pretrained, by import
    RUN/latest, RUN/checkpoints/step-00001000/...               written by training; trainer.json has size and CRC-32

`find` chooses the checkpoint: the best by held-out loss unless another is named. `verify` compares every file that will
be read with what trainer.json says. A name in `latest` is one of a folder directly inside checkpoints/, or is refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from ..checksum import crc32_of_file, crc32_of_json
from ..errors import brief
from ..json_file import read_json
from ..schema import Record, Table, Text, Whole, check

CONFIG, WEIGHTS = "config.json", "model.safetensors"
OPTIMIZER, TRAINER = "optimizer.safetensors", "trainer.json"
FOLDER, POINTER, RUN = "checkpoints", "latest", "run.json"
FORMAT, VERSION = "linnet-checkpoint", 1
NAME = re.compile(r"step-[0-9]{8,16}")
HEAD = Record({"format": Text(), "version": Whole()}, open=True)  # of every version of trainer.json
CONTENT = Record(  # of this one
    {"crc32": Text(), "files": Table(Record({"bytes": Whole(), "crc32": Text()})), "step": Whole()}, open=True
)
BEST, NEWEST = "best", "newest"


class CheckpointError(ValueError):
    """A checkpoint that cannot be written, or cannot be read; the sentence says why and what to do."""


class Found(NamedTuple):
    """A folder with a configuration and weights."""

    folder: Path
    trainer: dict[str, Any] | None = None  # of a checkpoint: what trainer.json says
    note: str = ""  # which checkpoint it is, where a run has several


def find(path: Path, checkpoint: str | None = None) -> Found:
    """The model that `path` stands for, its files verified where there is something to verify them with.

    checkpoint: of a run's folder: best (None), newest, a step such as 200, or a name such as step-00000200.
    """
    if (path / POINTER).is_file() or (path / RUN).is_file() or names(path):
        return _of_run(path, checkpoint or BEST)
    if checkpoint is not None:
        raise ValueError(f"checkpoint is {checkpoint!r}, but {path} is not the folder of a run; leave it out")
    if NAME.fullmatch(path.name) and path.parent.name == FOLDER:
        return Found(path, verify(path, (CONFIG, WEIGHTS)))
    return Found(path)


def _of_run(path: Path, checkpoint: str) -> Found:
    name = chosen(path, checkpoint)
    try:
        trainer = verify(path / FOLDER / name, (CONFIG, WEIGHTS))
    except CheckpointError as error:
        good = newest_good(path, [other for other in names(path) if other != name])
        way = f"use another one with --checkpoint {good}" if good else "there is no other good checkpoint"
        raise CheckpointError(f"{error}; {way}") from error
    last = pointed(path) or names(path)[-1]
    if checkpoint == BEST and name != last:
        note = f"{name} is used, the best by held-out loss; the newest, {last}, is --checkpoint {NEWEST}"
        return Found(path / FOLDER / name, trainer, note)
    return Found(path / FOLDER / name, trainer)


def chosen(path: Path, checkpoint: str) -> str:
    """The name of the checkpoint that is meant."""
    there = names(path)
    last = pointed(path) or (there[-1] if there else None)
    if last is None:
        raise CheckpointError(f"{path} has no checkpoint yet; train longer, or until the first with --save-every")
    if checkpoint in (BEST, NEWEST):
        best = _best(path / FOLDER / last) if checkpoint == BEST else None
        return best if best in there else last
    name = folder_name(int(checkpoint)) if checkpoint.isdecimal() else checkpoint
    if name not in there:
        raise CheckpointError(
            f"checkpoint is {checkpoint!r}, which is not in {path / FOLDER}; accepted: {BEST}, {NEWEST}, "
            f"{', '.join(there)}"
        )
    return name


def _best(newest: Path) -> str | None:
    """The name of the checkpoint with the lowest held-out loss, as the newest one has it."""
    progress = verify(newest, ()).get("progress")
    step = progress.get("best_step") if isinstance(progress, dict) else None
    return folder_name(step) if isinstance(step, int) else None


def verify(folder: Path, files: Collection[str] | None = None) -> dict[str, Any]:
    """What trainer.json says, once its own CRC-32 and the size and CRC-32 of these files, or of all, are right."""
    if folder.is_symlink():
        raise CheckpointError(f"{folder} is a link; accepted: a folder of its own directly inside {FOLDER}")
    path = folder / TRAINER
    if not path.is_file():
        raise CheckpointError(f"{path} is missing")
    damaged, refuse = "it is not whole", CheckpointError
    trainer = check(read_json(path, damaged, refuse=refuse, nan=True), HEAD, path, damaged, refuse=refuse)
    found = (trainer["format"], trainer["version"])
    if found != (FORMAT, VERSION):
        raise CheckpointError(f"{path} is {found[0][:80]} version {found[1]}, and this linnet reads {FORMAT} {VERSION}")
    check(trainer, CONTENT, path, damaged, refuse=refuse)
    crc32, facts = trainer.pop("crc32"), trainer["files"]
    if crc32 != crc32_of_json(trainer):
        raise CheckpointError(f"{path} is damaged: its crc32 is not {brief(crc32)}")
    for name in {CONFIG, WEIGHTS, OPTIMIZER} | set(facts) if files is None else files:
        _compare(folder / name, facts.get(name))
    return dict(trainer)


def names(out: Path) -> list[str]:
    """Names of the checkpoints in a run's folder, oldest first."""
    folder = out / FOLDER
    found = [path.name for path in folder.iterdir() if NAME.fullmatch(path.name)] if folder.is_dir() else []
    return sorted(found, key=step_of)


def pointed(out: Path) -> str | None:
    """The name in `latest`, or None before the first save."""
    pointer = out / POINTER
    if not pointer.exists():
        return None
    with open(pointer, "rb") as file:
        text = file.read(200).decode(errors="replace").strip()
    name = text.removeprefix(f"{FOLDER}/")
    if not NAME.fullmatch(name):
        good = newest_good(out, names(out))
        way = f"continue with --resume {good}" if good else "there is no good checkpoint beside it"
        raise CheckpointError(f"{pointer} says {text!r}; accepted: {FOLDER}/step-00001000 or the like; {way}")
    return name


def newest_good(out: Path, candidates: list[str]) -> str | None:
    for name in reversed(candidates):
        try:
            verify(out / FOLDER / name)
        except CheckpointError:
            continue
        return name
    return None


def folder_name(step: int) -> str:
    return f"step-{step:08d}"


def step_of(name: str) -> int:
    return int(name.removeprefix("step-"))


def facts_of(path: Path) -> dict[str, Any]:
    """Size and CRC-32 of a file, as trainer.json has them."""
    return {"bytes": path.stat().st_size, "crc32": crc32_of_file(path)}


def _compare(path: Path, wanted: dict[str, Any] | None) -> None:
    if wanted is None or not path.is_file():
        raise CheckpointError(f"{path} is missing" + ("" if wanted else f" in {TRAINER}"))
    size = path.stat().st_size
    if size != wanted["bytes"]:
        raise CheckpointError(f"{path} has {size} bytes where {TRAINER} says {wanted['bytes']}")
    crc32 = facts_of(path)["crc32"]
    if crc32 != wanted["crc32"]:
        raise CheckpointError(f"{path} is damaged: its crc32 is {crc32} where {TRAINER} says {brief(wanted['crc32'])}")
