"""Evaluation: sums over counts, the same for every batch size; the model is left as it was."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from linnet.train import ProcessGroup
from linnet.train.evaluation import evaluate
from tests.train.toy import Letters, small_model


@pytest.mark.parametrize("batch_size", [1, 3, 13, 50])
def test_the_same_result_for_every_batch_size(batch_size: int) -> None:
    model, source = small_model().double().train(), Letters(length=13)
    metrics = evaluate(model, source, batch_size=batch_size)
    with torch.no_grad():
        total, count = model.eval().loss(source.batch(range(13)))
    assert metrics["loss"] == pytest.approx(float(total / count), rel=1e-6)  # the loss itself is float32
    assert model.train().training


def test_only_the_first_rows() -> None:
    model, source = small_model(), Letters(length=13)
    assert evaluate(model, source, batch_size=4, rows=6) == evaluate(model, Letters(length=6), batch_size=4)
    assert evaluate(model, source, batch_size=4, rows=99) == evaluate(model, source, batch_size=4)


def test_the_mode_of_the_model_comes_back() -> None:
    for training in (True, False):
        model = small_model().train(training)
        evaluate(model, Letters(length=3), batch_size=2)
        assert model.training is training


class Pair(ProcessGroup):
    """Two processes as seen by one of them; the test adds the result of the other."""

    def __init__(self, rank: int) -> None:
        super().__init__(rank, 2, "ddp")

    def sum(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.own = tensors
        return tensors


@pytest.mark.parametrize("length", [1, 2, 7, 8])
def test_rows_shared_by_two_count_once(length: int) -> None:
    model, counts, passes = small_model(), [], []
    for rank in (0, 1):
        source = Counting(length=length)
        group = Pair(rank)
        evaluate(model, source, batch_size=4, group=group)
        counts.append(group.own[0])
        passes.append(len(source.asked))
    total, count = sum(counts[1:], counts[0])
    whole = evaluate(model, Letters(length=length), batch_size=4)
    assert float(total / count) == pytest.approx(whole["loss"], rel=1e-6)
    assert int(count) == Letters().units(Letters().batch(range(length)))
    assert passes[0] == passes[1]  # sharded weights wait for one another in each


class Counting(Letters):
    def __init__(self, length: int) -> None:
        super().__init__(length=length)
        self.asked: list[list[int]] = []

    def batch(self, rows: Sequence[int]) -> dict[str, torch.Tensor]:
        self.asked.append(list(rows))
        return super().batch(rows)
