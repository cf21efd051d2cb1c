"""NativeEngine: each step is one call of native code that updates the states of its rows in place (slots.py).

    outputs [B,P] = linnet_decode_step(tokens [B], slots [B])          csrc/decode.h

A row has the same bits alone and in any batch, on any number of threads. B rows of a call, P width of an output.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...errors import StateError, whole
from ...layers.positions import beyond_learned
from ...models import Forecaster, ModelState, StreamModel
from ...models.inputs import checked_numbers
from ...models.language import check_tokens
from ...native import gate
from ...native.decode import step
from ...native.decode_check import verify_step
from ...ops.checks import too_long
from ..engine import Engine
from .calls import Call, PreparedCalls
from .packed_model import PackedModel
from .slots import Slots

FEW = 16  # up to so many rows, checking tokens in Python is faster than torch


class NativeEngine(Engine):
    """`weights` "float32", "bfloat16" or "int8"; `threads`: by default torch's number; `exact`: see open_engine."""

    def __init__(
        self, model: StreamModel, weights: str = "float32", threads: int | None = None, *, exact: bool = True
    ) -> None:
        super().__init__(model)
        if threads is not None:
            whole("threads", threads, 1, hint="None uses as many as torch")
        self.packed = PackedModel(model, weights, exact=exact)
        self.threads = threads
        self.width = _width(model)
        inputs: Any = model if hasattr(model, "embed") else model.inputs
        self._tokens = 0 if inputs.embed is None else inputs.embed.num_embeddings
        self._learned = model.config.max_length if model.config.positions == "learned" else None
        self._versions = self._weight_versions()
        self._slots = Slots(self.packed)
        self._rows: dict[int, int] = {}  # row -> slot
        self._calls = PreparedCalls(self.packed, self._slots, self._rows)

    @property
    def rows(self) -> list[int]:
        return list(self._rows)

    @property
    def nbytes(self) -> int:
        """Bytes allocated for the states of all rows, including spare room."""
        return self._slots.nbytes

    def read(self, x: Tensor, row: int) -> Tensor:
        self._check_weights()
        return super().read(x, row)

    def _add(self, rows: list[int], state: ModelState | None) -> None:
        self._check_weights()
        taken, moved = self._slots.take(len(rows))
        self._rows.update(zip(rows, taken, strict=True))
        if moved:
            self._calls.clear()
        if state is None:
            return
        try:
            self._restore(rows, state)
        except BaseException:  # out of memory or an interrupt: undo
            self._remove(rows)
            raise

    def _remove(self, rows: list[int]) -> None:
        self._calls.forget(rows)
        for row in rows:
            self._slots.give_back(self._rows.pop(row))

    def _state(self, rows: list[int]) -> ModelState:
        one = [self._slots.get(self._rows[row]) for row in rows]
        return one[0] if len(one) == 1 else ModelState.join(one)

    def _restore(self, rows: list[int], state: ModelState) -> None:
        for i, row in enumerate(rows):
            self._slots.put(self._rows[row], state.select([i]).to("cpu"))

    def _weight_versions(self) -> list[tuple[Tensor, int, int]]:
        """Return every weight and buffer with its version and address, which changes when a new tensor is assigned."""
        held = (*self.model.parameters(), *self.model.buffers())
        places = gate.addresses(held) if all(x.is_cpu for x in held) else [0] * len(held)
        return [(x, 0 if x.is_inference() else x._version, at) for x, at in zip(held, places, strict=True)]

    def _check_weights(self) -> None:
        """Raise StateError if weights changed: the model reads prompts, but steps use the packed copy."""
        now, then = self._weight_versions(), self._versions
        if len(now) != len(then) or any(a[0] is not b[0] or a[1:] != b[1:] for a, b in zip(now, then, strict=True)):
            raise StateError("the model's weights have changed since this engine was opened; open a new one for them")

    def _step(self, x: Tensor, rows: list[int]) -> Tensor:
        call = self._calls.get(rows, self.threads or torch.get_num_threads())
        x = self._checked(x)
        if self.packed.cache_floats:
            self._calls.make_room(call)
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
            step(fields, self.packed.struct)
        except IndexError:
            raise self._position_error(call.slots) from None
        return self.model.forecast(out, x) if isinstance(self.model, Forecaster) else out

    def _verify(self, call: Call, out: Tensor, x: Tensor) -> None:
        """With LINNET_CHECK: raise unless the call points to as much memory as the step accesses."""
        kept, packed = self._slots, self.packed
        tensors = {"out": out, "tokens" if self._tokens else "values": x, "scratch": call.memory, "slots": call.slots}
        tensors |= {"states": kept.states, "positions": kept.positions}
        tensors |= {"cache": kept.addresses, "capacity": kept.capacity}
        verify_step(call.fields, packed.struct, tensors, kept.caches, packed.state_floats, packed.cache_floats)

    def _checked(self, x: Tensor) -> Tensor:
        """Return the inputs as the decoder reads them, or raise before any state has changed."""
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

    def _position_error(self, slots: Tensor) -> ValueError:
        last = int(self._slots.positions[slots].max())
        return too_long(last) if self._learned is None else beyond_learned(last, self._learned)


def _width(model: StreamModel) -> int:
    head: Any = getattr(model, "head", None)
    return int(head.weight.shape[0]) if head is not None else int(model.config.vocab_size)
