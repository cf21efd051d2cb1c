"""The copy task: read a word, then a separator, then write the word again.

    tokens   w1 w2 ... wn 0 w1 ... w(n-1) wn 0 0 ...     symbols 1..S, separator and filler 0
    targets   .  .      . w1 w2 ...     wn  . . .        the next token, at the n positions n..2n-1 only

Katharopoulos et al. 2020 (arXiv:2006.16236), figure 2: S = 10 symbols, N = 128 tokens. As in their code, n is uniform
on N/4 .. N/2 - 2 (32..62 for N = 128) and the symbols are uniform. Their loss also scores the separator after the
first word, whose position cannot be predicted and which is unrelated to copying: it is left out here.
Train and test share no word (linnet/labs/recall/tasks/draw.py).

B rows:  tokens [B,N]   word [B, N/2 - 2], 0 beyond its end
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ....errors import whole
from .draw import Array, accepted, below, noise
from .recall import MIN_CONTENTS, Recall, Stream, empty

LENGTH, SYMBOLS = 1, 2  # streams of noise


class Word(NamedTuple):
    """symbols [B, N/2 - 2], 0 beyond the end; length [B]."""

    symbols: Array
    length: Array


@dataclass(frozen=True)
class CopyTask(Stream):
    """The copy task as a training source.

    Args:
        seq_len: N, a multiple of 4.
        symbols: S, without the separator.
    """

    seq_len: int = 128
    symbols: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("seq_len", self.seq_len, 8, 2**24)
        whole("symbols", self.symbols, 2, 2**24)
        if self.seq_len % 4:
            raise ValueError(
                f"seq_len is {self.seq_len}; accepted: multiples of 4, such as {self.seq_len // 4 * 4 + 4}"
            )
        if self.symbols ** min(self.seq_len // 4, 10) < MIN_CONTENTS:
            raise ValueError(
                f"{self.symbols} symbols have too few words of {self.seq_len // 4} to keep train and test apart; "
                f"accepted: {MIN_CONTENTS} words or more; use more symbols or a longer sequence"
            )

    @property
    def vocab_size(self) -> int:
        """Return the number of symbols plus the separator."""
        return self.symbols + 1

    def draw(self, rows: Sequence[int]) -> Recall:
        """Return the examples with these indices; `pair` is the index of the symbol in its word."""
        word, length = accepted(self._keys(rows), self._word, _content, self.split)
        row, place = np.nonzero(word)  # every symbol of every word
        symbol, n = word[row, place], length[row]
        tokens = np.zeros((len(word), self.seq_len), np.int64)
        tokens[row, place] = tokens[row, n + 1 + place] = symbol
        targets, distance, pair, updated = empty(*tokens.shape)
        targets[row, n + place] = symbol
        distance[row, n + place] = n
        pair[row, n + place] = place
        return Recall.of(tokens, targets, distance, pair, updated)

    def _word(self, key: Array) -> Word:
        shortest, longest = self.seq_len // 4, self.seq_len // 2 - 2
        length = shortest + below(longest - shortest + 1, noise(key, LENGTH, 1)[:, 0])
        symbols = 1 + below(self.symbols, noise(key, SYMBOLS, longest))
        return Word(np.where(np.arange(longest) < length[:, None], symbols, 0), length)


def _content(word: Word) -> Array:
    """Return every symbol with its position as one integer, which decides between train and test."""
    return (np.arange(word.symbols.shape[1]) << 32) | word.symbols
