"""Random numbers that depend on a row alone: a hash of (seed, split, row, attempt, stream, column), no generator.

    key(row) = mix(mix(mix(seed) ^ split) + row)     noise[row, column] = mix(mix(key(row) ^ stream) + column)

`mix` is one step of splitmix64. A row gives the same bytes whatever else is in its batch, in whatever order.

Two splits that share no content, whatever their seeds: each content (a set of integers, such as the key-value pairs
of a context) is held out if a hash of it, without any seed, falls in one part of sixteen. Test rows keep the held-out
contents and train rows the others; a draw on the wrong side is drawn again. A hash has no structure to learn: on both
sides every content of that side is equally likely.

B rows, M columns, K draws:  key [B]   noise [B,M]   all uint64, so that 64-bit arithmetic wraps around
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

Array = np.ndarray[Any, Any]
Draw = TypeVar("Draw", bound="tuple[Array, ...]")  # arrays whose first axis is the row

SPLITS = ("train", "test")
HELD_OUT = 16  # one content in so many belongs to the test split
MASK = 2**64 - 1


def row_keys(seed: int, split: str, rows: Sequence[int]) -> Array:  # [B]
    """One key per row, from which all that is random about the row follows."""
    key = mix(mix(np.array([seed & MASK], np.uint64)) ^ np.uint64(SPLITS.index(split)))
    return mix(key + np.asarray(rows, np.uint64))


def noise(key: Array, stream: int, columns: int) -> Array:  # [B] -> [B,columns]
    """Uniform 64-bit integers; one `stream` for each purpose."""
    return mix(mix(key ^ np.uint64(stream))[:, None] + np.arange(columns, dtype=np.uint64))


def below(limit: int, numbers: Array) -> Array:
    """64-bit integers to uniform integers from 0 to limit - 1, int64."""
    return (numbers % np.uint64(limit)).astype(np.int64)


def distinct(numbers: Array, count: int) -> Array:  # [B,M] -> [B,count] int64
    """The columns of the `count` smallest numbers, smallest first: for uniform noise, distinct and in random order.

    The lowest bits of a number give way to its column, so that one sort of integers does it.
    """
    columns = numbers.shape[1]
    low = np.uint64((1 << (columns - 1).bit_length()) - 1)
    packed = (numbers & ~low) | np.arange(columns, dtype=np.uint64)
    if 2 * count < columns:
        packed = np.partition(packed, count - 1, axis=1)[:, :count]
    return (np.sort(packed, axis=1)[:, :count] & low).astype(np.int64)


def weighted(numbers: Array, weights: Array, count: int) -> Array:  # [B,M], [M] -> [B,count] int64
    """`count` columns drawn one by one without replacement in proportion to `weights`, in the order drawn.

    Column s rings after a time Exp(1) / w_s and the first to ring are drawn: Gumbel-top-K on log w, order reversed.
    """
    uniform = ((numbers >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52  # inside (0, 1)
    times = -np.log(uniform) / weights
    return distinct(times.view(np.uint64), count)  # positive floats are in the order of their bits


def held_out(content: Array) -> Array:  # [B,n] -> [B] bool
    """Which contents belong to the test split; the order of the n integers does not matter."""
    return mix(mix(content.astype(np.uint64)).sum(axis=1, dtype=np.uint64)) % np.uint64(HELD_OUT) == 0


def accepted(key: Array, draw: Callable[[Array], Draw], content: Callable[[Draw], Array], split: str) -> Draw:
    """draw(key), drawn again with another key for the rows whose content belongs to the other split."""
    out = draw(key)
    wanted = split == "test"
    wrong = np.flatnonzero(held_out(content(out)) != wanted)
    attempt = 0
    while len(wrong):
        attempt += 1
        again = draw(mix(key[wrong] + np.uint64(attempt << 32)))  # clear of the streams
        for old, new in zip(out, again, strict=True):
            old[wrong] = new
        wrong = wrong[held_out(content(again)) != wanted]
    return out


def mix(x: Array) -> Array:
    """64 bits to 64 bits, wrapping around: one step of splitmix64 (Steele, Lea and Flood 2014)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x
