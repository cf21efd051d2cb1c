"""Mixer: what every layer that looks along time can do, so that nobody has to ask which one they hold.

    y, state = mixer(x, state)         x, y [B,T,E]: many tokens at once
    y, state = mixer.step(x, state)    x, y [B,E]:   the next token

Both give the same numbers at any split. A state is a value (see ops/state.py); None is the start of a sequence.
B batch, T time, E model width.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from ..ops.state import AnyState
from .positions import Rotation


class Mixer(nn.Module, ABC):
    """Base of all sequence mixers."""

    causal: bool = True

    @abstractmethod
    def forward(
        self,
        x: Tensor,
        state: AnyState | None = None,
        *,
        mask: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        positions: Tensor | Rotation | None = None,
        output_state: bool = False,
    ) -> tuple[Tensor, AnyState | None]:
        """x [B,T,E] -> [B,T,E]; mask [B,T], True = real token; positions [B,T] or [T], or the turns they make."""

    @abstractmethod
    def step(
        self, x: Tensor, state: AnyState | None = None, *, positions: Tensor | Rotation | None = None
    ) -> tuple[Tensor, AnyState]:
        """x [B,E] -> [B,E] and the new state; positions [B]."""

    @abstractmethod
    def empty_state(
        self, batch: int, *, device: torch.device | None = None, dtype: torch.dtype | None = None
    ) -> AnyState:
        """The state before the first token, for `batch` rows: its shapes are those of every later state."""

    @abstractmethod
    def state_bytes(self, length: int, dtype: torch.dtype = torch.float32) -> int:
        """Bytes of state per sequence after `length` tokens."""

    def attention_map(self, x: Tensor) -> Tensor:
        """x [B,T,E] -> [B,H,T,T]: out_t = sum_j A[t,j] v_j, the weights this layer gives to every earlier token."""
        raise ValueError(f"{type(self).__name__} has no attention map: its output is no weighted sum of values")


def attention_map(layer: Mixer, x: Tensor) -> Tensor:
    """The exact weights [B,H,T,T] that a layer gives to every token, whatever it computes them by.

    Row t, column j: how much of the value of token j is in the output of token t, before the output projection. Rows
    of normalised attention sum to one; those of a rule with decay or erasing may sum to anything, and go below zero.
    """
    return layer.attention_map(x)
