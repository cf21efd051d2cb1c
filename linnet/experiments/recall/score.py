"""Right answers and questions of a model on a task, in all and by slices, added up over batches."""

from __future__ import annotations

import torch

from ...models import LanguageModel
from ...tasks import Scores, accuracy, add_scores
from .config import Task

BATCH = 128  # sequences scored at once


@torch.no_grad()
def score(model: LanguageModel, task: Task, rows: range) -> Scores:
    """Right answers and questions: "all", whole sequences, and by distance and number of the pair."""
    found = []
    for start in range(rows.start, rows.stop, BATCH):
        drawn = task.draw(list(range(start, min(start + BATCH, rows.stop))))
        predicted = torch.full_like(drawn.targets, -1)
        predicted[drawn.targets >= 0] = model.answers({"tokens": drawn.tokens, "targets": drawn.targets})[0]
        found.append(accuracy(predicted, drawn))
    return add_scores(found)


def ratio(sums: tuple[int, int]) -> float:
    return sums[0] / max(1, sums[1])
