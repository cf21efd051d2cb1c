"""Files that are there whole or not at all: written under a temporary name beside, flushed to the disk, then renamed.

with atomic(path) as file: file.write(data)
with replacing(path) as new: save_file(tensors, new)        for a library that opens its file itself
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


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
        os.replace(temporary, path)
    except BaseException:  # an interrupt as well: nothing half-written stays behind
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def atomic(path: Path) -> Iterator[BinaryIO]:
    """A file to write, in place of `path` once it is complete."""
    with replacing(path) as temporary, open(temporary, "xb") as file:
        yield file
