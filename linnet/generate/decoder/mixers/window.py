"""Sliding-window attention in the native decoder: a ring of `window` tokens, time t at index t % window."""

from __future__ import annotations

from typing import Any

from ....ops.state import WindowState
from ..weights import PackedWeights
from .adapter import Memory, round_up
from .attention import OPTIONS, AttentionAdapter, take, times, write


class WindowAdapter(AttentionAdapter):
    """Adapter of WindowAttention: memory for `window` tokens, rounded up to complete blocks."""

    kind = "window"
    known = OPTIONS | {"window"}

    @property
    def room(self) -> int:
        return round_up(self.mixer.window)

    @property
    def state_floats(self) -> int:
        return self.room * self.token_floats

    def fields(self, weights: PackedWeights) -> dict[str, Any]:
        return super().fields(weights) | {"window": self.mixer.window}

    def get(self, memory: Memory, seen: int) -> WindowState:
        when = times(seen - self.mixer.window + 1, seen)
        k, v = take(*self.keys_values(memory.state, self.room), when % self.mixer.window)
        real = (when >= 0)[None]
        return WindowState(k * real[..., None, None], v * real[..., None, None], real)

    def put(self, memory: Memory, seen: int, state: WindowState) -> None:
        memory.state[: self.state_floats] = 0.0
        when = times(max(0, seen - state.k.shape[1]), seen)
        write(*self.keys_values(memory.state, self.room), state, when % self.mixer.window)
