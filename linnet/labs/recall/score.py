"""Score a model on a task: correct answers and queries, in total and by slices, summed over batches."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from ...models import LanguageModel
from .config import Task
from .tasks import Recall, Scores, accuracy, add_scores

BATCH = 128  # sequences per forward pass


@lru_cache(maxsize=64)
def drawn(task: Task, rows: tuple[int, ...]) -> Recall:
    """Return held-out sequences, cached because every model of a seed is scored on them."""
    return task.draw(rows)


class Kept:
    """A task as a data source with cached batches."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.length, self.unit, self.fingerprint, self.units = task.length, task.unit, task.fingerprint, task.units

    def batch(self, rows: Sequence[int]) -> dict[str, Tensor]:
        recall = drawn(self.task, tuple(rows))
        return {"tokens": recall.tokens, "targets": recall.targets}


@torch.no_grad()
def score(model: LanguageModel, task: Task, rows: range) -> Scores:
    """Return correct answers and queries: all, whole sequences, and by distance and index of the pair."""
    scores = []
    for start in range(rows.start, rows.stop, BATCH):
        asked = drawn(task, tuple(range(start, min(start + BATCH, rows.stop))))
        predicted = torch.full_like(asked.targets, -1)
        predicted[asked.targets >= 0] = model.predictions({"tokens": asked.tokens, "targets": asked.targets})[0]
        scores.append(accuracy(predicted, asked))
    return add_scores(scores)


def ratio(sums: tuple[int, int]) -> float:
    return sums[0] / max(1, sums[1])
