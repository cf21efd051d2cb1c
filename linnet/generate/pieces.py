"""Pieces: tokens become text as they come, never half a character, and a stop string ends it wherever tokens break.

    pieces = Pieces(tokenizer, stop=["\\n\\n"])
    print(pieces.push(token), end="")              text that is certain; "" while a character or a stop may be under way
    print(pieces.end(), end="")                    what was held back; bytes that never became a character are U+FFFD

All pieces joined are `tokenizer.decode(tokens)` up to the stop string that ends first; the stop itself is left out. Of
tokens that continue a text, the space that a Llama tokenizer takes off the start of one stays.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Protocol

from ..data import Tokenizer

UNFINISHED = "\ufffd"


class Pieces:
    """The text of one stream of tokens; `stopped` is the stop string that was found, or None."""

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = ()) -> None:
        self.stop = tuple(stop)
        self.stopped: str | None = None
        self._decoder = _decoder(tokenizer)
        self._held = ""  # decoded, but perhaps the start of a stop string

    def push(self, token: int) -> str:
        """The next token; returns the text that it makes certain."""
        return "" if self.stopped is not None else self._certain(self._decoder.push(token))

    def end(self) -> str:
        """No more tokens; returns what was held back."""
        if self.stopped is not None:
            return ""
        text = self._certain(self._decoder.end()) + self._held
        self._held = ""
        return text

    def _certain(self, new: str) -> str:
        if not self.stop:
            return new
        text = self._held + new
        found = [(at + len(stop), at, stop) for stop in self.stop if (at := text.find(stop)) >= 0]
        if found:  # the one that ends first, as if characters came one by one
            _, at, self.stopped = min(found)
            self._held = ""
            return text[:at]
        keep = max(_overlap(text, stop) for stop in self.stop)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def whole_text(tokenizer: Tokenizer, tokens: Sequence[int]) -> str:
    """All pieces of tokens that continue a text."""
    pieces = Pieces(tokenizer)
    return "".join([*map(pieces.push, tokens), pieces.end()])


def longest_token(tokenizer: Tokenizer) -> int | None:
    """Bytes of the longest token; None where tokens do not stand for bytes of their own."""
    table = tokenizer.token_bytes
    return None if table is None else max(map(len, table))


class _Decoder(Protocol):
    def push(self, token: int) -> str: ...

    def end(self) -> str: ...


class _ByteDecoder:
    """Tokens that stand for bytes of their own: UTF-8, incrementally."""

    def __init__(self, table: list[bytes]) -> None:
        self.table = table
        self.utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        return self.utf8.decode(self.table[token])

    def end(self) -> str:
        return self.utf8.decode(b"", True)


class _TextDecoder:
    """Any tokenizer: what `decode` adds for the new tokens, once it does not end in an unfinished character."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.before: list[int] = []  # already said, and kept since a first token may be decoded another way
        self.new: list[int] = []

    def push(self, token: int) -> str:
        self.new.append(token)
        text = self._added()
        return self._said(text) if text and not text.endswith(UNFINISHED) else ""

    def end(self) -> str:
        return self._said(self._added())

    def _added(self) -> str:
        return self.tokenizer.decode(self.before + self.new)[len(self.tokenizer.decode(self.before)) :]

    def _said(self, text: str) -> str:
        self.before, self.new = self.new, []
        return text


def _decoder(tokenizer: Tokenizer) -> _Decoder:
    table = tokenizer.token_bytes
    return _TextDecoder(tokenizer) if table is None else _ByteDecoder(table)


def _overlap(text: str, stop: str) -> int:
    """Characters at the end of the text that are a beginning of the stop string, and not all of it."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)
