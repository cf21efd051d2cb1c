"""Forgetting MQAR: the newest value is the label, old values answer nothing, rewritten keys are marked."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linnet.labs.recall.tasks import Forgetting
from linnet.targets import IGNORE

ERRORS = 5  # standard errors that a mean of samples may be off


@st.composite
def tasks(draw: st.DrawFn) -> Forgetting:
    pairs = draw(st.integers(1, 10))
    updates = draw(st.integers(1, pairs))
    seq_len = 4 * pairs + 2 * updates + 2 * draw(st.integers(0, 12))
    filler, split = draw(st.sampled_from(["zero", "random"])), draw(st.sampled_from(["train", "test"]))
    vocab_size = seq_len + 2 * draw(st.integers(24, 60))
    return Forgetting(vocab_size, seq_len, pairs, updates=updates, filler=filler, split=split, size=100)


@settings(max_examples=60)
@given(tasks())
def test_the_last_value_wins(task: Forgetting) -> None:
    end = 2 * (task.pairs + task.updates)
    recall = task.draw([0, 99])
    for tokens, targets, distance, pair, updated in zip(*(part.tolist() for part in recall), strict=True):
        context = list(zip(tokens[0:end:2], tokens[1:end:2], strict=True))
        newest = dict(context)  # later writings replace earlier ones
        written = [key for key, _ in context]
        assert len(newest) == task.pairs
        assert len({value for _, value in context}) == task.pairs + task.updates
        asked = [i for i, target in enumerate(targets) if target != IGNORE]
        assert sorted(tokens[i] for i in asked) == sorted(newest)
        assert all(i >= end and i % 2 == 0 for i in asked)
        for i in asked:
            assert targets[i] == newest[tokens[i]]
            assert context[pair[i]] == (tokens[i], targets[i])
            assert distance[i] == i - (2 * pair[i] + 1)
            assert updated[i] == (written.count(tokens[i]) == 2)
        assert sum(updated) == task.updates
        hay = {token for i, token in enumerate(tokens) if i >= end and i not in asked}
        assert not hay & {id for both in context for id in both}


def test_any_two_places_hold_the_two_writings() -> None:
    task, rows = Forgetting(66, 64, 4, updates=1), 3000
    keys = task.draw(range(rows)).tokens[:, 0:10:2]  # [B,5]
    same = (keys[:, :, None] == keys[:, None, :]).triu(1)
    counts = same.sum(0)[same.any(0)]
    assert counts.sum() == rows
    assert len(counts) == 10
    assert (counts - rows / 10).abs().max() < ERRORS * (rows / 10) ** 0.5


def test_train_and_test_share_nothing() -> None:
    def contexts(split: str, seed: int, rows: int) -> set[frozenset[tuple[int, ...]]]:
        task = Forgetting(48, 8, 1, updates=1, split=split, seed=seed, size=rows)
        context = task.draw(range(rows)).tokens[:, :4].unflatten(1, (-1, 2)).tolist()
        return {frozenset(map(tuple, row)) for row in context}

    train, held = contexts("train", 0, 6000) | contexts("train", 1, 6000), contexts("test", 0, 300)
    assert not train & held
    assert len(train) > 0.8 * 23 * 276  # most of all there are, so that splits kept apart by nothing would overlap


@pytest.mark.parametrize(
    ("pairs", "updates", "sentence"),
    [
        (4, 0, "updates is 0; accepted: a whole number from 1 to 4"),
        (4, 5, "updates is 5; accepted: a whole number from 1 to 4"),
        (16, 1, "16 pairs and 1 updates need 4 x 16 + 2 x 1 = 66 tokens, seq_len is 64"),
        (17, 1, "17 pairs need 4 x 17 = 68 tokens"),
    ],
)
def test_bad_updates_are_refused(pairs: int, updates: int, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        Forgetting(66, 64, pairs, updates=updates)
