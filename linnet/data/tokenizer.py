"""Text to token ids and back: the interface, `Tokenizer`, and the tokenizer without dependencies, `ByteTokenizer`.

    token = one byte of UTF-8,  vocabulary 256;  bits per byte = loss in nats / ln 2

A tokenizer is stored as JSON and identified by a fingerprint, which token files, checkpoints and state files record, so
that ids are never read with another vocabulary. `bpe.py` has the trained one.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from ..atomic import atomic
from ..json_file import kind_of
from ..json_file import parse_json as parse
from ..limits import LIMITS
from .files import PathLike

FILE = "tokenizer.json"  # its name inside a folder
SAVED = "accepted: a file written by Tokenizer.save"


class Tokenizer(ABC):
    """str -> ids -> str. `decode(encode(text)) == text` for every Unicode text."""

    name: str
    vocab_size: int
    prefix: tuple[int, ...] = ()  # ids prepended to every prompt: the begin token of models that have one
    ends: tuple[int, ...] = ()  # ids that end a text, if the model emits them

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Return the ids of the text, each in 0..vocab_size-1."""

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of the ids; bytes that are not UTF-8 become U+FFFD."""

    @abstractmethod
    def to_json(self) -> str: ...

    @classmethod
    @abstractmethod
    def from_json(cls, text: str) -> Tokenizer: ...

    @cached_property
    def token_bytes(self) -> list[bytes] | None:
        """The bytes each token adds to a text; None if tokens do not correspond to bytes."""
        return None

    @property
    def end(self) -> int:
        """The id that ends a text: an end token if there is one, else a line break."""
        return (*self.ends, *reversed(self.encode("\n")))[0]

    @property
    def begin(self) -> int:
        """The id before the first token of a text without context."""
        return (*reversed(self.prefix), self.end)[0]

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the content, 16 hex digits: equal for equal vocabularies, independent of the JSON layout."""
        plain = json.dumps(parse_json(self.to_json()), sort_keys=True, separators=(",", ":"))
        return sha256(plain.encode()).hexdigest()[:16]

    def save(self, path: PathLike) -> None:
        """Write the JSON atomically; into a folder as tokenizer.json."""
        with atomic(_file(path)) as file:
            file.write(self.to_json().encode())


class ByteTokenizer(Tokenizer):
    """Each byte of the UTF-8 is a token. Nothing is unknown, and a text file is its token array."""

    name = "byte"
    vocab_size = 256

    @cached_property
    def token_bytes(self) -> list[bytes]:
        return [bytes([i]) for i in range(256)]

    def encode(self, text: str) -> list[int]:
        return list(utf8(text))

    def decode(self, ids: Sequence[int]) -> str:
        check_tokens(ids, self.vocab_size)
        return bytes(int(i) for i in ids).decode("utf-8", errors="replace")

    def to_json(self) -> str:
        return json.dumps({"format": "linnet-tokenizer", "version": 1, "kind": "byte"})

    @classmethod
    def from_json(cls, text: str) -> ByteTokenizer:
        if parse_json(text) != parse_json(cls().to_json()):
            raise ValueError(f"a byte tokenizer cannot be read from {text[:80]!r}; accepted: {cls().to_json()}")
        return cls()


def load_tokenizer(path: PathLike) -> Tokenizer:
    """Load a tokenizer from a file written by `save` or by the `tokenizers` library, or from its folder."""
    file = _file(path)
    if not file.is_file():
        raise FileNotFoundError(f"there is no tokenizer {file}; write one with Tokenizer.save")
    if (size := file.stat().st_size) > LIMITS.JSON_BYTES:
        raise ValueError(
            f"{file} has {size:,} bytes; accepted: a tokenizer of {LIMITS.JSON_BYTES:,} at most; check the path"
        )
    try:
        text = file.read_bytes().decode("utf-8")
        return _kind(parse_json(text)).from_json(text)
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not UTF-8 (byte {error.start}); {SAVED}") from error
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


def _kind(stored: dict[str, Any]) -> type[Tokenizer]:
    from .bpe import BPETokenizer  # not at the top: both modules import this one
    from .llama_tokenizer import LlamaTokenizer

    if stored.get("format") == "linnet-tokenizer":
        return LlamaTokenizer if stored.get("kind") == "llama" else ByteTokenizer
    model = stored.get("model")  # otherwise a file of the `tokenizers` library
    return LlamaTokenizer if isinstance(model, dict) and model.get("byte_fallback") else BPETokenizer


def check_tokens(ids: Any, vocab_size: int) -> None:
    """Raise ValueError unless every id (a sequence, array or tensor of integers) is in 0..vocab_size-1."""
    array = np.asarray(ids).reshape(-1)
    if array.size == 0:
        return
    if array.dtype.kind not in "iu":
        raise ValueError(f"token ids have dtype {array.dtype}; accepted: integers from 0 to {vocab_size - 1}")
    if array.min() < 0 or array.max() >= vocab_size:
        at = int(np.argmax((array < 0) | (array >= vocab_size)))
        raise ValueError(
            f"token id {int(array[at])} at position {at} is outside the vocabulary; accepted: 0 to {vocab_size - 1}; "
            "use the tokenizer the model was trained with"
        )


def utf8(text: str) -> bytes:
    """Return the UTF-8 bytes of a text; raise ValueError for a lone surrogate."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"the text has the lone surrogate {text[error.start]!r} at position {error.start}; accepted: Unicode text; "
            "read the file as UTF-8 with errors='replace'"
        ) from error


def parse_json(text: str) -> dict[str, Any]:
    """Parse a JSON object; raise ValueError for anything else."""
    value = parse(text, "this", SAVED)
    if not isinstance(value, dict):
        raise ValueError(f"this is a JSON {kind_of(value)}; {SAVED}")
    return value


def _file(path: PathLike) -> Path:
    return Path(path) / FILE if Path(path).is_dir() else Path(path)
