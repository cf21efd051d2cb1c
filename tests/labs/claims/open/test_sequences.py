"""Majority, reversal and recall read backwards: the answers are right, rows are their own, the splits are apart."""

from __future__ import annotations

import pytest
import torch

from linnet.labs.claims.open.sequences import Flipped, Majority, Reversal
from linnet.labs.recall.tasks import MQAR


def test_majority_asks_after_every_odd_number_of_bits() -> None:
    result = Majority(seq_len=16).batch(range(20))
    for tokens, targets in zip(result["tokens"].tolist(), result["targets"].tolist(), strict=True):
        for i, target in enumerate(targets):
            wanted = int(sum(tokens[: i + 1]) > (i + 1) / 2) if i % 2 == 0 else -100
            assert target == wanted


def test_reversal_writes_the_source_from_its_end() -> None:
    result = Reversal(seq_len=6).batch(range(20))
    assert torch.equal(result["targets"], result["source"].flip(1))
    assert torch.equal(result["tokens"][:, 1:], result["targets"][:, :-1])
    assert result["tokens"][:, 0].tolist() == [0] * 20
    assert result["source"].min() >= 1
    assert result["source"].max() <= 10


def test_reversal_as_one_sequence_says_how_far_back_each_answer_is() -> None:
    result = Reversal(seq_len=5).draw(range(8))
    row, place = (result.targets >= 0).nonzero(as_tuple=True)
    answer = place - result.distance[row, place]
    assert torch.equal(result.tokens[row, answer], result.targets[row, place])
    assert torch.equal(answer, result.pair[row, place])


@pytest.mark.parametrize("task", [Majority, Reversal])
def test_a_row_is_its_own_and_the_splits_share_no_sequence(task: type[Majority] | type[Reversal]) -> None:
    train, test = task(seq_len=16), task(seq_len=16, split="test", size=300)
    assert torch.equal(train.batch([3, 9])["targets"][1], train.batch([9])["targets"][0])
    name = "tokens" if task is Majority else "source"
    seen = {tuple(row) for row in train.batch(range(300))[name].tolist()}
    assert not seen & {tuple(row) for row in test.batch(range(300))[name].tolist()}


def test_flipped_turns_time_round() -> None:
    task = MQAR(vocab_size=32, seq_len=16, pairs=4)
    plain, flipped = task.batch(range(4)), Flipped(task).batch(range(4))
    assert torch.equal(flipped["tokens"], plain["tokens"].flip(1))
    assert torch.equal(flipped["targets"], plain["targets"].flip(1))
    assert Flipped(task).fingerprint != task.fingerprint


@pytest.mark.parametrize(("task", "wrong"), [(Majority, 8), (Reversal, 3)])
def test_too_short_a_sequence_is_refused(task: type[Majority] | type[Reversal], wrong: int) -> None:
    with pytest.raises(ValueError, match=f"seq_len is {wrong}; accepted"):
        task(seq_len=wrong)
