"""Atomic file writes: write to a temporary file in the same folder, flush it to disk, then rename it.

with atomic(path) as file: file.write(data)
with replacing(path) as new: save_file(tensors, new)        for a library that opens the file itself
remove_torn(folder)                                         removes temporary files that a killed process left behind
with new_folder(path) as new: ...                           a folder that appears whole or not at all
with Created(folder) as created: ...; created.keep()        until `keep`, a failure removes the files created so far
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EDQUOT, EFBIG, ENOSPC
from pathlib import Path
from typing import BinaryIO

from .errors import ArgumentError
from .lock import try_lock

FULL = (ENOSPC, EDQUOT, EFBIG)
_watching: list[Created] = []


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to `path`; rename it to `path` on success, remove it on any failure."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent}; create it before writing {path.name}")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        is_new = not path.exists()
        os.replace(temporary, path)
        for watch in _watching if is_new else ():
            watch.note(path)
    except BaseException as error:  # interrupts included: no temporary file stays behind
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in FULL:
            reason = (error.strerror or "the disk is full").lower()
            raise OSError(f"{path} cannot be written ({reason}); free some space, or choose another path") from error
        raise


@contextmanager
def atomic(path: Path) -> Iterator[BinaryIO]:
    """Yield a file open for writing; it replaces `path` when the block ends without an error."""
    with replacing(path) as temporary, open(temporary, "xb") as file:
        try_lock(file.fileno())  # marks it as being written: see `remove_torn`
        yield file


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder next to `path`; on success it becomes `path`, which must be new or empty."""
    check_new(path)
    missing = [folder for folder in path.absolute().parents if not folder.exists()]
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        temporary.mkdir(parents=True)
        yield temporary
        try:
            temporary.rename(path)
        except OSError:
            check_new(path)  # raises if somebody has filled it in the meantime
            raise
    except BaseException:  # interrupts included: no temporary folder stays behind
        shutil.rmtree(temporary, ignore_errors=True)
        for folder in missing:
            with suppress(OSError):  # not empty
                folder.rmdir()
        raise


def check_new(path: Path) -> None:
    """Raise ArgumentError if there is a file at `path`, or a folder with something in it."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ArgumentError("out", str(path), "a folder that does not exist yet, or is empty")


def remove_torn(folder: Path, names: str = ".*.tmp") -> None:
    """Remove temporary files that were never renamed, except those being written."""
    for path in folder.glob(names):
        with suppress(OSError), open(path, "rb") as file:  # skip folders, and files already removed or not ours
            if try_lock(file.fileno()):
                path.unlink()


class Created:
    """Track the files this process creates in a folder and remove them, and no others, when the block fails."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.files = folder.resolve(), list[Path]()

    def __enter__(self) -> Created:
        _watching.append(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self in _watching:
            _watching.remove(self)
        for path in self.files if kind is not None else ():
            path.unlink(missing_ok=True)

    def note(self, path: Path) -> None:
        """Record a file that this process has just created; `atomic` and `replacing` call this themselves."""
        if path.resolve().is_relative_to(self.folder):
            self.files.append(path)

    def keep(self) -> None:
        """Keep the files and stop tracking."""
        self.files = []
        _watching.remove(self)
