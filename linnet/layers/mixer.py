"""Mixer: the interface of every layer that mixes information along time.

    y, state = mixer(x, state)         x, y [B,T,E]: many tokens
    y, state = mixer.step(x, state)    x, y [B,E]:   the next token

Both give the same numbers, however a sequence is split. A state is a value (ops/state.py); None starts a sequence.
B batch, T time, E model width.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeAlias

import torch
from torch import Tensor, nn

from ..ops.state import AnyState
from .positions import Rotation

Shared: TypeAlias = "dict[str, Tensor]"  # what layers hand to later ones for the same tokens; one for each call


class Mixer(nn.Module, ABC):
    """Base class of all sequence mixers."""

    causal: bool = True
    shares: bool = False  # with layers before or after it: forward and step also take `shared`

    @property
    def rotary_width(self) -> int:
        """Width of the heads that rotary positions turn; 0 for a mixer that does not use them."""
        return 0

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
        """Mix x [B,T,E] -> [B,T,E]; mask [B,T], True = real token; positions [B,T] or [T], or their Rotation."""

    @abstractmethod
    def step(
        self, x: Tensor, state: AnyState | None = None, *, positions: Tensor | Rotation | None = None
    ) -> tuple[Tensor, AnyState]:
        """Mix the next token x [B,E] -> [B,E] and the new state; positions [B]."""

    @abstractmethod
    def empty_state(
        self, batch: int, *, device: torch.device | None = None, dtype: torch.dtype | None = None
    ) -> AnyState:
        """Return the state before the first token, for `batch` rows, with the shapes of every later state."""

    @abstractmethod
    def state_bytes(self, length: int, dtype: torch.dtype = torch.float32) -> int:
        """Return the bytes of state per sequence after `length` tokens."""

    def attention_map(self, x: Tensor) -> Tensor:
        """Return A [B,H,T,T] for x [B,T,E], with out_t = sum_j A[t,j] v_j; ValueError if there is no such form."""
        raise ValueError(f"{type(self).__name__} has no attention map: its output is not a weighted sum of values")


def attention_map(layer: Mixer, x: Tensor) -> Tensor:
    """Return the exact attention weights [B,H,T,T] of a layer, whichever form it computes.

    Entry [t,j] is the weight of the value of token j in the output of token t, before the output projection. Rows of
    normalised attention sum to one; with decay or erasure they may sum to anything, and weights may be negative.
    """
    return layer.attention_map(x)
