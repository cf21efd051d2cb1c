"""Record and Part: what the store keeps of a session.

    session/ID               Record: sizes, owner, the token that is not read yet
    state/ID                 the state after the first `at` tokens
    base/ID                  the uploaded state of a session that began with one
    part/ID/START            Part: tokens that were appended or sampled together
    fresh/ID/POSITION        a token of a generation that has not ended; a crash leaves them, and they count
    owner/OWNER/TIME/ID      nothing: the sessions of an owner, the newest first
    responses/OWNER/TIME/ID  the same for responses, the oldest first; json/ID has the answer

A part [start, end) says how its tokens were read: all but the last of them, and the last of the part before, in chunks
if they were appended, one by one if they were sampled. The state is a function of the parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ..generate import Passage


class Record(msgspec.Struct):
    """A session, without its tokens and its state."""

    id: str
    owner: str
    kind: str  # "session", or "response" for those of /v1/responses
    created: float
    used: float
    key: bytes  # of the state, among prefix states
    size: int = 0  # tokens
    at: int = 0  # tokens that the state has read: size - 1, or fewer if some have to be read first
    last: int = -1  # the last token; -1 without one that could be stepped
    first: int = 0  # the first known token
    stop: str = ""  # the stop string that ended the last generation
    base: int = 0  # tokens that the uploaded state has read
    base_key: bytes = b""
    parent: tuple[str, int] | None = None
    metadata: dict[str, str] = {}

    @property
    def name(self) -> str:
        return f"session/{self.id}"

    def pack(self) -> bytes:
        """Return the record as bytes."""
        return msgspec.msgpack.encode(self)

    @staticmethod
    def unpack(data: bytes) -> Record:
        """Return the record that `pack` packed."""
        return msgspec.msgpack.decode(data, type=Record)


class Part(NamedTuple):
    """Tokens from position `start`."""

    start: int
    tokens: list[int]
    sampled: bool

    @property
    def end(self) -> int:
        return self.start + len(self.tokens)

    def pack(self) -> bytes:
        """Return the part as bytes."""
        return (b"s" if self.sampled else b"r") + pack_tokens(self.tokens)

    @staticmethod
    def unpack(name: str, data: bytes) -> Part:
        """Return the part that `pack` packed, under its name."""
        return Part(int(name.rpartition("/")[2]), np.frombuffer(data, "<i4", offset=1).tolist(), data[:1] == b"s")


def part_name(id: str, start: int) -> str:
    return f"part/{id}/{start:012}"


def fresh_name(id: str, position: int) -> str:
    return f"fresh/{id}/{position:012}"


def pack_tokens(tokens: Sequence[int]) -> bytes:
    return np.array(tokens, dtype="<i4").tobytes()


def truncate(parts: Sequence[Part], size: int) -> list[Part]:
    """Return the parts of the first `size` tokens."""
    kept = [part for part in parts if part.start < size]
    if kept and kept[-1].end > size:
        kept[-1] = kept[-1]._replace(tokens=kept[-1].tokens[: size - kept[-1].start])
    return kept


def passages(parts: Sequence[Part], at: int, size: int) -> tuple[Passage, ...]:
    """Return how the tokens from `at` to `size` - 1 (not included) were read, or will be."""
    tokens, known = [token for part in parts for token in part.tokens], parts[0].start if parts else 0
    spans = [(max(part.start - 1, at), min(part.end, size) - 1, part.sampled) for part in parts]
    return tuple(Passage(tokens[start - known : end - known], sampled) for start, end, sampled in spans if end > start)


def view(record: Record, model: str, state_bytes: int, softmax_bytes: int) -> dict[str, Any]:
    """Return the session as the API shows it."""
    parent = None if record.parent is None else {"session": record.parent[0], "at": record.parent[1]}
    return {
        "id": record.id,
        "object": "session",
        "model": model,
        "created": int(record.created),
        "used": int(record.used),
        "tokens": record.size,
        "first": record.first,
        "parent": parent,
        "metadata": record.metadata,
        "state_bytes": state_bytes,
        "softmax_bytes": softmax_bytes,
    }
