"""Random numbers that depend only on the row: a hash of (seed, split, row, attempt, stream, column), no generator.

    key(row) = mix(mix(mix(seed) ^ split) + row)     noise[row, column] = mix(mix(key(row) ^ stream) + column)

`mix` is splitmix64. A row has the same bytes whatever the rest and the order of its batch.

The two splits share no content, whatever their seeds: a content (a set of integers, such as the key-value pairs of a
context) is held out if its unseeded hash falls in one part of sixteen. Test rows have held-out contents and train rows
the others; a row on the wrong side is redrawn. A hash has no structure to learn: on either side every content is
equally likely.

B rows, M columns, K draws:  key [B]   noise [B,M]   all uint64, whose arithmetic wraps around
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ....data.order import splitmix64

Array = np.ndarray[Any, Any]
Draw = TypeVar("Draw", bound="tuple[Array, ...]")  # arrays whose first axis is the row

SPLITS = ("train", "test")
HELD_OUT = 16  # one content in 16 belongs to the test split
MASK = 2**64 - 1


def row_keys(seed: int, split: str, rows: Sequence[int]) -> Array:  # [B]
    """Return one key per row, from which everything random about the row follows."""
    key = splitmix64(splitmix64(np.array([seed & MASK], np.uint64)) ^ np.uint64(SPLITS.index(split)))
    return splitmix64(key + np.asarray(rows, np.uint64))


def noise(key: Array, stream: int, columns: int) -> Array:  # [B] -> [B,columns]
    """Return uniform 64-bit integers; each purpose has its own `stream`."""
    return splitmix64(splitmix64(key ^ np.uint64(stream))[:, None] + np.arange(columns, dtype=np.uint64))


def below(limit: int, numbers: Array) -> Array:
    """Map 64-bit integers to uniform integers from 0 to limit - 1, int64."""
    return (numbers % np.uint64(limit)).astype(np.int64)


def distinct(numbers: Array, count: int) -> Array:  # [B,M] -> [B,count] int64
    """Return the columns of the `count` smallest numbers, smallest first: for uniform noise, distinct and shuffled.

    The lowest bits of a number are replaced by its column, so that one sort of integers suffices.
    """
    columns = numbers.shape[1]
    low = np.uint64((1 << (columns - 1).bit_length()) - 1)
    packed = (numbers & ~low) | np.arange(columns, dtype=np.uint64)
    if 2 * count < columns:
        packed = np.partition(packed, count - 1, axis=1)[:, :count]
    return (np.sort(packed, axis=1)[:, :count] & low).astype(np.int64)


def weighted(numbers: Array, weights: Array, count: int) -> Array:  # [B,M], [M] -> [B,count] int64
    """Draw `count` columns without replacement in proportion to `weights`; return them in the order drawn.

    Column s has an arrival time Exp(1) / w_s and the first arrivals are drawn: Gumbel-top-K on log w, order reversed.
    """
    uniform = ((numbers >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52  # inside (0, 1)
    times = -np.log(uniform) / weights
    return distinct(times.view(np.uint64), count)  # positive floats sort like their bits


def held_out(content: Array) -> Array:  # [B,n] -> [B] bool
    """Return which contents belong to the test split; the order of the n integers does not matter."""
    return splitmix64(splitmix64(content.astype(np.uint64)).sum(axis=1, dtype=np.uint64)) % np.uint64(HELD_OUT) == 0


def accepted(key: Array, draw: Callable[[Array], Draw], content: Callable[[Draw], Array], split: str) -> Draw:
    """Return draw(key), with rows whose content belongs to the other split redrawn with another key."""
    out = draw(key)
    wanted = split == "test"
    wrong = np.flatnonzero(held_out(content(out)) != wanted)
    attempt = 0
    while len(wrong):
        attempt += 1
        again = draw(splitmix64(key[wrong] + np.uint64(attempt << 32)))  # above the numbers of the streams
        for old, new in zip(out, again, strict=True):
            old[wrong] = new
        wrong = wrong[held_out(content(again)) != wanted]
    return out
