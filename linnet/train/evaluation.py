"""Evaluation: sum `model.metrics` over the first rows of a source and divide once by the counts.

The result does not depend, up to rounding, on how the rows are batched or divided among processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from ..models import Model
from .distributed import ProcessGroup
from .source import Source


def evaluate(
    model: Model,
    source: Source,
    *,
    batch_size: int,
    rows: int = 0,
    group: ProcessGroup | None = None,
    context: AbstractContextManager[object] | None = None,
) -> dict[str, float]:
    """Return the model's metrics on the first `rows` of the source (0: all), the same on every process of the group.

    `batch_size` rows run at a time, over all processes; `context` surrounds the forward passes, such as autocast.
    """
    group = ProcessGroup.alone() if group is None else group
    length = min(rows, source.length) if rows else source.length
    device = next(model.parameters()).device
    sums: dict[str, Tensor] = {}  # name -> sum, count
    training = model.training
    model.eval()
    with torch.no_grad(), context or nullcontext():
        for first in range(0, length, batch_size):
            for part, counts in _parts(range(first, min(first + batch_size, length)), group):
                batch = group.shard({name: x.to(device) for name, x in source.batch(part).items()})
                for name, pair in model.metrics(batch).items():
                    pair_sum = torch.stack([x.double().cpu() for x in pair])
                    sums[name] = sums.get(name, torch.zeros(2, dtype=torch.float64)) + pair_sum * counts
    model.train(training)
    totals = dict(zip(sums, group.sum(*sums.values()), strict=True))
    return {name: float(total / count) for name, (total, count) in totals.items()}


def _parts(rows: Sequence[int], group: ProcessGroup) -> Iterator[tuple[Sequence[int], int]]:
    """Yield this process's rows and whether they count; sharded weights need as many passes on every process.

    Rows that do not divide over the processes run on all of them and count on rank 0.
    """
    shared = len(rows) - len(rows) % readers(group)
    if shared:
        yield group.share(rows[:shared]), 1
    if shared < len(rows):
        yield rows[shared:], int(group.rank == 0)


def readers(group: ProcessGroup) -> int:
    """Return how many processes read different rows: 1 if they split the time axis of the same rows."""
    return 1 if group.strategy == "sequence" else group.world
