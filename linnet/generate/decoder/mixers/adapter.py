"""MixerAdapter: everything the native decoder knows about one kind of mixer, except its kernel (csrc/*_step.h, mix.h).

    adapter = adapter_for(block.mixer)          __init__.py; BackendError for a mixer without one
    adapter.fields(weights)                     its fields of the layer's struct, by name
    adapter.get(memory, seen)                   the memory of a row in the engine -> a state of linnet/ops/state.py
    adapter.put(memory, seen, state)            the reverse

To add a mixer, write an adapter in this folder and a kernel in csrc (mix.h, or a *_step.h that decode.h calls), and add
it to the table of __init__.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from torch import Tensor

from ....ops.state import AnyState
from ..weights import PackedWeights

BLOCK = 16  # floats in a cache line; tokens in a block of cached keys


class Memory(NamedTuple):
    """The part of a row's memory that belongs to one layer."""

    state: Tensor  # [state_floats]
    cache: Tensor  # [capacity * cache_floats]
    capacity: int  # tokens that the cache has room for, a multiple of BLOCK


class MixerAdapter(ABC):
    """Adapter of one mixer of a model. `exact`: sums are stored with their rounding errors (see open_engine)."""

    kind: str  # name of its kernel in native/decode.py MIXERS
    cache_floats = 0  # per token read; 0: the memory does not grow

    def __init__(self, mixer: Any, *, exact: bool) -> None:
        self.mixer, self.exact = mixer, exact

    @property
    @abstractmethod
    def state_floats(self) -> int:
        """Floats of fixed-size memory per row."""

    @abstractmethod
    def fields(self, weights: PackedWeights) -> dict[str, Any]:
        """Pack the weights and return the fields of `Layer` (native/decode.py) that belong to the mixer."""

    @abstractmethod
    def get(self, memory: Memory, seen: int) -> AnyState:
        """Return a copy of the state of a row that has read `seen` tokens."""

    @abstractmethod
    def put(self, memory: Memory, seen: int, state: Any) -> None:
        """Write the state of a row that has read `seen` tokens; it is on the CPU, float32 or float64."""

    def grow(self, to: Memory, source: Memory) -> None:
        """Copy the content of a cache to a larger one; only for a mixer with a cache."""
        raise NotImplementedError


def get_sums(memory: Memory, count: int, exact: bool) -> Tensor:
    """Return a copy of `count` sums, with their rounding errors, which follow them, if `exact`."""
    sums = memory.state[:count].clone()
    return sums + memory.state[count : 2 * count] if exact else sums


def put_sums(memory: Memory, sums: Tensor, exact: bool) -> None:
    """Write sums, and if `exact` what float32 leaves of the digits of a float64 state."""
    count = len(sums)
    memory.state[:count] = sums
    if exact:
        memory.state[count : 2 * count] = sums - memory.state[:count]


def round_up(n: int) -> int:
    """Return the next multiple of BLOCK."""
    return -(-n // BLOCK) * BLOCK
