"""The engine whose every step is one call of native code: states of all rows in one block of memory, moved on in place.

    row -> slot of the block;  a slot holds the float32 states of all layers, one after the other (csrc/mix.h)

A stream's numbers are the same bits alone and in any batch, on any number of threads. Softmax layers keep their keys
and values in a cache for each slot, which doubles when it is full.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import StateError
from ..layers.attention import Attention, LinearAttention, SoftmaxAttention, WindowAttention
from ..models import Forecaster, ModelState, StreamModel
from ..models.inputs import checked_numbers
from ..models.language import check_tokens
from ..native.decode import Decode, scratch, step
from ..native.memory import empty
from ..ops.state import AnyState, ConvState, KVState, State, WindowState, real_tokens
from .engine import Engine
from .program import BLOCK, Program, rounded

FIRST_SLOTS, FIRST_TOKENS = 4, 64
FEW = 16  # rows whose tokens are looked at in Python: quicker than torch


@dataclass
class _Call:
    """A step made ready: its rows, and the memory its fields point to."""

    rows: list[int]
    fields: Decode
    slots: Tensor
    memory: Tensor


class NativeEngine(Engine):
    """`weights` "float32", "bfloat16" or "int8"; `threads` torch's own number unless given."""

    def __init__(self, model: StreamModel, weights: str = "float32", threads: int | None = None) -> None:
        super().__init__(model)
        self.program = Program(model, weights)
        self.threads = threads
        self.width = _width(model)
        inputs: Any = model if hasattr(model, "embed") else model.inputs
        self._ends = model.config.positions == "learned"
        self._tokens = 0 if inputs.embed is None else inputs.embed.num_embeddings
        self._slots: dict[int, int] = {}  # row -> slot
        self._free: list[int] = []
        self._states = torch.empty(0, max(self.program.state_floats, BLOCK))
        self._positions = torch.empty(0, dtype=torch.int64)
        self._caches: list[Tensor] = []
        self._call: _Call | None = None  # the last one
        self._grow(FIRST_SLOTS)

    @property
    def rows(self) -> list[int]:
        return list(self._slots)

    @property
    def nbytes(self) -> int:
        """Bytes kept for the states of all rows, spare room included."""
        return 4 * (self._states.numel() + sum(cache.numel() for cache in self._caches))

    @torch.inference_mode(False)  # the memory outlives the call it is made in
    def _grow(self, slots: int) -> None:
        """Room for so many rows; the states there are keep their places."""
        old = len(self._states)
        states, positions = empty(slots, max(self.program.state_floats, BLOCK)), torch.zeros(slots, dtype=torch.int64)
        states[:old], positions[:old] = self._states, self._positions
        self._states, self._positions = states, positions
        self._caches += [torch.empty(0)] * (slots - old)
        self._addresses = torch.tensor([cache.data_ptr() for cache in self._caches])
        self._capacity = torch.tensor([self._room(slot) for slot in range(slots)])
        self._free += range(slots - 1, old - 1, -1)
        self._call = None

    def _enter(self, rows: list[int], state: ModelState | None) -> None:
        missing = len(rows) - len(self._free)
        if missing > 0:
            self._grow(max(2 * len(self._states), len(self._states) + missing))
        for row in rows:
            slot = self._slots[row] = self._free.pop()
            if state is None:
                self._states[slot].zero_()
                self._positions[slot] = 0
        if state is not None:
            self._restore(rows, state)

    def _remove(self, rows: list[int]) -> None:
        for row in rows:
            slot = self._slots.pop(row)
            self._set_cache(slot, torch.empty(0))
            self._free.append(slot)
        self._call = None

    def _step(self, x: Tensor, rows: list[int]) -> Tensor:
        call = self._ready(rows)
        x = self._checked(x)
        if self._ends:
            self._check_length(call.slots)
        if self.program.caches:
            self._make_room(call)
        out = torch.empty(len(rows), self.width)
        call.fields.out = out.data_ptr()
        if self._tokens:
            call.fields.tokens = x.data_ptr()
        else:
            call.fields.values = x.data_ptr()
        step(call.fields, self.program.packet)
        return self.model.forecast(out, x) if isinstance(self.model, Forecaster) else out

    def _ready(self, rows: list[int]) -> _Call:
        """The call of the last step, if it was for the same rows; what it points to stays where it is."""
        threads = self.threads or torch.get_num_threads()
        call = self._call
        if call is not None and call.fields.threads == threads and (rows is call.rows or rows == call.rows):
            return call
        slots = torch.tensor([self._slots[row] for row in rows])
        memory = scratch(self.program.packet, len(rows), threads, 0)
        kept = (memory, self._states, self._positions, self._addresses, self._capacity, slots)
        pointers = (x.data_ptr() for x in kept)
        fields = Decode(0, *pointers, 0, 0, self._states.shape[1], len(rows), threads, 0)
        self._call = _Call(rows, fields, slots, memory)
        return self._call

    def _checked(self, x: Tensor) -> Tensor:
        """The inputs as the decoder reads them, or a sentence before anything has moved."""
        if not self._tokens:
            return checked_numbers(x, self.model.config.input_dim).to("cpu", torch.float32).contiguous()
        if x.ndim != 1:
            raise ValueError(f"tokens have shape {list(x.shape)}; accepted: [B], one for each row")
        if len(x) <= FEW and x.dtype == torch.int64:
            few = x.tolist()
            if min(few) >= 0 and max(few) < self._tokens and x.is_cpu and x.is_contiguous():
                return x
        check_tokens(x, self._tokens)
        return x.to("cpu", torch.int64).contiguous()

    def _check_length(self, slots: Tensor) -> None:
        last, most = int(self._positions[slots].max()), self.model.config.max_length
        if last >= most:
            raise ValueError(
                f"position {last} is beyond the {most} learned positions; use a model with max_length > {last}, "
                "or positions 'sinusoidal', 'rotary' or 'none', which have no end"
            )

    # ---- caches of softmax layers

    def _room(self, slot: int) -> int:
        per_token = self.program.cache_floats
        return self._caches[slot].numel() // per_token if per_token else 0

    def _set_cache(self, slot: int, cache: Tensor) -> None:
        self._caches[slot] = cache
        self._addresses[slot] = cache.data_ptr()
        self._capacity[slot] = self._room(slot)

    def _make_room(self, call: _Call) -> None:
        """Caches with a place for one more token each, and scratch for the longest."""
        positions = self._positions[call.slots]
        for slot in call.slots[positions >= self._capacity[call.slots]].tolist():
            self._enlarge(slot, max(FIRST_TOKENS, 2 * self._room(slot)))
        need, fields = int(positions.max()) + 1, call.fields
        if need > fields.longest:
            fields.longest = 2 * need
            call.memory = scratch(self.program.packet, fields.B, fields.threads, fields.longest)
            fields.scratch = call.memory.data_ptr()

    @torch.inference_mode(False)
    def _enlarge(self, slot: int, tokens: int) -> None:
        new, old = torch.zeros(tokens * self.program.cache_floats), self._room(slot)
        for layer in self._softmax_layers():
            for to, source in zip(
                self._cached(new, layer, tokens), self._cached(self._caches[slot], layer, old), strict=True
            ):
                to[:, : source.shape[1]] = source
        self._set_cache(slot, new)

    def _softmax_layers(self) -> list[int]:
        return [i for i, b in enumerate(self.model.backbone.layers) if isinstance(b.mixer, SoftmaxAttention)]

    def _cached(self, cache: Tensor, layer: int, tokens: int) -> tuple[Tensor, Tensor]:
        """Views of a layer's keys [kv, T/16, D, 16] and values [kv, T, V] in a cache."""
        mixer = self.model.backbone.layers[layer].mixer
        assert isinstance(mixer, Attention)
        size = tokens * mixer.n_kv_heads * (mixer.key_dim + mixer.head_dim)
        start = self._softmax_layers().index(layer) * size
        return _keys_values(cache[start : start + size], mixer, tokens)

    # ---- states as values

    def _state(self, rows: list[int]) -> ModelState:
        one = [self._export(self._slots[row]) for row in rows]
        return one[0] if len(one) == 1 else ModelState.join(one)

    def _export(self, slot: int) -> ModelState:
        seen = int(self._positions[slot])
        layers = tuple(self._export_layer(slot, i, seen) for i in range(len(self.model.backbone.layers)))
        return ModelState(layers, torch.tensor([seen]))

    def _export_layer(self, slot: int, layer: int, seen: int) -> AnyState:
        mixer: Any = self.model.backbone.layers[layer].mixer
        room = self._states[slot, self.program.offsets[layer] :]
        if isinstance(mixer, LinearAttention):
            shape = (1, mixer.n_kv_heads, mixer.feature_map.feature_dim)
            n, size = shape[1] * shape[2], shape[1] * shape[2] * mixer.head_dim
            sums = room[: size + n] + room[size + n : 2 * (size + n)]
            return State(sums[:size].view(*shape, -1), sums[size:].view(shape))
        if isinstance(mixer, SoftmaxAttention):
            keys, values = self._cached(self._caches[slot], layer, self._room(slot))
            return KVState(*_in_order(keys, values, torch.arange(seen)))
        if isinstance(mixer, WindowAttention):
            size, past = rounded(mixer.window), mixer.window - 1
            keys, values = _keys_values(room, mixer, size)
            when = torch.arange(seen - past, seen)
            k, v = _in_order(keys, values, when % mixer.window)
            real = (when >= 0)[None]
            return WindowState(k * real[..., None, None], v * real[..., None, None], real)
        past, width = mixer.kernel_size - 1, mixer.width
        when = torch.arange(seen - past, seen) % max(past, 1)
        return ConvState(room[: past * width].view(past, width)[when][None])

    def _restore(self, rows: list[int], state: ModelState) -> None:
        for i, row in enumerate(rows):
            one = state.select([i]).to("cpu")
            seen, slot = int(one.position[0]), self._slots[row]
            for layer, part in enumerate(one.layers):
                self._import_layer(slot, layer, part, seen)
            self._positions[slot] = seen

    def _check_state(self, state: ModelState) -> None:
        """Also: caches hold as many tokens as the position says, or places would be mixed up."""
        super()._check_state(state)
        for i, part in enumerate(state.layers):
            if isinstance(part, (KVState, WindowState)):
                for seen, count in zip(state.position.tolist(), real_tokens(part).sum(1).tolist(), strict=True):
                    most = seen if isinstance(part, KVState) else min(seen, part.k.shape[1])
                    if count != most:
                        raise StateError(f"layer {i} remembers {count} tokens of a stream of {seen}; accepted: {most}")

    def _import_layer(self, slot: int, layer: int, part: AnyState, seen: int) -> None:
        mixer: Any = self.model.backbone.layers[layer].mixer
        room = self._states[slot, self.program.offsets[layer] :]
        if isinstance(part, State):
            sums = torch.cat([part.s.reshape(-1), part.z.reshape(-1)])
            room[: len(sums)] = sums
            room[len(sums) : 2 * len(sums)] = sums - room[: len(sums)]  # what a float64 state has beyond float32
        elif isinstance(part, KVState):
            if self._room(slot) < seen:
                self._set_cache(slot, torch.zeros(0))
                self._enlarge(slot, rounded(max(FIRST_TOKENS, seen + seen // 4)))
            keys, values = self._cached(self._caches[slot], layer, self._room(slot))
            _put(keys, values, part, torch.arange(seen))
        elif isinstance(part, WindowState):
            size, past = rounded(mixer.window), part.k.shape[1]
            room[: mixer.n_kv_heads * size * (mixer.key_dim + mixer.head_dim)] = 0.0
            keys, values = _keys_values(room, mixer, size)
            _put(keys, values, part, torch.arange(max(0, seen - past), seen) % mixer.window)
        else:
            past, width = part.x.shape[1:]
            when = torch.arange(seen - past, seen) % max(past, 1)
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


def _width(model: StreamModel) -> int:
    head: Any = getattr(model, "head", None)
    return int(head.weight.shape[0]) if head is not None else int(model.config.vocab_size)
