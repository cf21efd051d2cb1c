"""Slots: the memory of the native decoder for the states of its rows, and its conversion to and from ModelState.

    states [slots, floats]     all layers of a row one after another: sums (and their errors), windows, convolutions
    caches                     keys and values of softmax layers, one growing block per slot

The adapters of mixers/ define the layout of each layer. `get` returns a copy; `put` accepts float64 too, and sums keep
its digits.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...models import ModelState
from ...native.gate import CPU, address, addresses
from ...native.memory import empty, fresh
from .mixers import BLOCK, Memory, round_up
from .packed_model import PackedModel

FIRST_SLOTS, FIRST_TOKENS = 4, 64


class Slots:
    """`take` and `give_back` slots; `get` and `put` the state of one row."""

    def __init__(self, packed: PackedModel) -> None:
        self.adapters, self.offsets = packed.adapters, packed.offsets
        self.cache_floats = packed.cache_floats
        self.states = fresh(0, max(packed.state_floats, BLOCK))
        self.positions = fresh(0, dtype=torch.int64)  # tokens seen
        self.caches: list[Tensor] = []
        self.free: list[int] = []
        self.grow(FIRST_SLOTS)

    @property
    def nbytes(self) -> int:
        """Bytes allocated for all rows, including spare room."""
        return 4 * (self.states.numel() + sum(cache.numel() for cache in self.caches))

    @torch.inference_mode(False)  # the memory outlives the call that allocates it
    def grow(self, slots: int) -> None:
        """Make room for `slots` rows; existing ones keep their numbers, but their memory moves."""
        old = len(self.states)
        states, positions = empty(slots, self.states.shape[1]), torch.zeros(slots, dtype=torch.int64, device=CPU)
        states[:old], positions[:old] = self.states, self.positions
        self.states, self.positions = states, positions
        self.caches += [fresh(0)] * (slots - old)
        self.addresses = torch.tensor(addresses(self.caches), device=CPU)
        self.capacity = torch.tensor([self.room(slot) for slot in range(slots)], device=CPU)
        self.free += range(slots - 1, old - 1, -1)

    def take(self, count: int) -> tuple[list[int], bool]:
        """Return `count` empty slots, and whether the memory moved to make room for them."""
        missing = count - len(self.free)
        if missing > 0:
            self.grow(max(2 * len(self.states), len(self.states) + missing))
        taken = [self.free.pop() for _ in range(count)]
        for slot in taken:
            self.states[slot].zero_()
            self.positions[slot] = 0
        return taken, missing > 0

    def give_back(self, slot: int) -> None:
        """Release a slot and its cache."""
        self.set_cache(slot, fresh(0))
        self.free.append(slot)

    def get(self, slot: int) -> ModelState:
        """Return the state of one row as a value."""
        seen, memory = int(self.positions[slot]), self.memory(slot, self.caches[slot])
        layers = tuple(adapter.get(part, seen) for adapter, part in zip(self.adapters, memory, strict=True))
        return ModelState(layers, torch.tensor([seen], device=CPU))

    def put(self, slot: int, state: ModelState) -> None:
        """Write the state of one row, which is on the CPU."""
        seen = int(state.position[0])
        if self.cache_floats and self.room(slot) < seen:
            self.set_cache(slot, fresh(0))
            self.enlarge(slot, round_up(max(FIRST_TOKENS, seen + seen // 4)))
        memory = self.memory(slot, self.caches[slot])
        for adapter, part, layer in zip(self.adapters, memory, state.layers, strict=True):
            adapter.put(part, seen, layer)
        self.positions[slot] = seen

    def memory(self, slot: int, cache: Tensor) -> list[Memory]:
        """Return the memory of each layer of a row, with this cache."""
        capacity, start, parts = cache.numel() // (self.cache_floats or 1), 0, []
        for adapter, offset in zip(self.adapters, self.offsets, strict=True):
            end = start + capacity * adapter.cache_floats
            parts.append(Memory(self.states[slot, offset:], cache[start:end], capacity))
            start = end
        return parts

    # ---- caches that grow

    def room(self, slot: int) -> int:
        """Return how many tokens the cache of a slot can hold."""
        return self.caches[slot].numel() // self.cache_floats if self.cache_floats else 0

    def set_cache(self, slot: int, cache: Tensor) -> None:
        self.caches[slot] = cache
        self.addresses[slot] = address(cache)
        self.capacity[slot] = self.room(slot)

    def make_room(self, slots: Tensor) -> int:
        """Make room for one more token in each of these caches; return the length of the longest with it."""
        positions = self.positions[slots]
        for slot in slots[positions >= self.capacity[slots]].tolist():
            self.enlarge(slot, max(FIRST_TOKENS, 2 * self.room(slot)))
        return int(positions.max()) + 1

    @torch.inference_mode(False)
    def enlarge(self, slot: int, tokens: int) -> None:
        """Replace the cache of a slot by one for `tokens` tokens, with the same content."""
        cache = torch.zeros(tokens * self.cache_floats, dtype=torch.float32, device=CPU)
        parts = zip(self.adapters, self.memory(slot, cache), self.memory(slot, self.caches[slot]), strict=True)
        for adapter, new, old in parts:
            if adapter.cache_floats:
                adapter.grow(new, old)
        self.set_cache(slot, cache)
