"""Recall hits: by hand, against a loop over every earlier pair, and counts that add up."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from linnet.labs.recall.tasks import Bigrams, count_bigrams, recall_hits


def batch(*rows: list[int]) -> dict[str, Tensor]:
    """Windows of ids: tokens and the ones after them; -1 is padding."""
    ids = torch.tensor(rows)
    targets = torch.where(ids[:, 1:] < 0, -100, ids[:, 1:])
    return {"tokens": ids[:, :-1].clamp(min=0), "targets": targets}


def test_by_hand() -> None:
    """7 8 stands there twice, so does 8 9; 8 9 is in training three times, 7 8 once, 9 7 never."""
    training = count_bigrams([batch([7, 8, 9, 8, 9, 8, 9])], 10)
    assert training.of(torch.tensor([7, 8, 9]), torch.tensor([8, 9, 7])).tolist() == [1, 3, 0]
    window = batch([7, 8, 9, 7, 8, 9, 9])
    hits = recall_hits(window["tokens"], window["targets"], training, most=1)
    assert hits.tolist() == [[False, False, False, True, False, False]]
    hits = recall_hits(window["tokens"], window["targets"], training, most=3)
    assert hits.tolist() == [[False, False, False, True, True, False]]


def test_padding_is_never_a_hit_and_rows_do_not_see_one_another() -> None:
    window = batch([0, 0, 0, 0, -1, -1], [1, 2, 1, 2, 1, 2], [1, 2, 3, 4, 5, 6])
    hits = recall_hits(window["tokens"], window["targets"], Bigrams(*torch.zeros(2, 0, dtype=torch.long), 10), 0)
    assert hits.int().tolist() == [[0, 1, 1, 0, 0], [0, 0, 1, 1, 1], [0, 0, 0, 0, 0]]


ids = st.lists(st.lists(st.integers(-1, 3), min_size=12, max_size=12), min_size=1, max_size=3)


@settings(max_examples=50)
@given(rows=ids, text=ids, most=st.integers(0, 6))
def test_as_a_loop_says(rows: list[list[int]], text: list[list[int]], most: int) -> None:
    window, training = batch(*rows), batch(*text)
    counted = [(int(a), int(b)) for a, b in zip(*(training[n].flatten() for n in ("tokens", "targets")), strict=True)]
    counts = Counter(pair for pair in counted if pair[1] >= 0)
    bigrams = count_bigrams([training], 4)
    assert bigrams.total == sum(counts.values())
    hits = recall_hits(window["tokens"], window["targets"], bigrams, most)
    for b, row in enumerate(hits.tolist()):
        pairs = list(zip(window["tokens"][b].tolist(), window["targets"][b].tolist(), strict=True))
        for t, hit in enumerate(row):
            assert hit == (pairs[t][1] >= 0 and pairs[t] in pairs[:t] and counts[pairs[t]] <= most)


def test_counts_do_not_depend_on_the_batches() -> None:
    rows = torch.randint(0, 5, (9, 20), generator=torch.Generator().manual_seed(0)).tolist()
    whole, parts = count_bigrams([batch(*rows)], 5), count_bigrams([batch(*rows[:4]), batch(*rows[4:])], 5)
    assert all(torch.equal(a, b) for a, b in zip(whole[:2], parts[:2], strict=True))
    left = whole.without(count_bigrams([batch(*rows[4:])], 5))
    assert all(torch.equal(a, b) for a, b in zip(left[:2], count_bigrams([batch(*rows[:4])], 5)[:2], strict=True))


@pytest.mark.parametrize(("share", "most"), [(0.05, 0), (0.1, 1), (0.25, 1), (0.3, 2), (0.59, 2), (0.6, 3), (1.0, 4)])
def test_most_is_the_largest_count_within_the_share(share: float, most: int) -> None:
    """Of 10 bigrams: one occurs once, one twice, one three times, one four times."""
    bigrams = Bigrams(torch.arange(4), torch.tensor([4, 2, 1, 3]), 10)
    assert bigrams.most(share) == most
    rare = bigrams.counts[bigrams.counts <= most].sum()
    assert rare <= share * 10 + 1e-9


def test_bad_input_is_refused() -> None:
    some = Bigrams(torch.tensor([3]), torch.tensor([2]), 10)
    with pytest.raises(ValueError, match=r"tokens \[2, 3\] and targets \[2, 4\] do not match"):
        recall_hits(torch.zeros(2, 3).long(), torch.zeros(2, 4).long(), some, 0)
    for share in (0.0, 1.5, -1.0):
        with pytest.raises(ValueError, match="share is"):
            some.most(share)
    for part in (some._replace(vocab_size=11), some._replace(counts=torch.tensor([3]))):
        with pytest.raises(ValueError, match="is not part of a text with 2"):
            some.without(part)
