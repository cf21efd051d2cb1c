"""Prefix states: states after pieces of prompts, kept so that the next prompt with the same beginning starts there.

    key of a piece = hash(key of the piece before it, how it is read, its tokens)

A prompt is cut at fixed places counted from the start of each passage (`cut`), with or without kept states, and a key
stands for the whole past. Starting from a kept state is therefore exact: the same calls on the same numbers are left.
Keys form a tree without storing one, and the first key, the root, separates users who must not see each other's work.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from ..errors import whole
from ..models import ModelState

STEPS = 64  # a state is kept after so many sampled tokens
KEY_BYTES = 16


class Passage(NamedTuple):
    """Tokens that are read together: in chunks, or stepped one by one if they are the past of `sampled` tokens."""

    tokens: Sequence[int]
    sampled: bool = False


class Passages(NamedTuple):
    """A prompt in passages.

    The `last` token is not read but stepped with the batch, so that a state is enough to continue from: no logits have
    to be kept with it. It is None if the request has the logits after the passages.
    """

    passages: tuple[Passage, ...]
    last: int | None


class PromptPiece(NamedTuple):
    """Part of a passage, and the key of everything up to its end."""

    tokens: list[int]
    sampled: bool
    key: bytes


def extend_key(key: bytes, tokens: Sequence[int], sampled: bool) -> bytes:
    """Return the key after these tokens."""
    hashed = blake2b(key, digest_size=KEY_BYTES)
    hashed.update(b"s" if sampled else b"r")
    hashed.update(np.array(tokens, dtype="<i4").tobytes())
    return hashed.digest()


def cut(passages: Sequence[Passage], chunk: int, root: bytes = b"") -> list[PromptPiece]:
    """Cut each passage at multiples of `chunk` (of STEPS if sampled) counted from its start."""
    pieces, key = [], root
    for tokens, sampled in passages:
        size = STEPS if sampled else chunk
        for start in range(0, len(tokens), size):
            piece = list(tokens[start : start + size])
            key = extend_key(key, piece, sampled)
            pieces.append(PromptPiece(piece, sampled, key))
    return pieces


class PrefixStates:
    """Up to `budget` bytes of states, the least recently used dropped first. One thread at a time may use it."""

    def __init__(self, budget: int) -> None:
        self.budget = whole("budget", budget, 0)
        self.nbytes = 0
        self._kept: OrderedDict[bytes, ModelState] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, key: bytes) -> bool:
        return key in self._kept

    def keep(self, key: bytes, state: ModelState) -> None:
        """Keep a state, unless it is larger than the budget."""
        if key in self._kept:
            self._kept.move_to_end(key)
            return
        self._kept[key] = state
        self.nbytes += state.nbytes
        while self.nbytes > self.budget:
            _, dropped = self._kept.popitem(last=False)
            self.nbytes -= dropped.nbytes

    def get(self, key: bytes) -> ModelState | None:
        """Return the state of a key, now the most recently used, or None."""
        state = self._kept.get(key)
        if state is not None:
            self._kept.move_to_end(key)
        return state

    def longest(self, pieces: Sequence[PromptPiece]) -> int:
        """Return how many of these pieces a kept state covers."""
        return next((i for i in range(len(pieces), 0, -1) if pieces[i - 1].key in self._kept), 0)

    def clear(self) -> None:
        """Drop all states."""
        self._kept.clear()
        self.nbytes = 0
