"""Multi-query associative recall: read K key-value pairs, then recall the value of every key when it recurs.

    k1 v1 k2 v2 ... kK vK | . . k2 . k1 . . . kK .     targets: v2 v1 ... vK under those keys, -100 elsewhere

Arora et al. 2023 (arXiv:2312.04927), as their code generates it. Vocabulary V, length N, K pairs, power a:
1. keys: K distinct ids of 1..V/2-1; values: K distinct ids of V/2..V-1; fresh for every example; 0 is filler;
2. the context k1 v1 ... kK vK comes first and has 2K tokens;
3. of the (N - 2K)/2 slots, K are drawn one by one without replacement, p_s ~ (s + 1)^(a - 1); key i has slot g_i;
4. the query of key i is at 2K + 2 g_i; the rest is filler. Every key is queried once, early keys tend to come early;
5. the target is at the query itself: the value, when the key is read.
With K = N/4 every slot is used, and the power only changes the order of the queries. Chance is 2/V.

Filler: "zero", id 0; "random", any id that is neither key nor value of the example, so nothing collides; "uniform",
any id, as with random_non_queries in the original: it can repeat a key or a value of the context.
Train and test share no set of pairs (linnet/labs/recall/tasks/draw.py).

B rows, P pairs in the context (K here):  tokens [B,N]   context keys, values [B,P]   queries [B,K]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ....errors import unknown, whole
from .draw import Array, accepted, below, distinct, noise, weighted
from .recall import MIN_CONTENTS, Recall, Stream, empty

FILLERS = ("zero", "random", "uniform")
MAX_VOCAB = 2**20
KEYS, VALUES, SLOTS, FILLER, ORDER, DEPTH = range(1, 7)  # streams of noise


class Context(NamedTuple):
    """keys, values [B,P] in order; asked [B,K] the place of each queried pair, increasing; updated [B,K]."""

    keys: Array
    values: Array
    asked: Array
    updated: Array


@dataclass(frozen=True)
class MQAR(Stream):
    """The MQAR task as a training source.

    Args:
        vocab_size: V, even and above seq_len.
        seq_len: N, even.
        pairs: K, at most N/4.
        power: a; 0.01 puts queries soon after the context, 1 uniformly.
        filler: "zero", "random" or "uniform".
    """

    vocab_size: int
    seq_len: int
    pairs: int
    power: float = 0.01
    filler: str = "zero"

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("vocab_size", self.vocab_size, 1, MAX_VOCAB)
        whole("seq_len", self.seq_len, 1, MAX_VOCAB)
        whole("pairs", self.pairs, 1, MAX_VOCAB)
        for name, value in (("seq_len", self.seq_len), ("vocab_size", self.vocab_size)):
            if value % 2:
                raise ValueError(f"{name} is {value}; accepted: even numbers, such as {value + 1}")
        if not (isinstance(self.power, int | float) and math.isfinite(self.power) and self.power > 0):
            raise ValueError(f"power is {self.power!r}; accepted: a number above 0; 1 spreads the queries evenly")
        if self.filler not in FILLERS:
            raise unknown("filler", self.filler, FILLERS)
        self._check_room()

    def draw(self, rows: Sequence[int]) -> Recall:
        """Return the examples with these indices."""
        key = self._keys(rows)
        context = accepted(key, self._context, _pairs, self.split)
        slots = np.arange(self._query_len() // 2, dtype=np.float64)
        drawn = weighted(noise(key, SLOTS, len(slots)), (slots + 1) ** (self.power - 1), self.pairs)  # [B,K]
        return self._lay_out(key, context, self.seq_len - self._query_len() + 2 * drawn)

    def _lay_out(self, key: Array, context: Context, query: Array) -> Recall:
        """Write context and queries over the filler; query [B,K] are positions."""
        keys, values, asked, updated = context
        row = np.arange(len(key))[:, None]
        place = self._start(key)[:, None] + 2 * np.arange(keys.shape[1])  # [B,P]
        tokens = self._filler(key, context)
        tokens[row, place], tokens[row, place + 1] = keys, values
        tokens[row, query] = keys[row, asked]
        targets, distance, pair, flags = empty(*tokens.shape)
        targets[row, query] = values[row, asked]
        distance[row, query] = query - (place[row, asked] + 1)
        pair[row, query] = asked
        flags[row, query] = updated
        return Recall.of(tokens, targets, distance, pair, flags)

    def _filler(self, key: Array, context: Context) -> Array:  # [B,N]
        shape = (len(key), self.seq_len)
        if self.filler == "zero":
            return np.zeros(shape, np.int64)
        numbers = noise(key, FILLER, self.seq_len)
        if self.filler == "uniform":
            return below(self.vocab_size, numbers)
        row = np.arange(len(key))[:, None]
        free = np.ones((len(key), self.vocab_size), bool)
        free[row, context.keys] = free[row, context.values] = False
        count = self.vocab_size - self.pairs - context.values.shape[1]  # the same in every row
        return np.nonzero(free)[1].reshape(len(key), count)[row, below(count, numbers)]

    def _context(self, key: Array) -> Context:
        half, rows = self.vocab_size // 2, len(key)
        keys = 1 + distinct(noise(key, KEYS, half - 1), self.pairs)
        values = half + distinct(noise(key, VALUES, half), self.pairs)
        return Context(keys, values, np.tile(np.arange(self.pairs), (rows, 1)), np.zeros((rows, self.pairs), bool))

    def _start(self, key: Array) -> Array:  # [B]
        """Return where the context begins."""
        return np.zeros(len(key), np.int64)

    def _query_len(self) -> int:
        """Return how many tokens at the end are reserved for the queries."""
        return self.seq_len - 2 * self.pairs

    def _check_room(self) -> None:
        v, n, k = self.vocab_size, self.seq_len, self.pairs
        if 4 * k > n:
            raise ValueError(f"{k} pairs need 4 x {k} = {4 * k} tokens, seq_len is {n}; use at most {n // 4} pairs")
        if v <= n:
            raise ValueError(f"vocab_size {v} is not above seq_len {n}; use vocab_size {n + 2} or more")
        few = min(k, 4)  # 4 pairs have enough sets in any vocabulary that gets here
        if math.comb(v // 2 - 1, few) * math.perm(v // 2, few) < MIN_CONTENTS:
            raise ValueError(
                f"vocab_size {v} has too few sets of {k} pairs to keep train and test apart; accepted: {MIN_CONTENTS} "
                "sets or more; use a larger vocab_size"
            )


def _pairs(context: Context) -> Array:  # [B,P]
    """Return every pair of the context as one integer, which decides between train and test."""
    return (context.keys << 32) | context.values
