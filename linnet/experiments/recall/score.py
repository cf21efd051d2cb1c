"""Right answers and questions of a model on a task, in all and by slices, added up over batches."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from ...models import LanguageModel
from ...tasks import Recall, Scores, accuracy, add_scores
from .config import Task

BATCH = 128  # sequences scored at once


@lru_cache(maxsize=64)
def drawn(task: Task, rows: tuple[int, ...]) -> Recall:
    """Held-out sequences, drawn once: they are scored again and again, by every model of a seed."""
    return task.draw(rows)


class Kept:
    """A task as a source whose batches are drawn once."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.length, self.unit, self.fingerprint, self.units = task.length, task.unit, task.fingerprint, task.units

    def batch(self, rows: Sequence[int]) -> dict[str, Tensor]:
        found = drawn(self.task, tuple(rows))
        return {"tokens": found.tokens, "targets": found.targets}


@torch.no_grad()
def score(model: LanguageModel, task: Task, rows: range) -> Scores:
    """Right answers and questions: "all", whole sequences, and by distance and number of the pair."""
    found = []
    for start in range(rows.start, rows.stop, BATCH):
        asked = drawn(task, tuple(range(start, min(start + BATCH, rows.stop))))
        predicted = torch.full_like(asked.targets, -1)
        predicted[asked.targets >= 0] = model.answers({"tokens": asked.tokens, "targets": asked.targets})[0]
        found.append(accuracy(predicted, asked))
    return add_scores(found)


def ratio(sums: tuple[int, int]) -> float:
    return sums[0] / max(1, sums[1])
