"""MQAR in a haystack: the pairs form one block at a chosen depth of the filler, the queries are at the end.

    . . . . k1 v1 k2 v2 . . . . . . | k2 . k1 .      N tokens, the last Q of them for queries

MQAR (linnet/labs/recall/tasks/mqar.py) with other positions of context and queries:
- the hay is the first N - Q tokens; the block of 2K begins at 2 floor(depth (N - Q - 2K) / 2), an even position:
  depth 0 puts it at the start of the sequence, depth 1 right before the queries; depth None draws one of these even
  positions uniformly for each example;
- the queries use K of the Q/2 slots at the end, drawn as in MQAR; by default Q = 2K and every slot is used, so that
  the depth alone sets the distance.
Q = N - 2K leaves no hay, and is MQAR. With filler "zero" the hay is one repeated symbol, which does not test memory
under noise; "random" does.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ....errors import whole
from .draw import Array, below, noise
from .mqar import DEPTH, MQAR


@dataclass(frozen=True)
class Haystack(MQAR):
    """The haystack task as a training source.

    Args:
        depth: 0 to 1, or None to draw one for every example.
        query_len: Q, even, from 2K to N - 2K; None is 2K.
    """

    depth: float | None = field(default=None, kw_only=True)
    query_len: int | None = field(default=None, kw_only=True)

    def _start(self, key: Array) -> Array:  # [B]
        places = self._free() + 1
        if self.depth is None:
            return 2 * below(places, noise(key, DEPTH, 1)[:, 0])
        return np.full(len(key), 2 * int(self.depth * (places - 1)), np.int64)

    def _free(self) -> int:
        """Return the number of token pairs of hay around the block."""
        return (self.seq_len - self._query_len() - 2 * self.pairs) // 2

    def _query_len(self) -> int:
        return 2 * self.pairs if self.query_len is None else self.query_len

    def _check_room(self) -> None:
        super()._check_room()
        if self.query_len is not None:
            whole("query_len", self.query_len, 2 * self.pairs, self.seq_len - 2 * self.pairs)
            if self.query_len % 2:
                raise ValueError(f"query_len is {self.query_len}; accepted: even numbers, such as {self.query_len - 1}")
        if self.depth is not None and not (isinstance(self.depth, int | float) and 0 <= self.depth <= 1):
            raise ValueError(f"depth is {self.depth!r}; accepted: a number from 0 to 1, or None for any depth")
