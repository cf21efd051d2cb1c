"""The tokenizer of Llama models: merge the pair of neighbours whose merged piece scores best, until none is left.

    "Once upon" -> " Once upon" -> ␣ O n c e ... -> ␣Once ␣upon        ids 0 <unk>, 1 <s>, 2 </s>, 3 + byte, then pieces

A space is prepended to the text and removed again; a character without a piece becomes its UTF-8 bytes, so nothing is
unknown. This is SentencePiece BPE (Kudo and Richardson 2018, arXiv:1808.06226) as llama2.c runs it: the leftmost of
equal scores wins. Read from llama2.c's tokenizer.bin or the `tokenizers` library's JSON; stored as linnet's JSON.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable, Sequence
from functools import cached_property
from heapq import heapify, heappop, heappush
from typing import Any

from ..errors import brief, is_number, is_whole
from ..limits import LIMITS
from ..schema import Accepts, Each, Maybe, Record, Table, Text, Whole, check
from .files import PathLike, byte_pieces
from .tokenizer import Tokenizer, check_tokens, parse_json, utf8

UNKNOWN, BOS, EOS, BYTES = 0, 1, 2, 3  # the first byte is piece 3
FIRST = BYTES + 256  # of the learned pieces
SPACE = "\u2581"  # how SentencePiece writes a space
WORD = re.compile(r" *[^ ]+| +")
LIBRARY = Record(  # the part of the library's JSON that is used
    {"model": Record({"type": Text()}, {"vocab": Maybe(Table(Whole())), "merges": Maybe(Each(Accepts()))}, open=True)},
    {"added_tokens": Maybe(Each(Record({"id": Whole(), "content": Text()}, open=True)))},
    open=True,
)
KNOWN_WORDS = 1 << 16  # cached encodings of words


class LlamaTokenizer(Tokenizer):
    """`pieces` and `scores` by id; pieces in `special` stand for no text."""

    name = "llama"
    prefix = (BOS,)
    ends = (BOS, EOS)  # a model of stories emits BOS when one story ends and the next begins

    def __init__(
        self, pieces: Sequence[str], scores: Sequence[float], special: Iterable[int] = (UNKNOWN, BOS, EOS)
    ) -> None:
        self._pieces, self._scores, given = list(pieces), list(scores), list(special)
        _check(self._pieces, self._scores, given)
        self._special = sorted(set(given))
        self.vocab_size = len(self._pieces)
        text = [i for i in range(FIRST, self.vocab_size) if i not in set(self._special)]
        self._ids = {self._pieces[i]: i for i in reversed(text)}  # the first of equal pieces
        self._bytes = [b""] * BYTES + [bytes([b]) for b in range(256)] + [b""] * (self.vocab_size - FIRST)
        for i in text:
            self._bytes[i] = utf8(self._pieces[i])
        # If no piece continues past a word with a space, merges never cross word boundaries.
        self._by_word = not any(re.search("[^ ] ", piece) for piece in self._ids)
        self._known: dict[str, list[int]] = {}

    @classmethod
    def read(cls, path: PathLike) -> LlamaTokenizer:
        """Read llama2.c's tokenizer.bin (or .gz): int32 longest; per piece float32 score, int32 length, bytes."""
        data = _read(path)
        pieces: list[bytes] = []
        scores: list[float] = []
        at = 4
        while at < len(data):
            score, length = struct.unpack_from("<fi", data, at) if at + 8 <= len(data) else (0.0, -1)
            piece = data[at + 8 : at + 8 + max(length, 0)]
            if length < 0 or len(piece) < length:
                raise _refusal(path, f"piece {len(pieces)} at byte {at} is cut off or damaged")
            pieces.append(piece)
            scores.append(score)
            at += 8 + length
        try:
            return cls([piece.decode("utf-8") for piece in pieces], scores)
        except ValueError as error:
            raise _refusal(path, str(error)) from error

    def encode(self, text: str) -> list[int]:
        utf8(text)
        text = f" {text}" if text else ""
        if not self._by_word:
            return self._merge(text)
        ids: list[int] = []
        for word in WORD.findall(text):
            known = self._known.get(word)
            if known is None:
                known = self._merge(word)
                if len(self._known) < KNOWN_WORDS:
                    self._known[word] = known
            ids += known
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of the ids; special ones have none. The space that `encode` prepended is removed."""
        check_tokens(ids, self.vocab_size)
        data = b"".join(self._bytes[int(i)] for i in ids)
        return data.removeprefix(b" ").decode("utf-8", errors="replace")

    @cached_property
    def token_bytes(self) -> list[bytes]:
        """The bytes each id adds to a text, for decoding one at a time; special ids add nothing."""
        return list(self._bytes)

    def to_json(self) -> str:
        head = {"format": "linnet-tokenizer", "version": 1, "kind": "llama"}
        body = {"special": self._special, "pieces": self._pieces, "scores": self._scores}
        return json.dumps(head | body, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> LlamaTokenizer:
        """Read what `to_json` wrote, or a tokenizer.json of the `tokenizers` library with byte_fallback."""
        stored = parse_json(text)
        if stored.get("format") is None:
            return cls(*_library_pieces(stored))
        if stored.get("kind") != "llama" or stored.get("version") != 1:
            kind, version = stored.get("kind"), stored.get("version")
            raise ValueError(f"this is a {kind!r} tokenizer, version {version!r}; accepted: 'llama', version 1")
        fields = [stored.get(name) for name in ("pieces", "scores", "special")]
        if not all(isinstance(field, list) for field in fields):
            raise ValueError(
                "this llama tokenizer lacks pieces, scores or special; accepted: what Tokenizer.save wrote"
            )
        return cls(*fields)  # type: ignore[arg-type]  # what is in the lists is checked there

    def _merge(self, text: str) -> list[int]:
        """Return the ids of a text: a heap of candidate merges over a linked list of ids, best score, then leftmost."""
        ids = self._characters(text)
        after, before = list(range(1, len(ids) + 1)), list(range(-1, len(ids) - 1))
        heap = [join for i in range(len(ids) - 1) if (join := self._join(ids, i, i + 1))]
        heapify(heap)
        while heap:
            _, left, right, ours, theirs, joined = heappop(heap)
            if ids[left] != ours or ids[right] != theirs:
                continue  # one of the two has already been merged
            ids[left], ids[right] = joined, -1
            after[left] = after[right]
            for a, b in ((before[left], left), (left, after[left])):
                if a >= 0 and b < len(ids) and (join := self._join(ids, a, b)):
                    heappush(heap, join)
            if after[left] < len(ids):
                before[after[left]] = left
        return [i for i in ids if i >= 0]

    def _join(self, ids: list[int], left: int, right: int) -> tuple[float, int, int, int, int, int] | None:
        a, b = ids[left], ids[right]
        if a < FIRST or b < FIRST:  # bytes are never merged
            return None
        joined = self._ids.get(self._pieces[a] + self._pieces[b])
        return None if joined is None else (-self._scores[joined], left, right, a, b, joined)

    def _characters(self, text: str) -> list[int]:
        ids: list[int] = []
        for character in text:
            known = self._ids.get(character)
            ids += [BYTES + b for b in character.encode()] if known is None else [known]
        return ids


def _check(pieces: list[Any], scores: list[Any], special: list[Any]) -> None:
    """Raise ValueError unless these make a tokenizer."""
    if len(pieces) != len(scores) or len(pieces) < FIRST:
        raise ValueError(f"{len(pieces)} pieces with {len(scores)} scores; accepted: {FIRST} or more of both, alike")
    for i, (piece, score) in enumerate(zip(pieces, scores, strict=True)):
        if not isinstance(piece, str) or (not piece and i not in special):
            raise ValueError(f"piece {i} is {piece!r}; accepted: a string that is not empty")
        if not is_number(score):
            raise ValueError(f"the score of piece {i} is {score!r}; accepted: a number")
        if BYTES <= i < FIRST and piece != f"<0x{i - BYTES:02X}>":
            raise ValueError(f"piece {i} is {piece!r}; accepted: <0x00> to <0xFF>, the bytes, as pieces {BYTES} to 258")
    for i in special:
        if not is_whole(i, 0, len(pieces) - 1):
            raise ValueError(f"the special id {i!r} is outside the vocabulary; accepted: 0 to {len(pieces) - 1}")


def _read(path: PathLike) -> bytes:
    pieces, total = [], 0
    for piece in byte_pieces(path):
        pieces.append(piece)
        total += len(piece)
        if total > LIMITS.JSON_BYTES:
            raise _refusal(path, f"it has more than {LIMITS.JSON_BYTES:,} bytes")
    return b"".join(pieces)


def _refusal(path: PathLike, what: str) -> ValueError:
    return ValueError(f"{path} is not a llama2.c tokenizer: {what}; accepted: a tokenizer.bin as llama2.c exports it")


def _library_pieces(stored: dict[str, Any]) -> tuple[list[str], list[float], list[int]]:
    """Return pieces, scores and special ids of the library's JSON, whose merges are sorted by score."""
    check(stored, LIBRARY, "this", "use the file as it was published")
    model = stored["model"]
    spaces = json.dumps([stored.get("normalizer"), stored.get("pre_tokenizer")])
    if (
        model.get("type") != "BPE"
        or not model.get("byte_fallback")
        or not re.search(r'"Prepend"|"(first|always)"', spaces)
    ):
        raise ValueError(
            f"this is a {model.get('type')!r} tokenizer, byte_fallback {model.get('byte_fallback')!r}; accepted: BPE "
            "with byte_fallback that prepends a space to the text, as in Llama 1 and 2"
        )
    added = stored.get("added_tokens") or []
    ids = dict(model.get("vocab") or {}) | {token["content"]: token["id"] for token in added}
    pieces = sorted(ids, key=lambda piece: ids[piece])
    if sorted(ids.values()) != list(range(len(ids))):
        raise ValueError(
            f"{len(ids)} pieces have ids up to {max(ids.values())}; accepted: 0 to {len(ids) - 1}, each once"
        )
    rank: dict[str, int] = {}
    for i, pair in enumerate(model.get("merges") or []):
        parts = pair.split(" ") if isinstance(pair, str) else pair
        if not isinstance(parts, list) or len(parts) != 2 or not all(isinstance(part, str) for part in parts):
            raise ValueError(f"merge {i} is {brief(pair)}; accepted: two pieces")
        rank.setdefault("".join(parts), i)
    special = {UNKNOWN, BOS, EOS} | {token["id"] for token in added if token.get("special")}
    scores = [-float(rank.get(piece, len(rank) + ids[piece])) for piece in pieces]
    return [piece.replace(SPACE, " ") for piece in pieces], scores, sorted(special)
