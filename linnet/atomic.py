"""Files that are there whole or not at all: written under a temporary name beside, flushed to the disk, then renamed.

with atomic(path) as file: file.write(data)
with replacing(path) as new: save_file(tensors, new)        for a library that opens its file itself
remove_torn(folder)                                         what a killed process left half-written, and no others
with Created(folder) as created: ...; created.keep()        until `keep`, a failure removes what was created meanwhile
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EDQUOT, EFBIG, ENOSPC
from pathlib import Path
from typing import BinaryIO

from .lock import try_lock

FULL = (ENOSPC, EDQUOT, EFBIG)
_watching: list[Created] = []


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name in the folder of `path`, for a file that is renamed to it at the end; removed on any failure."""
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
    except BaseException as error:  # an interrupt as well: nothing half-written stays behind
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in FULL:
            reason = (error.strerror or "the disk is full").lower()
            raise OSError(f"{path} cannot be written ({reason}); make room, or name another place") from error
        raise


@contextmanager
def atomic(path: Path) -> Iterator[BinaryIO]:
    """A file to write, in place of `path` once it is complete."""
    with replacing(path) as temporary, open(temporary, "xb") as file:
        try_lock(file.fileno())  # it is being written: see `remove_torn`
        yield file


def remove_torn(folder: Path, names: str = ".*.tmp") -> None:
    """Remove the files of `atomic` and `replacing` that were never renamed, but for those that are being written."""
    for path in folder.glob(names):
        with suppress(OSError), open(path, "rb") as file:  # a folder is left alone; gone, or not ours: as well
            if try_lock(file.fileno()):
                path.unlink()


class Created:
    """The files that this process creates in a folder; leaving with an error removes them, and no others."""

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
        """This process has just created the file; `atomic` and `replacing` say so themselves."""
        if path.resolve().is_relative_to(self.folder):
            self.files.append(path)

    def keep(self) -> None:
        """From now on everything stays."""
        self.files = []
        _watching.remove(self)
