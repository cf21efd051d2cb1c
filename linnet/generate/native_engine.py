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
from ..native.decode import Decode, scratch, step
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

    def _seen_weights(self) -> list[int]:
        return [p._version for p in self.model.parameters()]

    def _check_weights(self) -> None:
        """Prompts are read by the model, steps by its packed weights: they must be the same ones."""
        if self._seen_weights() != self._versions:
            raise StateError("the model's weights have changed since this engine was opened; open a new one for them")

    def _step(self, x: Tensor, rows: list[int]) -> Tensor:
        call = self._ready(rows)
        x = self._checked(x)
        if self.program.caches:
            self._make_room(call)
        out = torch.empty(len(rows), self.width)
        call.fields.out = out.data_ptr()
        if self._tokens:
            call.fields.tokens = x.data_ptr()
        else:
            call.fields.values = x.data_ptr()
        try:
            step(call.fields, self.program.packet)
        except IndexError:
            raise self._at_the_end(call.slots) from None
        return self.model.forecast(out, x) if isinstance(self.model, Forecaster) else out

    def _ready(self, rows: list[int]) -> _Call:
        """The call of the last step, if it was for the same rows; what it points to stays where it is."""
        threads = self.threads or torch.get_num_threads()
        call = self._call
        if call is not None and call.fields.threads == threads and (rows is call.rows or rows == call.rows):
            return call
        slots = torch.tensor([self._rows[row] for row in rows])
        memory = scratch(self.program.packet, len(rows), threads, 0)
        memories = self._slots
        kept = (memory, memories.states, memories.positions, memories.addresses, memories.capacity, slots)
        pointers = (x.data_ptr() for x in kept)
        fields = Decode(0, *pointers, 0, 0, memories.states.shape[1], len(rows), threads, 0, len(memories.states))
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

    def _at_the_end(self, slots: Tensor) -> ValueError:
        last = int(self._slots.positions[slots].max())
        return too_long(last) if self._learned is None else beyond_learned(last, self._learned)

    def _make_room(self, call: _Call) -> None:
        """Caches with a place for one more token each, and scratch for the longest."""
        need, fields = self._slots.make_room(call.slots), call.fields
        if need > fields.longest:
            fields.longest = 2 * need
            call.memory = scratch(self.program.packet, fields.B, fields.threads, fields.longest)
            fields.scratch = call.memory.data_ptr()


def _width(model: StreamModel) -> int:
    head: Any = getattr(model, "head", None)
    return int(head.weight.shape[0]) if head is not None else int(model.config.vocab_size)
