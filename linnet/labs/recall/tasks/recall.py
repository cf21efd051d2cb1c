"""Recall tasks: sequences that query their own earlier tokens, as a training source without files.

A task is a frozen dataclass: its fields determine its bytes, and row r is always the same example
(linnet/labs/recall/tasks/draw.py explains how, and why the train and test splits share no content).

B rows, N tokens:  tokens, targets, distance, pair [B,N] int64   updated [B,N] bool
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ....errors import unknown, whole
from ....targets import IGNORE
from .draw import SPLITS, Array, row_keys

TRAIN_SIZE = 2**30  # more rows than any run draws: every example is new
MAX_SIZE = 2**40
MIN_CONTENTS = 512  # enough for both sides of the split


class Recall(NamedTuple):
    """B sequences with their targets, which are at the positions of the queries; -100 elsewhere.

    distance: position of the query minus position of its answer in the context; -1 where there is no query.
    pair: index of the queried pair (or symbol) of the context, from 0; -1 where there is no query.
    updated: the queried key was written twice.
    """

    tokens: Tensor
    targets: Tensor
    distance: Tensor
    pair: Tensor
    updated: Tensor

    @classmethod
    def of(cls, tokens: Array, targets: Array, distance: Array, pair: Array, updated: Array) -> Recall:
        return cls(*(torch.from_numpy(array) for array in (tokens, targets, distance, pair, updated)))


@dataclass(frozen=True, kw_only=True)
class Stream(ABC):
    """Base class of the recall tasks.

    Args:
        seed: each seed is a separate stream of examples.
        split: "train" or "test"; no content is in both, whatever the seeds.
        size: examples per epoch; None means 2^30 for training. A test split needs a size.
    """

    seed: int = 0
    split: str = "train"
    size: int | None = None

    def __post_init__(self) -> None:
        whole("seed", self.seed, -(2**63), 2**64 - 1)
        if self.split not in SPLITS:
            raise unknown("split", self.split, SPLITS)
        if self.size is None and self.split == "test":
            raise ValueError("the test split has no size; give the number of held-out examples, such as size=512")
        if self.size is not None:
            whole("size", self.size, 1, MAX_SIZE)

    @abstractmethod
    def draw(self, rows: Sequence[int]) -> Recall:
        """Return the examples with these indices."""

    @property
    def length(self) -> int:
        """Return the number of examples per epoch."""
        return TRAIN_SIZE if self.size is None else self.size

    @property
    def unit(self) -> str:
        return "tokens"

    @property
    def fingerprint(self) -> str:
        """Return the task with all its fields."""
        return repr(self)

    def batch(self, rows: Sequence[int]) -> dict[str, Tensor]:
        """Return {"tokens", "targets"}, [B,N] int64."""
        recall = self.draw(rows)
        return {"tokens": recall.tokens, "targets": recall.targets}

    def units(self, batch: dict[str, Tensor]) -> int:
        """Return the number of tokens in a batch, targets or not."""
        return batch["tokens"].numel()

    def _keys(self, rows: Sequence[int]) -> Array:  # [B] uint64
        for row in rows:
            if not 0 <= row < self.length:
                raise ValueError(f"row {row} is not in the {self.split} split; accepted: 0 to {self.length - 1}")
        return row_keys(self.seed, self.split, rows)


def empty(rows: int, length: int) -> tuple[Array, Array, Array, Array]:
    """Return targets, distance, pair and updated [B,N] of sequences without queries."""
    targets = np.full((rows, length), IGNORE, np.int64)
    return targets, np.full_like(targets, -1), np.full_like(targets, -1), np.zeros(targets.shape, bool)
