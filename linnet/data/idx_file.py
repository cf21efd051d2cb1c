"""Read LeCun's idx files of bytes, plain or gzip; no more is decompressed than the header states.

0, 0, 8 (uint8), number of dimensions, sizes as big-endian int32, then the bytes
"""

from __future__ import annotations

import gzip
import zlib
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from ..limits import LIMITS
from .zip_file import take

DIMENSIONS = 8  # images have 3 or 4


def read_idx(file: Path) -> np.ndarray[Any, Any]:
    """Return the array of an idx file, uint8."""
    with file.open("rb") as opened:
        packed = opened.read(2) == b"\x1f\x8b"
    try:
        with cast(BinaryIO, gzip.open(file)) if packed else file.open("rb") as data:
            return _array(data, file, packed)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{file} is a damaged gzip file ({error}); copy it again") from error


def _array(data: BinaryIO, file: Path, packed: bool) -> np.ndarray[Any, Any]:
    start = data.read(4)
    count = start[3] if len(start) == 4 else 0
    head = data.read(4 * count) if count <= DIMENSIONS else b""
    if start[:3] != b"\x00\x00\x08" or not count or len(head) < 4 * count:
        raise ValueError(f"{file} begins with {start!r}; accepted: idx files of bytes, npz or a folder of PNG files")
    sizes = [int.from_bytes(head[i : i + 4], "big", signed=True) for i in range(0, len(head), 4)]
    if min(sizes) < 0:
        raise ValueError(f"{file} states {sizes}; accepted: sizes of 0 or more; it is damaged, so copy it again")
    wanted = prod(sizes)
    if packed and wanted > LIMITS.UNPACKED_BYTES:
        most = LIMITS.UNPACKED_BYTES
        raise ValueError(
            f"{file} states {sizes}, {wanted:,} bytes decompressed; accepted: {most:,} at most; run gunzip on it first"
        )
    values = take(data, wanted + 1) if packed or wanted <= file.stat().st_size else b""
    if len(values) != wanted:
        held = f"more than {wanted:,}" if len(values) > wanted else f"{len(values):,}"
        held = held if packed else f"{file.stat().st_size - 4 - 4 * count:,}"
        raise ValueError(f"{file} states {sizes} and holds {held} bytes; it is damaged, so copy it again")
    return np.frombuffer(values, dtype=np.uint8).reshape(sizes)
