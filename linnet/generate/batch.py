"""Batch: rows that are sampled together, each with its own settings.

    batch = Batch(rows)
    batch.choose(logits)               tokens [B], or the error of a row whose logits are not finite
    batch.score(logits)                log-probabilities [N] of the rows that report them, None for the others

Rows with equal `Sampling`, seeds aside, are sampled in one call; each gets the token it would get alone. Everything
that does not change from token to token is computed once: the scheduler builds a new batch when rows join or leave.
B rows, N vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .row import Row
from .sampling import Array, Sampling, choose, log_softmax


class Batch:
    """Rows in the order of their logits; `places` are their rows in the engine."""

    def __init__(self, rows: Sequence[Row] = ()) -> None:
        self.rows = list(rows)
        self.places = [row.place for row in rows]
        groups: dict[Sampling, list[int]] = {}
        for i, row in enumerate(rows):
            groups.setdefault(row.settings, []).append(i)
        self._groups = [(_Group([self.rows[i] for i in members], how), members) for how, members in groups.items()]
        self._scored = [i for i, row in enumerate(rows) if row.job.logprobs is not None]
        self._unscored: list[Array | None] = [None] * len(self.rows)

    def choose(self, logits: Array) -> Sequence[int | ValueError]:
        """Return a token for each row of logits [B,N], or the error of a row without one."""
        if len(self._groups) == 1:
            return self._groups[0][0].choose(logits)
        chosen: list[int | ValueError] = [0] * len(self.rows)
        for group, members in self._groups:
            for i, token in zip(members, group.choose(logits[members]), strict=True):
                chosen[i] = token
        return chosen

    def score(self, logits: Array) -> list[Array | None]:
        """Return the log-probabilities [N] for each row that reports them."""
        if not self._scored:
            return self._unscored
        scores = self._unscored.copy()
        for i, score in zip(self._scored, log_softmax(logits[self._scored]), strict=True):
            scores[i] = score
        return scores


class _Group:
    """Rows with one Sampling, seeds aside."""

    def __init__(self, rows: list[Row], sampling: Sampling) -> None:
        self.rows, self.sampling = rows, sampling
        self.draws = [row.draws for row in rows]

    def choose(self, logits: Array) -> Sequence[int | ValueError]:
        seen = counts = None
        if self.sampling.repetition_penalty != 1.0:
            seen = np.stack([row.seen for row in self.rows if row.seen is not None])
        if self.sampling.frequency_penalty or self.sampling.presence_penalty:
            counts = np.stack([row.counts for row in self.rows if row.counts is not None])
        try:
            return choose(logits, self.sampling, self.draws, seen, counts=counts, first=self.rows[0].job.row)
        except ValueError as error:
            if len(self.rows) == 1:
                return [error]
        each = [_Group([row], self.sampling) for row in self.rows]
        return [group.choose(logits[i : i + 1])[0] for i, group in enumerate(each)]
