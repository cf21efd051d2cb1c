"""Detokenizer: convert a stream of tokens to text, only complete characters, up to a stop string.

    detokenizer = Detokenizer(tokenizer, stop=["\\n\\n"])
    print(detokenizer.push(token), end="")         text that is final; "" while a character or stop may be incomplete
    print(detokenizer.end(), end="")               the rest; bytes that never became a character are U+FFFD

The concatenated text is `tokenizer.decode(tokens)` up to the stop string that ends first, without it. The tokens
continue a text, so the space that a Llama tokenizer strips at the start of one is kept.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Protocol

from ..data import Tokenizer

UNFINISHED = "\ufffd"


class Detokenizer:
    """The text of one stream of tokens; `stopped` is the stop string that ended it, or None."""

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = ()) -> None:
        self.stop = tuple(stop)
        self.stopped: str | None = None
        self._decoder = _decoder(tokenizer)
        self._held = ""  # decoded, but possibly the start of a stop string

    def push(self, token: int) -> str:
        """Add a token; return the text that is final now."""
        return "" if self.stopped is not None else self._release(self._decoder.push(token))

    def end(self) -> str:
        """Return the text held back: there are no more tokens."""
        if self.stopped is not None:
            return ""
        text = self._release(self._decoder.end()) + self._held
        self._held = ""
        return text

    def _release(self, new: str) -> str:
        """Return the text that cannot be part of a stop string; hold the rest back."""
        if not self.stop:
            return new
        text = self._held + new
        matches = [(at + len(stop), at, stop) for stop in self.stop if (at := text.find(stop)) >= 0]
        if matches:  # take the one that ends first, as if characters arrived one by one
            _, at, self.stopped = min(matches)
            self._held = ""
            return text[:at]
        keep = max(_overlap(text, stop) for stop in self.stop)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def decode_continuation(tokenizer: Tokenizer, tokens: Sequence[int]) -> str:
    """Return the text of tokens that continue a text."""
    detokenizer = Detokenizer(tokenizer)
    return "".join([*map(detokenizer.push, tokens), detokenizer.end()])


def longest_token(tokenizer: Tokenizer) -> int | None:
    """Return the bytes of the longest token; None if a token does not stand for fixed bytes."""
    table = tokenizer.token_bytes
    return None if table is None else max(map(len, table))


class _Decoder(Protocol):
    def push(self, token: int) -> str: ...

    def end(self) -> str: ...


class _ByteDecoder:
    """Incremental UTF-8, for tokens that stand for fixed bytes."""

    def __init__(self, table: list[bytes]) -> None:
        self.table = table
        self.utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        return self.utf8.decode(self.table[token])

    def end(self) -> str:
        return self.utf8.decode(b"", True)


class _TextDecoder:
    """Any other tokenizer: the text that `decode` adds for new tokens, once its last character is complete."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.before: list[int] = []  # already returned; kept since a first token may be decoded differently
        self.new: list[int] = []

    def push(self, token: int) -> str:
        self.new.append(token)
        text = self._added()
        return self._commit(text) if text and not text.endswith(UNFINISHED) else ""

    def end(self) -> str:
        return self._commit(self._added())

    def _added(self) -> str:
        return self.tokenizer.decode(self.before + self.new)[len(self.tokenizer.decode(self.before)) :]

    def _commit(self, text: str) -> str:
        self.before, self.new = self.new, []
        return text


def _decoder(tokenizer: Tokenizer) -> _Decoder:
    table = tokenizer.token_bytes
    return _TextDecoder(tokenizer) if table is None else _ByteDecoder(table)


def _overlap(text: str, stop: str) -> int:
    """Return how many characters at the end of the text are a proper prefix of the stop string."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)
