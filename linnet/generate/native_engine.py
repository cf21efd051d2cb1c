"""The engine whose every step is one call of native code, on the states of its rows in place (slots.py).

    answers [B,P] = linnet_decode_step(tokens [B], slots [B])          csrc/decode.h

A stream's numbers are the same bits alone and in any batch, on any number of threads. B rows of a call, P width of an
answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import StateError
from ..layers.positions import beyond_learned
from ..models import Forecaster, ModelState, StreamModel
from ..models.inputs import checked_numbers
from ..models.language import check_tokens
from ..native import gate
from ..native.decode import Decode, scratch, step
from ..native.decode_check import verify_step
from ..ops.checks import too_long
from .engine import Engine
from .program import Program
from .slots import Slots

FEW = 16  # rows whose tokens are looked at in Python: quicker than torch


@dataclass
class _Call:
    """A step made ready: its rows, and the memory its fields point to."""

    rows: list[int]
    fields: Decode
    slots: Tensor
    memory: Tensor


class NativeEngine(Engine):
    """`weights` "float32", "bfloat16" or "int8"; `threads`: torch's number unless given; `exact`: see open_engine."""

    def __init__(
        self, model: StreamModel, weights: str = "float32", threads: int | None = None, *, exact: bool = True
    ) -> None:
        super().__init__(model)
        if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
            raise ValueError(f"threads is {threads!r}; accepted: a whole number, 1 or more, or None for torch's own")
        self.program = Program(model, weights, exact=exact)
        self.threads = threads
        self.width = _width(model)
        inputs: Any = model if hasattr(model, "embed") else model.inputs
        self._tokens = 0 if inputs.embed is None else inputs.embed.num_embeddings
        self._learned = model.config.max_length if model.config.positions == "learned" else None
        self._versions = self._seen_weights()
        self._slots = Slots(self.program, model)
        self._rows: dict[int, int] = {}  # row -> slot
        self._call: _Call | None = None  # the last one

    @property
    def rows(self) -> list[int]:
        return list(self._rows)

    @property
    def nbytes(self) -> int:
        """Bytes kept for the states of all rows, spare room included."""
        return self._slots.nbytes

    def read(self, x: Tensor, row: int) -> Tensor:
        self._check_weights()
        return super().read(x, row)

    def _enter(self, rows: list[int], state: ModelState | None) -> None:
        self._check_weights()
        taken, moved = self._slots.take(len(rows))
        self._rows.update(zip(rows, taken, strict=True))
        if moved:
            self._call = None
        if state is None:
            return
        try:
            self._restore(rows, state)
        except BaseException:  # no memory, an interrupt: as if they had never come
            self._remove(rows)
            raise

    def _remove(self, rows: list[int]) -> None:
        for row in rows:
            self._slots.give_back(self._rows.pop(row))
        self._call = None

    def _state(self, rows: list[int]) -> ModelState:
        one = [self._slots.get(self._rows[row]) for row in rows]
        return one[0] if len(one) == 1 else ModelState.join(one)

    def _restore(self, rows: list[int], state: ModelState) -> None:
        for i, row in enumerate(rows):
            self._slots.put(self._rows[row], state.select([i]).to("cpu"))

    def _seen_weights(self) -> list[tuple[Tensor, int, int]]:
        """Every weight and buffer with how often it has changed in place and where it is: assigned ones differ too."""
        held = (*self.model.parameters(), *self.model.buffers())
        places = gate.addresses(held) if all(x.is_cpu for x in held) else [0] * len(held)
        return [(x, 0 if x.is_inference() else x._version, at) for x, at in zip(held, places, strict=True)]

    def _check_weights(self) -> None:
        """Prompts are read by the model, steps by its packed weights: they must be the same ones."""
        now, then = self._seen_weights(), self._versions
        if len(now) != len(then) or any(a[0] is not b[0] or a[1:] != b[1:] for a, b in zip(now, then, strict=True)):
            raise StateError("the model's weights have changed since this engine was opened; open a new one for them")

    def _step(self, x: Tensor, rows: list[int]) -> Tensor:
        call = self._ready(rows)
        x = self._checked(x)
        if self.program.caches:
            self._make_room(call)
        out = self._slots.states.new_empty((len(rows), self.width))
        fields, (to, given) = call.fields, gate.addresses((out, x))
        fields.out = to
        if self._tokens:
            fields.tokens = given
        else:
            fields.values = given
        if gate.CHECK:
            self._verify(call, out, x)
        try:
            step(fields, self.program.packet)
        except IndexError:
            raise self._at_the_end(call.slots) from None
        return self.model.forecast(out, x) if isinstance(self.model, Forecaster) else out

    def _verify(self, call: _Call, out: Tensor, x: Tensor) -> None:
        """For LINNET_CHECK: the call points to as much memory as the step will touch."""
        kept, program = self._slots, self.program
        tensors = {"out": out, "tokens" if self._tokens else "values": x, "scratch": call.memory, "slots": call.slots}
        tensors |= {"states": kept.states, "positions": kept.positions}
        tensors |= {"cache": kept.addresses, "capacity": kept.capacity}
        verify_step(call.fields, program.packet, tensors, kept.caches, program.cache_floats)

    def _ready(self, rows: list[int]) -> _Call:
        """The call of the last step, if it was for the same rows; what it points to stays where it is."""
        threads = self.threads or torch.get_num_threads()
        call = self._call
        if call is not None and call.fields.threads == threads and (rows is call.rows or rows == call.rows):
            return call
        slots = torch.tensor([self._rows[row] for row in rows], device=gate.CPU)
        memory = scratch(self.program.packet, len(rows), threads, 0)
        memories = self._slots
        kept = (memory, memories.states, memories.positions, memories.addresses, memories.capacity, slots)
        sizes = (memories.states.shape[1], len(rows), threads, 0, len(memories.states))
        fields = Decode(0, *gate.addresses(kept), 0, 0, *sizes)
        self._call = _Call(rows, fields, slots, memory)
        return self._call

    def _checked(self, x: Tensor) -> Tensor:
        """The inputs as the decoder reads them, or a sentence before anything has moved."""
        if not self._tokens:
            return gate.dense(checked_numbers(x, self.model.config.input_dim).to("cpu"))
        if x.ndim != 1:
            raise ValueError(f"tokens have shape {list(x.shape)}; accepted: [B], one for each row")
        if len(x) <= FEW and x.dtype == torch.int64:
            few = x.tolist()
            if min(few) >= 0 and max(few) < self._tokens and x.is_cpu and x.is_contiguous() and not x.is_neg():
                return x
        check_tokens(x, self._tokens)
        return gate.dense(x.to("cpu"), torch.int64)

    def _at_the_end(self, slots: Tensor) -> ValueError:
        last = int(self._slots.positions[slots].max())
        return too_long(last) if self._learned is None else beyond_learned(last, self._learned)

    def _make_room(self, call: _Call) -> None:
        """Caches with a place for one more token each, and scratch for the longest."""
        need, fields = self._slots.make_room(call.slots), call.fields
        if need > fields.longest:
            fields.longest = 2 * need
            call.memory = scratch(self.program.packet, fields.B, fields.threads, fields.longest)
            fields.scratch = gate.address(call.memory)


def _width(model: StreamModel) -> int:
    head: Any = getattr(model, "head", None)
    return int(head.weight.shape[0]) if head is not None else int(model.config.vocab_size)
