"""ModelState: what a whole model remembers, one state for each layer and how many tokens each row has seen.

logits, state = model(tokens)              layers: State, KVState, WindowState or ConvState
fork = state                               a value: never altered, so keeping it is forking it
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..ops.state import AnyState, Rows, join_states


class ModelState(NamedTuple):
    """Methods as those of a layer's state."""

    layers: tuple[AnyState, ...]
    position: Tensor  # [B] int64: real tokens so far

    @property
    def nbytes(self) -> int:
        """Bytes held by the tensors of all layers."""
        return sum(layer.nbytes for layer in self.layers)

    def select(self, rows: Rows) -> ModelState:
        """The given batch rows, in that order, repeats allowed."""
        layers = tuple(layer.select(rows) for layer in self.layers)
        index = rows if isinstance(rows, slice) else torch.as_tensor(rows, device=self.position.device)
        return ModelState(layers, self.position[index])

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> ModelState:
        """On another device or in another floating dtype; positions stay whole numbers."""
        return ModelState(tuple(layer.to(device, dtype) for layer in self.layers), self.position.to(device))

    def detach(self) -> ModelState:
        """Cut from the graph: training over a long stream, one piece at a time."""
        return ModelState(tuple(layer.detach() for layer in self.layers), self.position)

    def clone(self) -> ModelState:
        return ModelState(tuple(layer.clone() for layer in self.layers), self.position.clone())

    @classmethod
    def join(cls, states: Sequence[ModelState]) -> ModelState:
        """One state with the rows of all, in order."""
        layers = tuple(join_states(parts) for parts in zip(*(state.layers for state in states), strict=True))
        return cls(layers, torch.cat([state.position for state in states]))
