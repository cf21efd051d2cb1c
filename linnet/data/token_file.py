"""Token files: the ids of one text, tokenised once and memory-mapped, in a safetensors file with their provenance.

    8 bytes length | JSON header, padded with spaces to 4096 bytes in all | ids, little-endian uint8, uint16 or uint32

It is a cache: a file that is truncated, changed, or of another text, tokenizer or format is rebuilt. The header has the
crc32 of all ids, and a fixed size so that ids are written in pieces and the header once their number is known.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..atomic import atomic
from ..checksum import crc32_of_bytes
from .files import PathLike, byte_pieces, sample_hash, text_pieces
from .tokenizer import ByteTokenizer, Tokenizer, check_tokens

Array = np.ndarray[Any, Any]
FORMAT, VERSION = "linnet-tokens", "2"
HEADER = 4096
NAMES = {"u1": "U8", "u2": "U16", "u4": "U32"}  # numpy -> safetensors


def token_dtype(vocab_size: int) -> np.dtype[Any]:
    """Return the narrowest of uint8, uint16, uint32 that holds every id."""
    return np.dtype("u1" if vocab_size <= 2**8 else "<u2" if vocab_size <= 2**16 else "<u4")


def tokens_of(path: PathLike, tokenizer: Tokenizer, folder: Path) -> Array:
    """Return the ids of a text file, memory-mapped from its token file in `folder`, which is created if missing."""
    dtype = token_dtype(tokenizer.vocab_size)
    meta = {
        "format": FORMAT,
        "format_version": VERSION,
        "tokenizer": tokenizer.fingerprint,
        "source": sample_hash(np.memmap(path, dtype=np.uint8, mode="r")),
        "changed": str(Path(path).stat().st_mtime_ns),  # for an edit between the blocks of the sample
    }
    file = folder / f"{Path(path).name}.{tokenizer.fingerprint}.tokens"
    ids = read_tokens(file, dtype, meta)
    if ids is None:
        write_tokens(file, dtype, meta, _encode(path, tokenizer))
        ids = read_tokens(file, dtype, meta)
    if ids is None:
        raise ValueError(f"the token file {file} changed while it was written; give each run its own cache folder")
    return ids


def write_tokens(file: Path, dtype: np.dtype[Any], meta: dict[str, str], pieces: Iterator[Array]) -> None:
    """Write ids in pieces, then the header in front of them; the file is replaced atomically."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic(file) as out:
        out.seek(HEADER)
        count, crc32 = 0, "0"
        for ids in pieces:
            data = ids.astype(dtype).tobytes()
            out.write(data)
            count, crc32 = count + len(ids), crc32_of_bytes([data], crc32)
        out.seek(0)
        out.write(_header(dtype, count, meta | {"crc32": crc32}))


def read_tokens(file: Path, dtype: np.dtype[Any], meta: dict[str, str]) -> Array | None:
    """Return the ids, memory-mapped, or None unless the file is complete and its header matches `meta`."""
    size = file.stat().st_size - HEADER if file.is_file() else 0
    count = size // dtype.itemsize
    if size <= 0 or size % dtype.itemsize:
        return None
    ids = np.memmap(file, dtype=dtype, mode="r", offset=HEADER, shape=(count,))
    with open(file, "rb") as opened:
        start = opened.read(HEADER)
    return ids if start == _header(dtype, count, meta | {"crc32": crc32_of_bytes([ids])}) else None


def _header(dtype: np.dtype[Any], count: int, meta: dict[str, str]) -> bytes:
    tensor = {"dtype": NAMES[dtype.str[1:]], "shape": [count], "data_offsets": [0, count * dtype.itemsize]}
    text = json.dumps({"__metadata__": meta, "tokens": tensor}).encode()
    return (HEADER - 8).to_bytes(8, "little") + text.ljust(HEADER - 8)


def _encode(path: PathLike, tokenizer: Tokenizer) -> Iterator[Array]:
    if isinstance(tokenizer, ByteTokenizer):
        yield from (np.frombuffer(piece, np.uint8) for piece in byte_pieces(path))
        return
    for text in text_pieces(path):
        ids = np.array(tokenizer.encode(text), dtype=np.int64)
        check_tokens(ids, tokenizer.vocab_size)
        yield ids
