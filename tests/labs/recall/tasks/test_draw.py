"""Numbers that depend on a row alone: uniform, distinct, weighted without replacement; contents on one side only."""

from __future__ import annotations

from itertools import permutations
from typing import NamedTuple

import numpy as np
import pytest

from linnet.data.order import splitmix64
from linnet.labs.recall.tasks.draw import (
    HELD_OUT,
    Array,
    accepted,
    below,
    distinct,
    held_out,
    noise,
    row_keys,
    weighted,
)

ERRORS = 5  # standard deviations that a count of samples may be off
ROWS = 20_000


def chi_square(counts: Array, expected: Array) -> float:
    """How far off the counts are, in standard deviations of the chi-square distribution."""
    cells = len(counts) - 1
    return float((((counts - expected) ** 2 / expected).sum() - cells) / (2 * cells) ** 0.5)


def keys(rows: int = ROWS, seed: int = 0) -> Array:
    return row_keys(seed, "train", range(rows))


def test_mix_is_splitmix64() -> None:
    # The first three numbers of the published generator started at 1234567.
    states = [(1234567 + i * 0x9E3779B97F4A7C15) % 2**64 for i in range(3)]
    want = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert splitmix64(np.array(states, np.uint64)).tolist() == want


def test_a_row_has_its_own_numbers_whatever_the_batch() -> None:
    whole = noise(row_keys(7, "train", range(10)), 1, 16)
    some = noise(row_keys(7, "train", [8, 2]), 1, 9)
    assert np.array_equal(some, whole[[8, 2], :9])


def test_seeds_splits_rows_and_streams_differ() -> None:
    rows = [
        noise(row_keys(seed, split, range(3)), stream, 4)
        for seed in (0, 1, -1, 2**64 - 2)
        for split in ("train", "test")
        for stream in (1, 2)
    ]
    assert len(np.unique(np.concatenate(rows))) == 4 * 2 * 2 * 3 * 4


def test_below_is_uniform() -> None:
    counts = np.bincount(below(7, noise(keys(), 3, 2)).ravel(), minlength=7)
    assert len(counts) == 7
    assert chi_square(counts, np.full(7, 2 * ROWS / 7)) < ERRORS


@pytest.mark.parametrize(("columns", "count"), [(5, 3), (9, 2), (3, 3)])
def test_distinct_gives_every_ordered_choice_equally_often(columns: int, count: int) -> None:
    drawn = distinct(noise(keys(), 1, columns), count)
    cells = {choice: i for i, choice in enumerate(permutations(range(columns), count))}
    counts = np.bincount([cells[tuple(row)] for row in drawn.tolist()], minlength=len(cells))
    assert abs(chi_square(counts, np.full(len(cells), ROWS / len(cells)))) < ERRORS


def test_distinct_is_the_order_of_the_numbers() -> None:
    numbers = noise(keys(50), 1, 300)
    for count in (1, 20, 200, 300):
        assert np.array_equal(distinct(numbers, count), np.argsort(numbers, axis=1)[:, :count])


@pytest.mark.parametrize("power", [0.01, 1.0, 2.0])
def test_weighted_draws_one_by_one_without_replacement(power: float) -> None:
    weights = np.arange(1, 7) ** (power - 1)
    drawn = weighted(noise(keys(), 1, 6), weights, 3)
    chance = {}
    for choice in permutations(range(6), 3):  # p_a  p_b / (1 - p_a)  p_c / (1 - p_a - p_b)
        left, product = weights.sum(), 1.0
        for slot in choice:
            product, left = product * weights[slot] / left, left - weights[slot]
        chance[choice] = product
    cells = {choice: i for i, choice in enumerate(chance)}
    counts = np.bincount([cells[tuple(row)] for row in drawn.tolist()], minlength=len(cells))
    assert abs(chi_square(counts, ROWS * np.array(list(chance.values())))) < ERRORS


def test_one_content_in_sixteen_is_held_out_in_any_order() -> None:
    content = noise(keys(), 1, 5) >> np.uint64(20)
    out = held_out(content)
    assert abs(out.sum() - ROWS / HELD_OUT) < ERRORS * (ROWS / HELD_OUT) ** 0.5
    assert np.array_equal(held_out(content[:, ::-1]), out)


class Number(NamedTuple):
    value: Array  # [B,1]


@pytest.mark.parametrize("split", ["train", "test"])
def test_accepted_contents_are_all_of_one_side_and_equally_likely(split: str) -> None:
    def draw(key: Array) -> Number:
        return Number(below(200, noise(key, 1, 1)))

    number = accepted(keys(), draw, lambda drawn: drawn.value, split).value[:, 0]
    counts = np.bincount(number, minlength=200)
    mine = held_out(np.arange(200)[:, None]) == (split == "test")
    assert not counts[~mine].any()
    assert abs(chi_square(counts[mine], np.full(mine.sum(), ROWS / mine.sum()))) < ERRORS


def test_rows_drawn_again_do_not_depend_on_their_batch() -> None:
    def draw(key: Array) -> Number:
        return Number(below(10**6, noise(key, 1, 1)))

    whole = accepted(keys(40), draw, lambda drawn: drawn.value, "test").value
    for row in range(40):
        assert accepted(keys(40)[[row]], draw, lambda drawn: drawn.value, "test").value[0, 0] == whole[row, 0]
