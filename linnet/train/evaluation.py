"""Evaluation: `model.metrics` over the first rows of a source, in order, as sums divided once by their counts.

The number is the same however the rows are cut into batches or shared among processes, up to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from ..models import Model
from .distributed import Team
from .source import Source


def evaluate(
    model: Model,
    source: Source,
    *,
    batch_size: int,
    rows: int = 0,
    team: Team | None = None,
    context: AbstractContextManager[object] | None = None,
) -> dict[str, float]:
    """The model's metrics on rows 0, 1, ... of the source (0: all of them), `batch_size` at a time over all processes.

    `context` is what the forward passes run in, such as autocast. Every process of the team gets the same answer.
    """
    team = Team.alone() if team is None else team
    length = min(rows, source.length) if rows else source.length
    device = next(model.parameters()).device
    sums: dict[str, Tensor] = {}  # name -> sum, count
    training = model.training
    model.eval()
    with torch.no_grad(), context or nullcontext():
        for first in range(0, length, batch_size):
            for part, counts in _parts(range(first, min(first + batch_size, length)), team):
                batch = team.shard({name: x.to(device) for name, x in source.batch(part).items()})
                for name, pair in model.metrics(batch).items():
                    pair_sum = torch.stack([x.double().cpu() for x in pair])
                    sums[name] = sums.get(name, torch.zeros(2, dtype=torch.float64)) + pair_sum * counts
    model.train(training)
    totals = dict(zip(sums, team.sum(*sums.values()), strict=True))
    return {name: float(total / count) for name, (total, count) in totals.items()}


def _parts(rows: Sequence[int], team: Team) -> Iterator[tuple[Sequence[int], int]]:
    """This process's rows and whether they count: all take the same number of passes, as sharded weights need.

    Rows that do not divide over the processes are run by every one of them and counted by the first.
    """
    shared = len(rows) - len(rows) % readers(team)
    if shared:
        yield team.share(rows[:shared]), 1
    if shared < len(rows):
        yield rows[shared:], int(team.rank == 0)


def readers(team: Team) -> int:
    """How many processes read rows of their own: one when they share the time axis of the same rows."""
    return 1 if team.strategy == "sequence" else team.world
