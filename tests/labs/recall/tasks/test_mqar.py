"""MQAR: the generator's invariants, its distribution against a slow sampler, disjoint splits, bad input."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from linnet.labs.recall.tasks import MQAR, Recall
from linnet.targets import IGNORE

ERRORS = 5  # standard errors that a count of samples may be off
GOLDEN = [
    [4, 16, 13, 26, 3, 30, 4, 15, 3, 22, 6, 10, 13, 18, 25, 28],
    [8, 28, 1, 30, 10, 29, 1, 16, 13, 22, 8, 17, 10, 26, 13, 27],
]


@st.composite
def tasks(draw: st.DrawFn) -> MQAR:
    pairs = draw(st.integers(1, 12))
    seq_len = 4 * pairs + 2 * draw(st.integers(0, 20))
    return MQAR(
        seq_len + 2 * draw(st.integers(24, 100)),
        seq_len,
        pairs,
        power=draw(st.sampled_from([0.01, 0.5, 1, 2.0])),
        filler=draw(st.sampled_from(["zero", "random", "uniform"])),
        seed=draw(st.integers(-(2**63), 2**64 - 1)),
        split=draw(st.sampled_from(["train", "test"])),
        size=1000,
    )


def rows_of(recall: Recall) -> list[tuple[list[int], list[int], list[int], list[int]]]:
    return list(zip(*(part.tolist() for part in recall[:4]), strict=True))


@settings(max_examples=60)
@given(tasks())
def test_every_key_is_asked_for_once_and_the_label_is_its_value(task: MQAR) -> None:
    half, start = task.vocab_size // 2, 2 * task.pairs
    for tokens, targets, distance, pair in rows_of(task.draw([0, 5, 999])):
        keys, values = tokens[0:start:2], tokens[1:start:2]
        assert len(set(keys)) == len(set(values)) == task.pairs
        assert all(1 <= key < half for key in keys)
        assert all(half <= value < task.vocab_size for value in values)
        asked = [i for i, target in enumerate(targets) if target != IGNORE]
        assert sorted(tokens[i] for i in asked) == sorted(keys)
        assert all(i % 2 == 0 and i >= start for i in asked)
        for i in asked:
            assert (keys[pair[i]], values[pair[i]]) == (tokens[i], targets[i])
            assert distance[i] == i - (2 * pair[i] + 1)
        assert {i for i in range(len(tokens)) if distance[i] >= 0} == set(asked)
        assert {i for i in range(len(tokens)) if pair[i] >= 0} == set(asked)
        if 4 * task.pairs == task.seq_len:
            assert asked == list(range(start, task.seq_len, 2))
        hay = {token for i, token in enumerate(tokens) if i >= start and i not in asked}
        assert hay <= {0} or task.filler != "zero"
        assert not hay & {*keys, *values} or task.filler == "uniform"


@settings(max_examples=30)
@given(tasks(), st.lists(st.integers(0, 999), max_size=6))
def test_a_row_has_the_same_bytes_in_every_batch(task: MQAR, rows: list[int]) -> None:
    together = task.draw(rows)
    for b, row in enumerate(rows):
        for whole, alone in zip(together, task.draw([row]), strict=True):
            assert torch.equal(whole[b], alone[0])


def test_the_bytes_stay_what_they_are() -> None:
    recall = MQAR(32, 16, 3, seed=1, filler="random").draw([0, 2**30 - 1])
    assert recall.tokens.tolist() == GOLDEN


def contents(task: MQAR, rows: int) -> set[frozenset[tuple[int, int]]]:
    context = task.draw(range(rows)).tokens[:, : 2 * task.pairs].unflatten(1, (-1, 2)).tolist()
    return {frozenset((key, value) for key, value in row) for row in context}


@pytest.mark.parametrize(("vocab_size", "pairs"), [(48, 1), (14, 2)])
def test_train_and_test_share_nothing_whatever_the_seeds(vocab_size: int, pairs: int) -> None:
    train = {content for seed in range(4) for content in contents(MQAR(vocab_size, 8, pairs, seed=seed), 2000)}
    held = set().union(
        *(contents(MQAR(vocab_size, 8, pairs, seed=seed, split="test", size=200), 200) for seed in range(4))
    )
    assert not train & held
    possible = 552 if pairs == 1 else 15 * 42
    assert len(train | held) > 0.99 * possible  # so few that two streams kept apart by nothing would overlap
    assert 0.02 < len(held) / possible < 0.12


def test_keys_values_and_fillers_are_uniform() -> None:
    task, rows = MQAR(40, 32, 2, filler="random"), 4000
    tokens = task.draw(range(rows)).tokens.numpy()
    for column, low, high in ((0, 1, 20), (2, 1, 20), (1, 20, 40), (3, 20, 40), (5, 0, 40), (31, 0, 40)):
        expected = rows / (high - low)
        counts = np.bincount(tokens[:, column], minlength=40)[low:high]
        assert counts.sum() == rows
        if column > 3:  # id 0 is never taken by a key, and hence more often a filler
            counts, expected = counts[1:], (rows - counts[0]) / 39
        assert np.abs(counts - expected).max() < ERRORS * expected**0.5


def slow_slots(slots: int, pairs: int, power: float, draws: int) -> np.ndarray[Any, Any]:
    """How often each slot is drawn by numpy's own choice without replacement."""
    generator, weights = np.random.default_rng(0), np.arange(1.0, slots + 1) ** (power - 1)
    counts = np.zeros(slots)
    for _ in range(draws):
        counts[generator.choice(slots, pairs, replace=False, p=weights / weights.sum())] += 1
    return counts


@pytest.mark.parametrize("power", [0.01, 1.0])
def test_slots_follow_the_power_law(power: float) -> None:
    task, rows = MQAR(66, 64, 4, power=power), 4000
    targets = task.draw(range(rows)).targets.numpy()
    got = (targets[:, 8::2] != IGNORE).sum(0)  # [28]
    want = slow_slots(28, 4, power, rows)
    assert got.sum() == want.sum() == 4 * rows
    z = (got - want) / np.sqrt(got + want)  # both are counts of as many draws
    assert np.abs(z).max() < ERRORS
    assert (z**2).mean() < 2


@pytest.mark.parametrize("power", [0.01, 1.0])
def test_the_first_key_has_the_first_slot_drawn(power: float) -> None:
    task, rows = MQAR(66, 64, 4, power=power), 4000
    pair = task.draw(range(rows)).pair.numpy()
    weights = np.arange(1.0, 29) ** (power - 1)
    want = rows * weights / weights.sum()  # nothing was drawn before it
    assert np.abs(((pair[:, 8::2] == 0).sum(0) - want) / want**0.5).max() < ERRORS


def test_early_keys_are_asked_for_early_and_power_one_spreads() -> None:
    def mean_distance(power: float) -> float:
        distance = MQAR(258, 256, 4, power=power).draw(range(500)).distance
        return float(distance[distance >= 0].double().mean())

    assert mean_distance(0.01) < 60 < 100 < mean_distance(1)


def test_seeds_and_splits_are_other_streams() -> None:
    streams = [MQAR(66, 64, 16, seed=seed, split=split, size=9) for seed in (0, 1) for split in ("train", "test")]
    firsts = {tuple(task.draw([0]).tokens[0].tolist()) for task in streams}
    assert len(firsts) == 4
    assert len({task.fingerprint for task in streams}) == 4


def test_it_is_a_source() -> None:
    task = MQAR(66, 64, 16)
    batch = task.batch([3, 1])
    recall = task.draw([3, 1])
    assert set(batch) == {"tokens", "targets"}
    assert torch.equal(batch["tokens"], recall.tokens)
    assert torch.equal(batch["targets"], recall.targets)
    assert batch["tokens"].dtype == batch["targets"].dtype == torch.int64
    assert (task.length, task.unit, task.units(batch)) == (2**30, "tokens", 128)
    assert MQAR(66, 64, 16, split="test", size=512).length == 512
    assert MQAR(66, 64, 16, filler="random").draw([]).tokens.shape == (0, 64)
    assert not recall.updated.any()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"vocab_size": 64}, "vocab_size 64 is not above seq_len 64; use vocab_size 66 or more"),
        ({"vocab_size": 67}, "vocab_size is 67; accepted: even numbers, such as 68"),
        ({"seq_len": 63}, "seq_len is 63; accepted: even numbers, such as 64"),
        ({"pairs": 17}, "17 pairs need 4 x 17 = 68 tokens, seq_len is 64; use at most 16 pairs"),
        ({"pairs": 0}, "pairs is 0; accepted: a whole number from 1"),
        ({"pairs": 2.0}, "pairs is 2.0; accepted: a whole number"),
        ({"vocab_size": True}, "vocab_size is True; accepted: a whole number"),
        ({"vocab_size": 6, "seq_len": 4, "pairs": 1}, "vocab_size 6 has too few sets of 1 pairs"),
        ({"power": 0}, "power is 0; accepted: a number above 0"),
        ({"power": float("nan")}, "power is nan; accepted: a number above 0"),
        ({"power": "1"}, "power is '1'; accepted: a number above 0"),
        ({"filler": "zeros"}, "unknown filler 'zeros'; did you mean 'zero'? Accepted: zero, random, uniform"),
        ({"split": "valid"}, "unknown split 'valid'. Accepted: train, test"),
        ({"split": "test"}, "the test split has no size; give the number of held-out examples"),
        ({"size": 0}, "size is 0; accepted: a whole number from 1"),
        ({"seed": 2**64}, "seed is 18446744073709551616; accepted: a whole number"),
    ],
)
def test_bad_fields_are_refused(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        MQAR(**({"vocab_size": 66, "seq_len": 64, "pairs": 16} | change))


@pytest.mark.parametrize("row", [-1, 512])
def test_rows_beyond_the_split_are_refused(row: int) -> None:
    task = MQAR(66, 64, 16, split="test", size=512)
    with pytest.raises(ValueError, match=f"row {row} is not in the test split; accepted: 0 to 511"):
        task.draw([0, row])
