"""CRC-32 checksums of the files that linnet writes and reads back, as eight hexadecimal digits.

    crc32_of_bytes(chunks)     bytes, chunk by chunk            crc32_of_file(path)      the bytes of a file
    crc32_of_json(content)     a JSON object with sorted keys

Each can continue from another checksum. A checksum detects damage, not forgery, so readers also validate the content.
ops/state_file.py computes the checksum of a safetensors file.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

CHUNK = 1 << 20  # bytes read at a time


def crc32_of_bytes(chunks: Iterable[Any], start: str = "0") -> str:
    """Return the checksum of chunks of bytes (or contiguous buffers), continued from `start`."""
    crc = int(start, 16)
    for chunk in chunks:
        crc = zlib.crc32(chunk, crc)
    return f"{crc:08x}"


def crc32_of_file(path: str | os.PathLike[str], start: str = "0") -> str:
    """Return the checksum of the bytes of a file."""
    with open(path, "rb") as file:
        return crc32_of_bytes(iter(lambda: file.read(CHUNK), b""), start)


def crc32_of_json(content: Mapping[str, Any], start: str = "0") -> str:
    """Return the checksum of `content` as JSON, independent of the order of its keys."""
    return crc32_of_bytes([json.dumps(content, sort_keys=True).encode()], start)
