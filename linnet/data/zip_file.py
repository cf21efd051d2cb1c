"""Read zip archives and npz files within limits: sizes are compared with the archive before memory is allocated.

    with open_zip(path) as archive: data = read_member(archive, "a.txt", path)
    arrays = read_npz(path, ["images", "labels"])          numbers only, no pickle, no evaluated header

The bytes of a member are known from the archive's table; an array's shape and type must give exactly these. A member
that is compressed may expand to `LIMITS.UNPACKED_BYTES`; one that is stored is as large as it looks.
"""

from __future__ import annotations

import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ..limits import LIMITS

Array = np.ndarray[Any, Any]
# what `zipfile` raises for damaged or encrypted archives and unsupported features
DAMAGED = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError, RuntimeError, OverflowError)
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
MAGIC = b"\x93NUMPY"
HEADER = re.compile(  # as every version of numpy writes it
    rb"\{'descr': '([<>|=]?[biuf]\d{1,2})', 'fortran_order': (False|True), 'shape': \(([\dL, ]*)\), ?\}\s*"
)
PIECE = 1 << 20


@contextmanager
def open_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open an archive; any damage to it or to what is read from it raises one ValueError."""
    try:
        with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
            yield archive
    except (*DAMAGED, UnicodeDecodeError, OSError) as error:
        if isinstance(error, OSError) and error.filename is not None:  # an error of the disk, not of the archive
            raise
        raise ValueError(f"{path} is not a complete zip file ({reason(error)}); copy it again") from error


def read_member(archive: zipfile.ZipFile, name: str, path: Path) -> bytes:
    """Return one member, decompressed, its CRC-32 verified."""
    try:
        info = archive.getinfo(name)
    except KeyError:
        raise ValueError(f"{path} lacks {name!r}; accepted: the archive as it was published; copy it again") from None
    if info.compress_type not in METHODS or info.flag_bits & 1:
        raise ValueError(f"{path}: {name!r} is encrypted or uses an unusual compression; accepted: stored or deflated")
    if info.compress_type == zipfile.ZIP_DEFLATED and info.file_size > LIMITS.UNPACKED_BYTES:
        most = LIMITS.UNPACKED_BYTES
        raise ValueError(
            f"{path}: {name!r} decompresses to {info.file_size:,} bytes; accepted: {most:,} at most; store it plainly"
        )
    with archive.open(info) as file:
        data = take(file, info.file_size + 1)
    if len(data) != info.file_size:
        raise ValueError(f"{path}: {name!r} is not {info.file_size:,} bytes long, as the archive states; copy it again")
    return data


def take(file: Any, most: int) -> bytes:
    """Read up to `most` bytes of a stream in pieces, so that memory grows only with the data present."""
    pieces, left = [], most
    while left > 0 and (piece := file.read(min(PIECE, left))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def npz_names(path: Path) -> list[str]:
    """Return the names of the arrays in an npz file."""
    with open_zip(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist()]


def read_npz(path: Path, names: list[str]) -> dict[str, Array]:
    """Return these arrays of an npz file."""
    with open_zip(path) as archive:
        members = set(archive.namelist())
        return {
            name: parse_npy(read_member(archive, f"{name}.npy" if f"{name}.npy" in members else name, path), name, path)
            for name in names
        }


def parse_npy(data: bytes, name: str, path: Path) -> Array:
    """Parse an array in numpy's format."""
    size = {1: 2, 2: 4, 3: 4}.get(data[6] if len(data) > 6 else 0, 0)
    start = 8 + size + int.from_bytes(data[8 : 8 + size], "little")
    header = HEADER.fullmatch(data[8 + size : min(start, 8 + size + 10_000)])
    if not data.startswith(MAGIC) or header is None:
        raise ValueError(f"{path}: {name!r} is not an array of plain numbers; accepted: what numpy.savez writes")
    shape = tuple(int(part.strip("L")) for part in header[3].decode().replace(" ", "").split(",") if part.strip("L"))
    dtype = _dtype(header[1].decode(), name, path)
    if prod(shape) * dtype.itemsize != len(data) - start or len(shape) > 32:
        raise ValueError(
            f"{path}: {name!r} states {dtype} {list(shape)} and has {len(data) - start:,} bytes; write it again"
        )
    array = np.frombuffer(data, dtype, offset=start).copy()  # writable, as from numpy.load
    return array.reshape(shape[::-1]).T if header[2] == b"True" else array.reshape(shape)


def _dtype(text: str, name: str, path: Path) -> np.dtype[Any]:
    try:
        return np.dtype(text)
    except TypeError:
        raise ValueError(f"{path}: {name!r} has dtype {text!r}; accepted: numeric dtypes of numpy") from None


def reason(error: Exception) -> str:
    """Return the message of an exception as one short line: some quote the bytes they read."""
    return " ".join(str(error).split())[:200] or type(error).__name__
