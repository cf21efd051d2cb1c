"""Base of the adapters of recurrent mixers: the state MatrixState(s [1,H,F,V], x [1,W,C]) in memory.

    s [H,F,V], rounded up to a cache line, then a ring of the last W inputs [W,C], time t at index t % W

H heads, F and V height and width of the matrix, W inputs kept, C their channels.
"""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ....ops.state import MatrixState
from ..options import check_options
from ..weights import PackedWeights
from .adapter import Memory, MixerAdapter, round_up
from .attention import times

COMMON = frozenset({"matrix", "inputs", "form"})  # of every MatrixMixer


class RecurrentAdapter(MixerAdapter):
    """Sizes and state; a subclass names the options of its layer that it packs, and packs them."""

    known: ClassVar[frozenset[str]]

    def __init__(self, mixer: Any, *, exact: bool) -> None:
        super().__init__(mixer, exact=exact)
        check_options(mixer, COMMON | self.known)

    @property
    def past(self) -> int:
        """Where the last inputs begin, in floats."""
        return round_up(prod(self.mixer.matrix))

    @property
    def state_floats(self) -> int:
        return self.past + prod(self.mixer.inputs)

    def heads(self) -> dict[str, Any]:
        """Return the sizes of the matrices as fields."""
        heads, keys, values = self.mixer.matrix
        return {"heads": heads, "key": keys, "value": values, "past": self.past}

    def conv(self, weights: PackedWeights) -> dict[str, Any]:
        """Pack the short convolution of `inputs` channels, or one that changes nothing for a layer without."""
        mixer, channels = self.mixer, self.mixer.inputs[1]
        if mixer.filter is None:
            channels = mixer.widths[0]
            taps = torch.ones(channels, 1)
        else:
            taps = mixer.filter
        bias = torch.zeros(channels) if mixer.filter_bias is None else mixer.filter_bias
        filters = {"filter": weights.floats(taps.T.flip(0)), "filter_bias": weights.floats(bias)}
        return {"kernel_size": taps.shape[1], "channels": channels, **filters}

    def get(self, memory: Memory, seen: int) -> MatrixState:
        s = memory.state[: prod(self.mixer.matrix)].view(1, *self.mixer.matrix)
        return MatrixState(s.clone(), self._ring(memory)[self._places(seen)][None])

    def put(self, memory: Memory, seen: int, state: MatrixState) -> None:
        memory.state[: prod(self.mixer.matrix)] = state.s.reshape(-1)
        self._ring(memory)[self._places(seen)] = state.x[0].float()

    def _ring(self, memory: Memory) -> Tensor:
        return memory.state[self.past : self.state_floats].view(self.mixer.inputs)

    def _places(self, seen: int) -> Tensor:
        kept = self.mixer.inputs[0]
        return times(seen - kept, seen) % max(kept, 1)


def negative_exp(x: Tensor) -> Tensor:
    """Return -e^x without a gradient."""
    return -x.detach().exp()


def norm_fields(weights: PackedWeights, norm: nn.Module) -> dict[str, Any]:
    """Pack the norm of a head as the fields norm_weight, norm_bias and norm_eps."""
    parts = weights.norm(norm, "")
    eps: Any = norm.eps
    return {"norm_weight": parts["norm"], "norm_bias": parts["bias"], "norm_eps": eps}
