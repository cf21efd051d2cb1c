"""Find the weights in the folder of a model or of a training run, and verify them.

    FOLDER/config.json, model.safetensors                       written by save_pretrained and `linnet import`
    RUN/latest, RUN/checkpoints/step-00001000/...               written by training; trainer.json has sizes and CRC-32s

`find_model` chooses the checkpoint: the best by held-out loss unless another is named. `verify` compares the files that
will be read with trainer.json. The name in `latest` must be that of a folder directly inside checkpoints/.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from ..checksum import crc32_of_file, crc32_of_json
from ..errors import Option, OptionError, brief
from ..json_file import read_json
from ..schema import Record, Table, Text, Whole, check

CONFIG, WEIGHTS = "config.json", "model.safetensors"
OPTIMIZER, TRAINER = "optimizer.safetensors", "trainer.json"
FOLDER, POINTER, RUN = "checkpoints", "latest", "run.json"
FORMAT, VERSION = "linnet-checkpoint", 1
NAME = re.compile(r"step-[0-9]{8,16}")
HEAD = Record({"format": Text(), "version": Whole()}, open=True)  # trainer.json of any version
CONTENT = Record(  # trainer.json of this version
    {"crc32": Text(), "files": Table(Record({"bytes": Whole(), "crc32": Text()})), "step": Whole()}, open=True
)
BEST, NEWEST = "best", "newest"


class CheckpointError(OptionError):
    """A checkpoint that cannot be written or read."""


class ModelFolder(NamedTuple):
    """A folder with a configuration and weights."""

    folder: Path
    trainer: dict[str, Any] | None = None  # content of trainer.json, for a checkpoint
    note: str = ""  # which checkpoint it is, if the choice needs a word


def find_model(path: Path, checkpoint: str | None = None) -> ModelFolder:
    """Return the folder of the weights that `path` stands for; the files of a checkpoint are verified.

    `checkpoint`, for a run's folder: best (None), newest, a step such as 200, or a name such as step-00000200.
    """
    if (path / POINTER).is_file() or (path / RUN).is_file() or names(path):
        return _find_in_run(path, checkpoint or BEST)
    if checkpoint is not None:
        raise ValueError(f"checkpoint is {checkpoint!r}, but {path} is not the folder of a run; leave it out")
    if NAME.fullmatch(path.name) and path.parent.name == FOLDER:
        return ModelFolder(path, verify(path, (CONFIG, WEIGHTS)))
    return ModelFolder(path)


def _find_in_run(path: Path, checkpoint: str) -> ModelFolder:
    name = checkpoint_name(path, checkpoint)
    try:
        trainer = verify(path / FOLDER / name, (CONFIG, WEIGHTS))
    except CheckpointError as error:
        good = newest_good(path, [other for other in names(path) if other != name])
        way = f"use another with --checkpoint {good}" if good else "there is no other good checkpoint"
        raise CheckpointError(f"{error}; {way}") from error
    last = pointed(path) or names(path)[-1]
    if checkpoint == BEST and name != last:
        note = f"using {name}, the best by held-out loss; --checkpoint {NEWEST} takes {last}"
        return ModelFolder(path / FOLDER / name, trainer, note)
    return ModelFolder(path / FOLDER / name, trainer)


def checkpoint_name(path: Path, checkpoint: str) -> str:
    """Return the name of the checkpoint that `checkpoint` selects in a run's folder."""
    there = names(path)
    last = pointed(path) or (there[-1] if there else None)
    if last is None:
        raise CheckpointError(f"{path} has no checkpoint yet; train longer, or save earlier with --save-every")
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
    """Return the name of the checkpoint with the lowest held-out loss, as the newest one records it."""
    progress = verify(newest, ()).get("progress")
    step = progress.get("best_step") if isinstance(progress, dict) else None
    return folder_name(step) if isinstance(step, int) else None


def verify(folder: Path, files: Collection[str] | None = None) -> dict[str, Any]:
    """Return trainer.json after verifying its CRC-32 and the sizes and CRC-32s of `files` (None: all)."""
    if folder.is_symlink():
        raise CheckpointError(f"{folder} is a link; accepted: a folder directly inside {FOLDER}")
    path = folder / TRAINER
    if not path.is_file():
        raise CheckpointError(f"{path} is missing")
    damaged, refuse = "it is damaged", CheckpointError
    trainer = check(read_json(path, damaged, refuse=refuse, nan=True), HEAD, path, damaged, refuse=refuse)
    kind, version = trainer["format"], trainer["version"]
    if (kind, version) != (FORMAT, VERSION):
        raise CheckpointError(f"{path} is {kind[:80]} version {version}, and this linnet reads {FORMAT} {VERSION}")
    check(trainer, CONTENT, path, damaged, refuse=refuse)
    crc32, facts = trainer.pop("crc32"), trainer["files"]
    if crc32 != crc32_of_json(trainer):
        raise CheckpointError(f"{path} is damaged: its crc32 is not {brief(crc32)}")
    for name in {CONFIG, WEIGHTS, OPTIMIZER} | set(facts) if files is None else files:
        _compare(folder / name, facts.get(name))
    return dict(trainer)


def names(out: Path) -> list[str]:
    """Return the names of the checkpoints in a run's folder, oldest first."""
    folder = out / FOLDER
    inside = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return sorted((name for name in inside if NAME.fullmatch(name)), key=step_of)


def pointed(out: Path) -> str | None:
    """Return the name in `latest`, or None before the first save."""
    pointer = out / POINTER
    if not pointer.exists():
        return None
    with open(pointer, "rb") as file:
        text = file.read(200).decode(errors="replace").strip()
    name = text.removeprefix(f"{FOLDER}/")
    if not NAME.fullmatch(name):
        good = newest_good(out, names(out))
        problem = f"{pointer} says {text!r}; accepted: a name such as {FOLDER}/step-00001000"
        if good is None:
            raise CheckpointError(problem, otherwise="there is no good checkpoint next to it")
        raise CheckpointError(problem, Option("resume", good, "continue from the newest good checkpoint"))
    return name


def newest_good(out: Path, candidates: list[str]) -> str | None:
    """Return the last of these checkpoints whose files all verify, or None."""
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
    """Return size and CRC-32 of a file, as trainer.json has them."""
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
