"""Short convolutions in the native decoder: a ring of the last K - 1 inputs [K-1,N], time t at index t % (K - 1).

N channels, K kernel size.
"""

from __future__ import annotations

from typing import Any

from ....ops.state import ConvState
from ..weights import PackedWeights
from .adapter import Memory, MixerAdapter
from .attention import times


class ConvAdapter(MixerAdapter):
    """Adapter of BaseConv, and of Shift, whose filter is fixed."""

    kind = "conv"

    @property
    def past(self) -> int:
        """Number of stored inputs, K - 1."""
        return int(self.mixer.kernel_size) - 1

    @property
    def state_floats(self) -> int:
        return self.past * int(self.mixer.width)

    def fields(self, weights: PackedWeights) -> dict[str, Any]:
        mixer = self.mixer
        filters = {"filter": weights.floats(mixer.weight.T.flip(0)), "filter_bias": weights.floats(mixer.bias)}
        return {"kernel_size": mixer.kernel_size, "channels": mixer.width, **filters, **self.matrices(weights)}

    def matrices(self, weights: PackedWeights) -> dict[str, Any]:
        """Pack the projections."""
        return {"in": weights.linear(self.mixer.gate)}

    def get(self, memory: Memory, seen: int) -> ConvState:
        when = times(seen - self.past, seen) % max(self.past, 1)
        return ConvState(memory.state[: self.state_floats].view(self.past, -1)[when][None])

    def put(self, memory: Memory, seen: int, state: ConvState) -> None:
        when = times(seen - self.past, seen) % max(self.past, 1)
        memory.state[: self.state_floats].view(self.past, -1)[when] = state.x[0].float()


class GatedConvAdapter(ConvAdapter):
    """Adapter of GatedConv: two projections around the convolution."""

    kind = "gated_conv"

    def matrices(self, weights: PackedWeights) -> dict[str, Any]:
        return {"in": weights.linear(self.mixer.proj), "out": weights.linear(self.mixer.out)}
