"""The CRC-32 that guards what linnet writes and reads again, as eight hexadecimal digits.

    crc32_of_bytes(pieces)     bytes, piece by piece            crc32_of_file(path)      the bytes of a file
    crc32_of_json(content)     a JSON object, its keys in order

Each can continue from another sum. The sum finds damage; it is no proof against forgery, so a reader checks what a file
says as well. ops/state_file.py has the sum of a safetensors file.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

PIECE = 1 << 20


def crc32_of_bytes(pieces: Iterable[Any], start: str = "0") -> str:
    """Return the sum of pieces of bytes, or of anything that holds bytes in a row; `start`: of what comes before."""
    crc = int(start, 16)
    for piece in pieces:
        crc = zlib.crc32(piece, crc)
    return f"{crc:08x}"


def crc32_of_file(path: str | os.PathLike[str], start: str = "0") -> str:
    """Return the sum of the bytes of a file."""
    with open(path, "rb") as file:
        return crc32_of_bytes(iter(lambda: file.read(PIECE), b""), start)


def crc32_of_json(content: Mapping[str, Any], start: str = "0") -> str:
    """Return the sum of the JSON text of `content`, whatever the order of its keys."""
    return crc32_of_bytes([json.dumps(content, sort_keys=True).encode()], start)
