"""Linear attention in the native decoder: s [kv,F,V], z [kv,F] and, if exact, the rounding errors of both.

kv key-value heads, F features, V value width.
"""

from __future__ import annotations

from typing import Any

import torch

from ....ops.state import State
from ..weights import PackedWeights
from .adapter import Memory, get_sums, put_sums
from .attention import OPTIONS, AttentionAdapter


class LinearAdapter(AttentionAdapter):
    """Adapter of LinearAttention; the size of its sums does not depend on the number of tokens."""

    kind = "linear"
    known = OPTIONS | {"eps", "feature_map", "_mapped"}

    @property
    def features(self) -> int:
        return int(self.mixer.feature_map.feature_dim)

    @property
    def sums(self) -> int:
        """Floats of s and z."""
        return int(self.kv * self.features * (self.V + 1))

    @property
    def state_floats(self) -> int:
        return self.sums * (1 + self.exact)

    def fields(self, weights: PackedWeights) -> dict[str, Any]:
        mixer = self.mixer
        own = {"features": self.features, "exact": self.exact, "eps": mixer.eps, **weights.maps(mixer.feature_map)}
        return super().fields(weights) | own

    def get(self, memory: Memory, seen: int) -> State:
        sums = get_sums(memory, self.sums, self.exact)
        size, shape = self.kv * self.features * self.V, (1, self.kv, self.features)
        return State(sums[:size].view(*shape, -1), sums[size:].view(shape))

    def put(self, memory: Memory, seen: int, state: State) -> None:
        put_sums(memory, torch.cat([state.s.reshape(-1), state.z.reshape(-1)]), self.exact)
