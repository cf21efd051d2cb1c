"""The order of examples: a pure function of (seed, step), without a shuffled list or a generator to save.

    sample n = step batch_size + i      epoch = n // length      row = P_(seed, epoch)(n mod length)

P is a Feistel network on the grid a x b >= length (a, b near the square root), walked until it lands below `length`
(Black and Rogaway 2002, "Ciphers with Arbitrary Finite Domains"), so every epoch visits each row once in O(1) memory.
A batch may straddle two epochs. The numbers never change between versions: resuming a run depends on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt
from typing import Any

import numpy as np

from ..errors import whole

Array = np.ndarray[Any, Any]  # uint64, so that 64-bit arithmetic wraps around
MAX_LENGTH = 2**40
ROUNDS = 12  # fewer are visibly uneven on lengths below ten
MASK = 2**64 - 1
# of splitmix64
GAMMA, FACTOR_1, FACTOR_2 = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
SHIFT_30, SHIFT_27, SHIFT_31 = (np.uint64(n) for n in (30, 27, 31))


def rows(seed: int, step: int, batch_size: int, length: int) -> list[int]:
    """Return the rows of the global batch of this step (0, 1, ...), in 0..length-1."""
    whole("seed", seed, -(2**63), 2**64 - 1)
    whole("step", step, 0, 2**62)
    whole("batch_size", batch_size, 1, 2**40)
    whole("length", length, 1, MAX_LENGTH)
    first = step * batch_size
    out: list[int] = []
    for epoch in range(first // length, (first + batch_size - 1) // length + 1):
        start, end = epoch * length, (epoch + 1) * length
        places = np.arange(max(first, start) - start, min(first + batch_size, end) - start, dtype=np.uint64)
        out += _permute(places, length, _keys(seed, epoch)).tolist()
    return out


def share(rows: Sequence[int], rank: int, world: int) -> list[int]:
    """Return the contiguous slice of a global batch for process `rank` of `world`."""
    whole("world", world, 1, 2**31)
    whole("rank", rank, 0, world - 1)
    if len(rows) % world:
        raise ValueError(
            f"a batch of {len(rows)} rows does not divide over {world} processes; use a multiple of {world}"
        )
    size = len(rows) // world
    return list(rows[rank * size : (rank + 1) * size])


def _permute(x: Array, length: int, keys: Array) -> Array:  # [n] -> [n]
    """Permute 0..length-1: apply the network again to values that it maps out of bounds."""
    out = _network(x, length, keys)
    beyond = out >= length
    if beyond.any():
        out[beyond] = _permute(out[beyond], length, keys)
    return out


def _network(x: Array, length: int, keys: Array) -> Array:
    """Permute 0..ab-1: each half-step adds a hash of one coordinate to the other."""
    a = isqrt(length - 1) + 1  # ceil(sqrt(length))
    b = -(-length // a)  # a b < length + a, so walks are short
    u, v = x // b, x % b  # u in 0..a-1, v in 0..b-1
    for k in range(0, ROUNDS, 2):
        u = (u + splitmix64(keys[k] ^ v) % a) % a
        v = (v + splitmix64(keys[k + 1] ^ u) % b) % b
    return u * b + v


def _keys(seed: int, epoch: int) -> Array:  # [ROUNDS]
    key = splitmix64(splitmix64(np.array([seed & MASK], np.uint64)) ^ np.uint64(epoch & MASK))
    return splitmix64(key + np.arange(1, ROUNDS + 1, dtype=np.uint64))


def splitmix64(x: Array) -> Array:  # uint64 [...] -> uint64 [...]
    """Return one step of splitmix64 of each number, with wrap-around (Steele, Lea and Flood 2014)."""
    x = x + GAMMA
    x ^= x >> SHIFT_30
    x *= FACTOR_1
    x ^= x >> SHIFT_27
    x *= FACTOR_2
    x ^= x >> SHIFT_31
    return x
