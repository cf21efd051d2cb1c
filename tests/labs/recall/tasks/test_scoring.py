"""Scores: counted by hand on a small example, by loops on a drawn one, and adding up over batches."""

from __future__ import annotations

from collections import defaultdict

import pytest
import torch

from linnet.labs.recall.tasks import MQAR, CopyTask, Forgetting, Recall, accuracy, add_scores
from linnet.targets import IGNORE


def by_hand() -> Recall:
    nothing = torch.full((3, 5), -1)
    targets = torch.tensor([[IGNORE, 7, 8, 9, IGNORE], [5, IGNORE, IGNORE, IGNORE, 6], [IGNORE] * 5])
    distance, pair = nothing.clone(), nothing.clone()
    distance[0, 1:4], pair[0, 1:4] = torch.tensor([1, 2, 8]), torch.tensor([0, 1, 3])
    distance[1, 0], distance[1, 4], pair[1, 0], pair[1, 4] = 3, 15, 2, 0
    updated = torch.zeros(3, 5, dtype=torch.bool)
    updated[0, 2] = updated[1, 4] = True
    return Recall(torch.zeros(3, 5, dtype=torch.int64), targets, distance, pair, updated)


def test_a_small_example_by_hand() -> None:
    predicted = torch.tensor([[0, 7, 8, 9, 0], [5, 0, 0, 0, 5], [1, 2, 3, 4, 5]])
    assert accuracy(predicted, by_hand()) == {
        "all": (4, 5),
        "sequence": (1, 2),
        "pairs/2": (1, 2),
        "pairs/3": (3, 3),
        "distance/1": (1, 1),
        "distance/2-3": (2, 2),
        "distance/8-15": (1, 2),
        "pair/0": (1, 2),
        "pair/1": (1, 1),
        "pair/2-3": (2, 2),
        "updated": (1, 2),
        "kept": (3, 3),
    }


@pytest.mark.parametrize(
    "task", [MQAR(258, 256, 40), Forgetting(130, 128, 16, updates=8), CopyTask(64)], ids=lambda t: type(t).__name__
)
def test_slices_agree_with_a_loop(task: MQAR | CopyTask) -> None:
    recall = task.draw(range(20))
    predicted = torch.where(torch.rand(recall.targets.shape) < 0.7, recall.targets, 0)
    want: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for b, n in (recall.targets != IGNORE).nonzero().tolist():
        right = bool(predicted[b, n] == recall.targets[b, n])
        names = ["all"]
        for kind, value in (("distance", int(recall.distance[b, n])), ("pair", int(recall.pair[b, n]))):
            low = 1 << (value.bit_length() - 1) if value else 0
            names.append(f"{kind}/{low}" if low < 2 else f"{kind}/{low}-{2 * low - 1}")
        for name in names:
            want[name][0] += right
            want[name][1] += 1
    got = accuracy(predicted, recall)
    kinds = ("all", "distance", "pair")
    assert {name: list(pair) for name, pair in got.items() if name.split("/")[0] in kinds} == want
    assert ("updated" in got) == isinstance(task, Forgetting)


def test_perfect_answers_score_everything() -> None:
    recall = MQAR(66, 64, 16).draw(range(8))
    scores = accuracy(recall.targets, recall)
    assert scores["all"] == scores["pairs/16"] == (128, 128)
    assert scores["sequence"] == (8, 8)
    assert all(right == asked for right, asked in scores.values())


def test_batches_add_up_to_the_whole() -> None:
    recall = MQAR(66, 64, 8).draw(range(10))
    predicted = torch.where(torch.arange(640).view(10, 64) % 3 == 0, recall.targets, 0)
    parts = [accuracy(predicted[i : i + 4], Recall(*(t[i : i + 4] for t in recall))) for i in (0, 4, 8)]
    assert add_scores(parts) == accuracy(predicted, recall)
    assert add_scores([]) == {}


def test_nothing_asked_scores_nothing() -> None:
    recall = Recall(*(part[2:] for part in by_hand()))
    assert accuracy(torch.zeros(1, 5), recall) == {"all": (0, 0), "sequence": (0, 0)}


def test_logits_are_refused() -> None:
    with pytest.raises(ValueError, match=r"predicted has shape \[3, 5, 9\]; accepted: \[3, 5\]"):
        accuracy(torch.zeros(3, 5, 9), by_hand())
