"""Further tasks of the open questions, next to copy and recall: majority, reversal, and recall with queries first.

    majority   tokens 1 0 0 1 0   targets 1 . 0 . 0         the most frequent token so far, after an odd number of them
    reversal   source a b c       tokens 0 c b  targets c b a       for an encoder-decoder; 0 begins the target
    flipped    a recall task in reverse: the queries come first, so that only a bidirectional model can answer them

All are training sources whose rows depend only on their indices (linnet/labs/recall/tasks/draw.py).
B rows, N tokens:  tokens, targets [B,N]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from ....errors import whole
from ....train import Source
from ...recall.tasks import Recall
from ...recall.tasks.draw import Array, accepted, below, noise
from ...recall.tasks.recall import Stream, empty

SYMBOLS = 1  # stream of noise


@dataclass(frozen=True)
class Majority(Stream):
    """Bits, and after every odd number of them the more frequent one so far."""

    seq_len: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("seq_len", self.seq_len, 16, 2**24)

    def draw(self, rows: Sequence[int]) -> Recall:
        (tokens,) = accepted(self._keys(rows), self._bits, _content, self.split)
        seen = np.arange(1, self.seq_len + 1)
        targets, distance, pair, updated = empty(*tokens.shape)
        targets[:, ::2] = (2 * tokens.cumsum(1) > seen)[:, ::2]
        return Recall.of(tokens, targets, distance, pair, updated)

    def _bits(self, key: Array) -> tuple[Array]:
        return (below(2, noise(key, SYMBOLS, self.seq_len)),)


@dataclass(frozen=True)
class Reversal(Stream):
    """A word of `seq_len` symbols 1..S to reverse; as one sequence it is word, 0, reversed word."""

    seq_len: int = 16
    symbols: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("seq_len", self.seq_len, 4, 2**24)
        whole("symbols", self.symbols, 5, 2**24)

    def draw(self, rows: Sequence[int]) -> Recall:
        n = self.seq_len
        (word,) = accepted(self._keys(rows), self._word, _content, self.split)
        tokens = np.concatenate([word, np.zeros((len(word), 1), np.int64), word[:, :0:-1]], axis=1)  # [B,2n]
        targets, distance, pair, updated = empty(*tokens.shape)
        targets[:, n:], pair[:, n:] = word[:, ::-1], np.arange(n)[::-1]
        distance[:, n:] = 1 + 2 * np.arange(n)
        return Recall.of(tokens, targets, distance, pair, updated)

    def batch(self, rows: Sequence[int]) -> dict[str, Tensor]:
        """Return {"source", "tokens", "targets"}, each [B,n], as EncoderDecoder takes them."""
        joined = super().batch(rows)
        source, tokens = joined["tokens"].split(self.seq_len, dim=1)
        return {"source": source, "tokens": tokens, "targets": joined["targets"][:, self.seq_len :]}

    def _word(self, key: Array) -> tuple[Array]:
        return (1 + below(self.symbols, noise(key, SYMBOLS, self.seq_len)),)


class Flipped:
    """A source of tokens and targets with time reversed."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.length, self.unit, self.units = source.length, source.unit, source.units
        self.fingerprint = f"flipped {source.fingerprint}"

    def batch(self, rows: Sequence[int]) -> dict[str, Tensor]:
        return {name: x.flip(1) for name, x in self.source.batch(rows).items()}


def _content(drawn: tuple[Array]) -> Array:
    """Return every symbol with its position as one integer, which decides between train and test."""
    return (np.arange(drawn[0].shape[1]) << 32) | drawn[0]
