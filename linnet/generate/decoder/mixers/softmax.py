"""Softmax attention in the native decoder: the key and the value of every token, in a cache that grows."""

from __future__ import annotations

from ....ops.state import KVState
from .adapter import Memory
from .attention import AttentionAdapter, take, times, write


class SoftmaxAdapter(AttentionAdapter):
    """Adapter of SoftmaxAttention: no fixed-size memory, `token_floats` per token."""

    kind = "softmax"
    state_floats = 0

    @property
    def cache_floats(self) -> int:  # type: ignore[override]
        return self.token_floats

    def get(self, memory: Memory, seen: int) -> KVState:
        return KVState(*take(*self.keys_values(memory.cache, memory.capacity), times(0, seen)))

    def put(self, memory: Memory, seen: int, state: KVState) -> None:
        write(*self.keys_values(memory.cache, memory.capacity), state, times(0, seen))

    def grow(self, to: Memory, source: Memory) -> None:
        views = (self.keys_values(memory.cache, memory.capacity) for memory in (to, source))
        for new, old in zip(*views, strict=True):
            new[:, : old.shape[1]] = old
