"""Recall: sequences that ask for what they said before, as a training source without files.

A task is a frozen dataclass: its fields are all that decides its bytes, and row r is always the same example
(linnet/tasks/draw.py says how, and why its train and test splits share no content).

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

from ..errors import unknown
from .draw import SPLITS, Array, row_keys

IGNORED = -100  # the target that counts for nothing, as in torch's cross_entropy
TRAIN_SIZE = 2**30  # more rows than any run draws: every example is fresh
MAX_SIZE = 2**40
MIN_CONTENTS = 512  # enough for either side of the split to have some


class Recall(NamedTuple):
    """B sequences with their answers. A target of -100 is not asked for; the others stand where they are asked.

    distance: position of the question minus position of its answer in the context; -1 where nothing is asked.
    pair: which pair (or symbol) of the context is asked for, counted from 0; -1 where nothing is asked.
    updated: the key asked for was written twice.
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
    """The part that all recall tasks share.

    Args:
        seed: two seeds are two streams of examples.
        split: "train" or "test"; no content is in both, whatever the seeds.
        size: examples in an epoch; None is 2^30 for training. A test split says how many it has.
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
        """The examples with these numbers."""

    @property
    def length(self) -> int:
        """Examples in an epoch."""
        return TRAIN_SIZE if self.size is None else self.size

    @property
    def unit(self) -> str:
        return "tokens"

    @property
    def fingerprint(self) -> str:
        """The task with all its fields."""
        return repr(self)

    def batch(self, rows: Sequence[int]) -> dict[str, Tensor]:
        """{"tokens", "targets"}: [B,N] int64."""
        recall = self.draw(rows)
        return {"tokens": recall.tokens, "targets": recall.targets}

    def units(self, batch: dict[str, Tensor]) -> int:
        """How many tokens are read in a batch, asked for or not."""
        return batch["tokens"].numel()

    def _keys(self, rows: Sequence[int]) -> Array:  # [B] uint64
        for row in rows:
            if not 0 <= row < self.length:
                raise ValueError(f"row {row} is not in the {self.split} split; accepted: 0 to {self.length - 1}")
        return row_keys(self.seed, self.split, rows)


def empty(rows: int, length: int) -> tuple[Array, Array, Array, Array]:
    """Targets, distance, pair and updated [B,N] of sequences that ask for nothing."""
    targets = np.full((rows, length), IGNORED, np.int64)
    return targets, np.full_like(targets, -1), np.full_like(targets, -1), np.zeros(targets.shape, bool)


def whole(name: str, value: object, low: int, high: int) -> None:
    """An integer from low to high, or a sentence."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"{name} is {value!r}; accepted: an integer from {low} to {high}")
