"""The order of the examples: every epoch a permutation, near uniform, and the same numbers for ever."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise, permutations
from math import isqrt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linnet.data.order import rows, share

MASK = 2**64 - 1
SEEDS = st.integers(-(2**63), 2**64 - 1)


def mix(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def one_row(seed: int, n: int, length: int) -> int:
    """The definition, one sample at a time in Python integers."""
    epoch, x = divmod(n, length)
    key = mix(mix(seed & MASK) ^ (epoch & MASK))
    keys = [mix((key + i) & MASK) for i in range(1, 13)]
    a = isqrt(length - 1) + 1
    b = -(-length // a)
    while True:
        u, v = divmod(x, b)
        for k in range(0, 12, 2):
            u = (u + mix(keys[k] ^ v) % a) % a
            v = (v + mix(keys[k + 1] ^ u) % b) % b
        x = u * b + v
        if x < length:
            return x


def epoch_rows(seed: int, epoch: int, length: int) -> list[int]:
    return rows(seed, epoch, length, length)


@given(SEEDS, st.integers(0, 10**9), st.integers(1, 3000))
def test_an_epoch_visits_every_row_once(seed: int, epoch: int, length: int) -> None:
    assert sorted(epoch_rows(seed, epoch, length)) == list(range(length))


@given(SEEDS, st.integers(1, 30), st.integers(1, 40), st.integers(1, 12))
def test_batches_are_consecutive_pieces_of_the_epochs(seed: int, length: int, batch_size: int, steps: int) -> None:
    """Whatever the batch size, also when it straddles epochs or is larger than one."""
    got = [row for step in range(steps) for row in rows(seed, step, batch_size, length)]
    whole = [row for epoch in range(-(-len(got) // length)) for row in epoch_rows(seed, epoch, length)]
    assert got == whole[: len(got)]


@given(SEEDS, st.integers(0, 2**62), st.integers(1, 9), st.integers(1, 2**40))
def test_rows_are_those_of_the_definition(seed: int, step: int, batch_size: int, length: int) -> None:
    wanted = [one_row(seed, step * batch_size + i, length) for i in range(batch_size)]
    got = rows(seed, step, batch_size, length)
    assert got == wanted
    assert all(type(row) is int for row in got)


def test_the_order_is_pinned() -> None:
    """Written down once: a resumed run would silently see other data if these changed."""
    assert rows(0, 0, 8, 10) == [4, 8, 7, 2, 5, 3, 6, 1]
    assert rows(0, 1, 8, 10) == [9, 0, 7, 4, 8, 0, 1, 2]
    assert rows(-1, 0, 8, 10) == [2, 3, 6, 7, 9, 8, 5, 1]
    assert rows(7, 123456, 4, 2**40) == [895172040940, 384749512485, 1079886914220, 764414996662]
    assert rows(3, 9, 5, 2) == [1, 0, 1, 0, 1]
    assert rows(1, 10**6, 3, 1) == [0, 0, 0]


@pytest.mark.parametrize(("length", "limit"), [(2, 10.8), (3, 20.5), (4, 49.7)])
def test_all_permutations_of_few_rows_are_equally_likely(length: int, limit: float) -> None:
    """Chi-square over the seeds against its 99.9 % limit; the seeds are fixed, so this cannot flicker."""
    every = list(permutations(range(length)))
    runs = 100 * len(every)
    counts = Counter(tuple(epoch_rows(seed, 0, length)) for seed in range(runs))
    assert sum((counts[p] - 100) ** 2 / 100 for p in every) < limit


def test_places_and_rows_are_unrelated() -> None:
    """Row of place i is uniform over the rows, and neighbours in place are not neighbours in row."""
    length, runs = 1000, 400
    first = Counter(rows(seed, 0, 1, length)[0] // 100 for seed in range(runs))
    assert sum((first[i] - runs / 10) ** 2 / (runs / 10) for i in range(10)) < 27.9  # chi-square, 9 degrees, 99.9 %
    order = epoch_rows(5, 0, 100_000)
    gaps = [abs(a - b) for a, b in pairwise(order)]
    assert sum(gaps) / len(gaps) == pytest.approx(100_000 / 3, rel=0.01)


def test_seeds_and_epochs_differ() -> None:
    orders = [tuple(epoch_rows(seed, epoch, 100)) for seed in range(20) for epoch in range(20)]
    assert len(set(orders)) == 400


@given(st.lists(st.integers(0, 99), min_size=1, max_size=12), st.integers(1, 5))
def test_shares_are_contiguous_and_make_up_the_batch(part: list[int], world: int) -> None:
    batch = [r for r in part for _ in range(world)]
    shares = [share(batch, rank, world) for rank in range(world)]
    assert [row for one in shares for row in one] == batch
    assert {len(one) for one in shares} == {len(part)}


def test_share_refuses_a_batch_that_does_not_divide() -> None:
    with pytest.raises(ValueError, match="a batch of 10 rows does not divide over 4 processes; use a multiple of 4"):
        share(list(range(10)), 0, 4)
    with pytest.raises(ValueError, match="rank is 2; accepted: a whole number from 0 to 1"):
        share([0, 1], 2, 2)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((0.5, 0, 1, 1), "seed"),
        ((0, -1, 1, 1), "step"),
        ((0, True, 1, 1), "step"),
        ((0, 0, 0, 1), "batch_size"),
        ((0, 0, 1, 0), "length"),
        ((0, 0, 1, 2**40 + 1), "length"),
    ],
)
def test_arguments_out_of_range_are_named(arguments: Any, name: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name} is .*; accepted: a whole number from"):
        rows(*arguments)
