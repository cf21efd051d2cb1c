"""Forgetting MQAR: some keys of the context are written twice, and the last value wins.

    k1 v1 k2 v2 k1 v1' k3 v3 | . k2 . k1 . . k3 .      targets: v2 v1' v3

MQAR (linnet/labs/recall/tasks/mqar.py) with U of the K keys rewritten, K + U pairs in the context:
- keys: K distinct ids; values: K + U distinct ids, so an old value is never the answer to any query;
- the K + U writes are in random order; of the two writes of a key the later one holds its value;
- every key is queried once, U of them (`updated`) with an old value to forget; slots are assigned in the order of the
  latest writes, in the (N - 2K - 2U)/2 slots after the context;
- `distance` and `pair` are those of the latest write.
A sum of values (additive linear attention) returns a mixture of old and new; a delta rule can overwrite.

B rows, P = K + U:  order [B,P] the write at each place; writes 0..K-1 are first writes, K + u the second of key u
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ....errors import whole
from .draw import Array, distinct, noise
from .mqar import KEYS, MQAR, ORDER, VALUES, Context


@dataclass(frozen=True)
class Forgetting(MQAR):
    """The forgetting task as a training source.

    Args:
        updates: U, the number of keys written a second time; 4K + 2U tokens must fit.
    """

    updates: int = field(kw_only=True)

    def _context(self, key: Array) -> Context:
        half, writings = self.vocab_size // 2, self.pairs + self.updates
        row = np.arange(len(key))[:, None]
        keys = 1 + distinct(noise(key, KEYS, half - 1), self.pairs)  # [B,K]
        values = half + distinct(noise(key, VALUES, half), writings)  # [B,P]
        order = distinct(noise(key, ORDER, writings), writings)
        owner = np.where(order < self.pairs, order, order - self.pairs)  # [B,P] in 0..K-1
        place = np.argsort(order, axis=1)  # [B,P] the place of each write
        newest = place[:, : self.pairs].copy()  # [B,K]
        newest[:, : self.updates] = np.maximum(newest[:, : self.updates], place[:, self.pairs :])
        asked = np.sort(newest, axis=1)
        return Context(keys[row, owner], values, asked, owner[row, asked] < self.updates)

    def _query_len(self) -> int:
        return self.seq_len - 2 * (self.pairs + self.updates)

    def _check_room(self) -> None:
        super()._check_room()
        whole("updates", self.updates, 1, self.pairs)
        need = 4 * self.pairs + 2 * self.updates
        if need > self.seq_len:
            raise ValueError(
                f"{self.pairs} pairs and {self.updates} updates need 4 x {self.pairs} + 2 x {self.updates} = {need} "
                f"tokens, seq_len is {self.seq_len}; use fewer of them or a longer sequence"
            )
