"""MQAR in a haystack: where the block stands, where the queries stand, and that the rest is hay."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from linnet.labs.recall.tasks import MQAR, Haystack
from linnet.targets import IGNORE

ERRORS = 5  # standard errors that a count of samples may be off


@settings(max_examples=60)
@given(st.integers(1, 8), st.integers(0, 20), st.sampled_from([None, 0, 0.3, 0.5, 1.0]), st.data())
def test_one_block_in_the_hay_and_queries_at_the_end(pairs: int, hay: int, depth: float, data: st.DataObject) -> None:
    seq_len = 4 * pairs + 2 * hay
    query_len = data.draw(st.sampled_from([None, 2 * pairs, 2 * pairs + 2 * hay]))
    task = Haystack(seq_len + 50, seq_len, pairs, filler="random", depth=depth, query_len=query_len)
    room = seq_len - (query_len or 2 * pairs)
    for tokens, targets, distance, pair in zip(*(part.tolist() for part in task.draw([0, 7])[:4]), strict=True):
        asked = [i for i, target in enumerate(targets) if target != IGNORE]
        starts = {i - distance[i] - (2 * pair[i] + 1) for i in asked}
        assert len(starts) == 1  # one block
        start = starts.pop()
        assert start % 2 == 0
        assert 0 <= start <= room - 2 * pairs
        if depth is not None:
            assert start == 2 * int(depth * (room - 2 * pairs) / 2)
        block = tokens[start : start + 2 * pairs]
        values = dict(zip(block[::2], block[1::2], strict=True))
        assert sorted(tokens[i] for i in asked) == sorted(values)
        assert all(targets[i] == values[tokens[i]] for i in asked)
        assert all(i >= room and i % 2 == 0 for i in asked)
        inside = {*range(start, start + 2 * pairs), *asked}
        assert not {token for i, token in enumerate(tokens) if i not in inside} & set(block)


def test_without_depth_every_place_is_as_likely() -> None:
    task, rows = Haystack(66, 64, 4), 3000
    recall = task.draw(range(rows))
    starts = (recall.tokens != 0).int().argmax(1)
    counts = starts.bincount(minlength=49)
    assert counts[1::2].sum() == 0
    assert len(counts) == 49
    assert (counts[::2] - rows / 25).abs().max() < ERRORS * (rows / 25) ** 0.5


def test_no_hay_is_mqar() -> None:
    plain, hay = MQAR(66, 64, 4, seed=3), Haystack(66, 64, 4, seed=3, query_len=56)
    for got, want in zip(hay.draw(range(20)), plain.draw(range(20)), strict=True):
        assert torch.equal(got, want)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"depth": 1.5}, "depth is 1.5; accepted: a number from 0 to 1, or None for any depth"),
        ({"depth": float("nan")}, "depth is nan; accepted"),
        ({"depth": "deep"}, "depth is 'deep'; accepted"),
        ({"query_len": 6}, "query_len is 6; accepted: a whole number from 8 to 56"),
        ({"query_len": 58}, "query_len is 58; accepted: a whole number from 8 to 56"),
        ({"query_len": 9}, "query_len is 9; accepted: even numbers, such as 8"),
    ],
)
def test_bad_fields_are_refused(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        Haystack(66, 64, 4, **change)
