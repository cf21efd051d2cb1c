"""Read text files, plain, gzip or bzip2, in pieces.

    byte_pieces(path) -> bytes, 1 MiB at a time        text_pieces(path) -> str, cut where no tokenizer merges

Compression is detected from the first bytes, not from the name. `sample_hash` hashes content of any size in constant
time: all of it up to 16 MiB, 256 evenly spaced blocks beyond that.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import Option, OptionError
from ..limits import LIMITS

PathLike = str | os.PathLike[str]
PIECE = 1 << 20
BLOCK, BLOCKS = 1 << 16, 256
GZIP, BZIP2 = re.compile(rb"\x1f\x8b\x08"), re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)")
# A single space between two words: no byte-level pre-tokenizer has a token that ends on it or spans it.
SEAM = re.compile(r"(?<=\S) (?=\S)")
TEXT_CONTROLS = b"\t\n\v\f\r\x1b"  # control bytes that occur in real texts; ESC in coloured logs


def path_list(paths: PathLike | Sequence[PathLike]) -> list[PathLike]:
    """Return one path or several as a list."""
    return [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)


def packing(path: PathLike) -> str:
    """Return "plain", "gzip" or "bzip2"; raise an error for a missing or empty file, or a folder."""
    if Path(path).is_dir():
        raise IsADirectoryError(f"{path} is a folder; accepted: a text file, or a list of text files")
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {path}; accepted: text files, plain, gzip or bzip2")
    with open(path, "rb") as file:
        start = file.read(10)
    if not start:
        raise ValueError(f"{path} is empty; accepted: a file with text in it")
    return "gzip" if GZIP.match(start) else "bzip2" if BZIP2.match(start) else "plain"


def byte_pieces(path: PathLike) -> Iterator[bytes]:
    """Yield the decompressed content, a mebibyte at a time."""
    packed = packing(path)
    opener: Any = {"plain": open, "gzip": gzip.open, "bzip2": bz2.open}[packed]
    try:
        with opener(path, "rb") as file:
            piece = file.read(PIECE)
            if not piece:
                raise ValueError(f"{path} is empty; accepted: a file with text in it")
            packed_size, total = os.stat(path).st_size, 0
            while piece:
                total += len(piece)
                check_growth(path, packed_size, total)
                yield piece
                piece = file.read(PIECE)
    except (EOFError, zlib.error, gzip.BadGzipFile, OSError) as error:
        if packed == "plain" or (isinstance(error, OSError) and error.errno):  # an error of the disk
            raise
        raise ValueError(f"{path} is a damaged {packed} file ({error}); download or compress it again") from error


def check_growth(path: PathLike, packed: int, total: int) -> None:
    """Raise ValueError if the content decompressed so far exceeds what any text expands to."""
    if total > LIMITS.UNPACKED_FREE and total > LIMITS.UNPACKED_RATIO * packed:
        raise ValueError(
            f"{path} grows from {packed:,} bytes to more than {total:,}; accepted: {LIMITS.UNPACKED_RATIO} times "
            "its size at most; decompress it first if it is genuine"
        )


def text_pieces(path: PathLike) -> Iterator[str]:
    """Yield the content as UTF-8, in pieces that end before a single space if possible, so that no token is split."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    done, kept = 0, ""
    for piece in byte_pieces(path):
        kept += _decode(decoder, piece, done, path)
        done += len(piece)
        seams = list(SEAM.finditer(kept, max(0, len(kept) - BLOCK)))
        cut = seams[-1].start() if seams else len(kept)
        yield kept[:cut]
        kept = kept[cut:]
    kept += _decode(decoder, b"", done, path, final=True)
    if kept:
        yield kept


def read_text(path: PathLike) -> str:
    """Return the text of a small UTF-8 file, without a byte order mark."""
    return _decode(codecs.getincrementaldecoder("utf-8-sig")(), Path(path).read_bytes(), 0, path, final=True)


def _decode(decoder: Any, piece: bytes, done: int, path: PathLike, final: bool = False) -> str:
    waiting = len(decoder.getstate()[0])  # bytes of a character that began in the previous piece
    try:
        return str(decoder.decode(piece, final))
    except UnicodeDecodeError as error:
        at = done - waiting + error.start
        raise ValueError(
            f"{path} is not UTF-8: byte {at} is {error.object[error.start]:#04x} ({error.reason}); "
            "accepted: UTF-8 text; convert it (iconv -t UTF-8), or train with the byte tokenizer"
        ) from error


def sample(data: np.ndarray[Any, Any]) -> Iterator[np.ndarray[Any, Any]]:
    """Return uint8 [N] in blocks: all of it, or BLOCKS blocks from the first byte to the last if it is larger."""
    if len(data) <= BLOCK * BLOCKS:
        starts: Iterable[int] = range(0, len(data), BLOCK)
    else:
        starts = ((len(data) - BLOCK) * i // (BLOCKS - 1) for i in range(BLOCKS))
    return (data[i : i + BLOCK] for i in starts)


def sample_hash(data: np.ndarray[Any, Any]) -> str:
    """Return the sha256 of the size and the sample of uint8 [N]."""
    digest = sha256(len(data).to_bytes(8, "little"))
    for block in sample(data):
        digest.update(block.data)
    return digest.hexdigest()


def check_text(data: np.ndarray[Any, Any], path: PathLike) -> None:
    """Raise ValueError if the sample of uint8 [N] has a NUL byte or more than 30 % control bytes."""
    counts = np.zeros(256, np.int64)
    for block in sample(data):
        counts += np.bincount(block, minlength=256)
    controls = counts[:32].sum() + counts[127] - counts[list(TEXT_CONTROLS)].sum()
    if counts[0] or controls > 0.3 * counts.sum():
        what = f"{counts[0]} NUL bytes" if counts[0] else f"{controls / counts.sum():.0%} control bytes"
        raise OptionError(
            f"{path} has {what}: it looks like binary data; accepted: text",
            Option("allow_binary", True, "train on the bytes as they are"),
            otherwise="convert it to UTF-8",
        )
