"""Slots: where the native decoder keeps what its rows remember, and how that becomes a ModelState and back.

    states [slots, floats]     every layer of a row one after the other: sums (and their errors), windows, convolutions
    caches                     keys and values of softmax layers, one growing block for each slot

The layouts are those of csrc/mix.h. A state taken out is a copy; one put in may be float64, and keeps its digits.
kv key-value heads, T tokens, D key width, V value width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..layers.attention import Attention, LinearAttention, SoftmaxAttention, WindowAttention
from ..models import ModelState, StreamModel
from ..native.gate import CPU, address, addresses
from ..native.memory import empty, fresh
from ..ops.state import AnyState, ConvState, KVState, State, WindowState, real_tokens
from .program import BLOCK, Program, rounded

FIRST_SLOTS, FIRST_TOKENS = 4, 64


class Slots:
    """`take` and `give_back` numbers of slots; `get` and `put` states of one row."""

    def __init__(self, program: Program, model: StreamModel) -> None:
        self.program = program
        self.mixers: list[Any] = [block.mixer for block in model.backbone.layers]
        self.softmax = [i for i, mixer in enumerate(self.mixers) if isinstance(mixer, SoftmaxAttention)]
        self.states = fresh(0, max(program.state_floats, BLOCK))
        self.positions = fresh(0, dtype=torch.int64)  # tokens seen
        self.caches: list[Tensor] = []
        self.free: list[int] = []
        self.grow(FIRST_SLOTS)

    @property
    def nbytes(self) -> int:
        """Bytes kept for all rows, spare room included."""
        return 4 * (self.states.numel() + sum(cache.numel() for cache in self.caches))

    @torch.inference_mode(False)  # the memory outlives the call it is made in
    def grow(self, slots: int) -> None:
        """Room for so many rows; the states there are keep their places."""
        old = len(self.states)
        states, positions = empty(slots, self.states.shape[1]), torch.zeros(slots, dtype=torch.int64, device=CPU)
        states[:old], positions[:old] = self.states, self.positions
        self.states, self.positions = states, positions
        self.caches += [fresh(0)] * (slots - old)
        self.addresses = torch.tensor(addresses(self.caches), device=CPU)
        self.capacity = torch.tensor([self.room(slot) for slot in range(slots)], device=CPU)
        self.free += range(slots - 1, old - 1, -1)

    def take(self, count: int) -> tuple[list[int], bool]:
        """So many empty slots, and whether the memory moved to make them."""
        missing = count - len(self.free)
        if missing > 0:
            self.grow(max(2 * len(self.states), len(self.states) + missing))
        taken = [self.free.pop() for _ in range(count)]
        for slot in taken:
            self.states[slot].zero_()
            self.positions[slot] = 0
        return taken, missing > 0

    def give_back(self, slot: int) -> None:
        self.set_cache(slot, fresh(0))
        self.free.append(slot)

    # ---- caches of softmax layers

    def room(self, slot: int) -> int:
        """Tokens the cache of a slot has places for."""
        per_token = self.program.cache_floats
        return self.caches[slot].numel() // per_token if per_token else 0

    def set_cache(self, slot: int, cache: Tensor) -> None:
        self.caches[slot] = cache
        self.addresses[slot] = address(cache)
        self.capacity[slot] = self.room(slot)

    def make_room(self, slots: Tensor) -> int:
        """A place for one more token in each of these caches; returns the longest after it."""
        positions = self.positions[slots]
        for slot in slots[positions >= self.capacity[slots]].tolist():
            self.enlarge(slot, max(FIRST_TOKENS, 2 * self.room(slot)))
        return int(positions.max()) + 1

    @torch.inference_mode(False)
    def enlarge(self, slot: int, tokens: int) -> None:
        size, old = tokens * self.program.cache_floats, self.room(slot)
        new = torch.zeros(size, dtype=torch.float32, device=CPU)
        for layer in self.softmax:
            parts = (self.cached(new, layer, tokens), self.cached(self.caches[slot], layer, old))
            for to, source in zip(*parts, strict=True):
                to[:, : source.shape[1]] = source
        self.set_cache(slot, new)

    def cached(self, cache: Tensor, layer: int, tokens: int) -> tuple[Tensor, Tensor]:
        """Views of a layer's keys [kv, T/16, D, 16] and values [kv, T, V] in a cache."""
        mixer: Attention = self.mixers[layer]
        size = tokens * mixer.n_kv_heads * (mixer.key_dim + mixer.head_dim)
        start = self.softmax.index(layer) * size
        return _keys_values(cache[start : start + size], mixer, tokens)

    # ---- states as values

    def get(self, slot: int) -> ModelState:
        seen = int(self.positions[slot])
        layers = tuple(self._get_layer(slot, layer, seen) for layer in range(len(self.mixers)))
        return ModelState(layers, torch.tensor([seen], device=CPU))

    def put(self, slot: int, state: ModelState) -> None:
        """The state of one row, on the cpu."""
        seen = int(state.position[0])
        for layer, part in enumerate(state.layers):
            self._put_layer(slot, layer, part, seen)
        self.positions[slot] = seen

    def _get_layer(self, slot: int, layer: int, seen: int) -> AnyState:
        mixer = self.mixers[layer]
        room = self.states[slot, self.program.offsets[layer] :]
        if isinstance(mixer, LinearAttention):
            shape = (1, mixer.n_kv_heads, mixer.feature_map.feature_dim)
            n, size = shape[1] * shape[2], shape[1] * shape[2] * mixer.head_dim
            sums = room[: size + n].clone()
            if self.program.exact:
                sums += room[size + n : 2 * (size + n)]
            return State(sums[:size].view(*shape, -1), sums[size:].view(shape))
        if isinstance(mixer, SoftmaxAttention):
            keys, values = self.cached(self.caches[slot], layer, self.room(slot))
            return KVState(*_in_order(keys, values, torch.arange(seen, device=CPU)))
        if isinstance(mixer, WindowAttention):
            size, past = rounded(mixer.window), mixer.window - 1
            keys, values = _keys_values(room, mixer, size)
            when = torch.arange(seen - past, seen, device=CPU)
            k, v = _in_order(keys, values, when % mixer.window)
            real = (when >= 0)[None]
            return WindowState(k * real[..., None, None], v * real[..., None, None], real)
        past, width = mixer.kernel_size - 1, mixer.width
        when = torch.arange(seen - past, seen, device=CPU) % max(past, 1)
        return ConvState(room[: past * width].view(past, width)[when][None])

    def _put_layer(self, slot: int, layer: int, part: AnyState, seen: int) -> None:
        mixer = self.mixers[layer]
        room = self.states[slot, self.program.offsets[layer] :]
        if not isinstance(part, State):  # what a sum has beyond float32 is kept, keys and inputs are rounded
            part = part.to(dtype=torch.float32)
        if isinstance(part, State):
            sums = torch.cat([part.s.reshape(-1), part.z.reshape(-1)])
            room[: len(sums)] = sums
            if self.program.exact:
                room[len(sums) : 2 * len(sums)] = sums - room[: len(sums)]  # what a float64 state has beyond float32
        elif isinstance(part, KVState):
            if self.room(slot) < seen:
                self.set_cache(slot, fresh(0))
                self.enlarge(slot, rounded(max(FIRST_TOKENS, seen + seen // 4)))
            keys, values = self.cached(self.caches[slot], layer, self.room(slot))
            _put(keys, values, part, torch.arange(seen, device=CPU))
        elif isinstance(part, WindowState):
            size, past = rounded(mixer.window), part.k.shape[1]
            room[: mixer.n_kv_heads * size * (mixer.key_dim + mixer.head_dim)] = 0.0
            keys, values = _keys_values(room, mixer, size)
            _put(keys, values, part, torch.arange(max(0, seen - past), seen, device=CPU) % mixer.window)
        else:
            past, width = part.x.shape[1:]
            when = torch.arange(seen - past, seen, device=CPU) % max(past, 1)
            room[: past * width].view(past, width)[when] = part.x[0]


def _keys_values(room: Tensor, mixer: Attention, tokens: int) -> tuple[Tensor, Tensor]:
    kv, D, V = mixer.n_kv_heads, mixer.key_dim, mixer.head_dim
    keys = room[: kv * tokens * D].view(kv, tokens // BLOCK, D, BLOCK)
    return keys, room[kv * tokens * D : kv * tokens * (D + V)].view(kv, tokens, V)


def _in_order(keys: Tensor, values: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """The tokens at these places as k [1,T,kv,D] and v [1,T,kv,V]."""
    k = keys.transpose(2, 3).flatten(1, 2)[:, places]  # [kv,T,D]
    return k.transpose(0, 1)[None].contiguous(), values[:, places].transpose(0, 1)[None].contiguous()


def _put(keys: Tensor, values: Tensor, part: KVState | WindowState, places: Tensor) -> None:
    real = real_tokens(part)[0]
    keys[:, places // BLOCK, :, places % BLOCK] = part.k[0, real]  # [T,kv,D]: an index apart from another comes first
    values[:, places] = part.v[0, real].transpose(0, 1)
