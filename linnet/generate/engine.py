"""Engine: a running batch. Each row is a stream with a state of its own; rows join, step, fork and leave at any time.

    engine = open_engine(model)                       the native decoder, or torch where it cannot run
    (row,) = engine.join()                            a new stream; engine.join(state) goes on from a state
    answer = engine.read(prompt, row)                 many inputs by the chunked form -> the answer after the last
    answers = engine.step(tokens, rows)               one input for each of these rows  -> [B,P]

A call is checked before anything changes, so a bad row or token disturbs no other. `TorchEngine` is `model.step`: the
reference for the native one, and the fallback. B rows of a call, P width of an answer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import index
from typing import Any

import torch
from torch import Tensor

from ..errors import BackendError, StateError, unknown
from ..models import ModelState, StreamModel
from ..models.state_checks import check_parts
from ..ops.softmax import without_padding

BACKENDS = ("auto", "native", "torch")


class Engine(ABC):
    """What every engine does; a subclass says where states are kept and how they step."""

    def __init__(self, model: StreamModel) -> None:
        if not isinstance(model, StreamModel):
            raise ValueError(
                f"a {type(model).__name__} cannot be stepped; accepted: a language, image, forecast or classify model"
            )
        if not model.config.causal:
            raise ValueError(
                "this model is bidirectional (causal is False) and needs whole sequences; train a causal one to step"
            )
        self.model = model
        self._next = 0
        self._stepped: list[int] | None = None  # the rows of the last call, known to be right

    @property
    @abstractmethod
    def rows(self) -> list[int]:
        """The rows of the batch, oldest first. A number is never used again."""

    @abstractmethod
    def _enter(self, rows: list[int], state: ModelState | None) -> None: ...

    @abstractmethod
    def _remove(self, rows: list[int]) -> None: ...

    @abstractmethod
    def _step(self, x: Tensor, rows: list[int]) -> Tensor: ...

    @abstractmethod
    def _state(self, rows: list[int]) -> ModelState: ...

    @abstractmethod
    def _restore(self, rows: list[int], state: ModelState) -> None: ...

    def join(self, state: ModelState | None = None, *, rows: int = 1) -> list[int]:
        """New rows: `rows` of them at the start of a sequence, or one for each row of `state`."""
        if state is not None:
            self._check_state(state)
            rows = len(state.position)
        elif isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
            raise ValueError(f"rows is {rows!r}; accepted: how many rows join, 1 or more")
        new = list(range(self._next, self._next + rows))
        self._enter(new, state)
        self._next += rows
        return new

    def leave(self, rows: Sequence[int]) -> None:
        """These rows end; their memory is used again."""
        known = self._known(rows)
        self._stepped = None
        self._remove(known)

    def fork(self, row: int, copies: int = 1) -> list[int]:
        """New rows that go on from where `row` is."""
        if isinstance(copies, bool) or not isinstance(copies, int) or copies < 1:
            raise ValueError(f"copies is {copies!r}; accepted: how many new rows, 1 or more")
        return self.join(self.state([row]).select([0] * copies))

    def step(self, x: Tensor, rows: Sequence[int]) -> Tensor:
        """The next input of each of these rows, [B] tokens or [B,C] numbers -> the answers of `model.step`."""
        known = self._known(rows)
        if not known:
            raise StateError(f"no row is named; the rows of the batch are {_listed(self.rows)}")
        if x.ndim not in (1, 2) or len(x) != len(known):
            raise ValueError(
                f"inputs have shape {list(x.shape)} for {len(known)} rows; accepted: one input for each row"
            )
        return self._step(x, known)

    @torch.inference_mode()
    def read(self, x: Tensor, row: int) -> Tensor:
        """Many inputs of one row at once, [T] tokens or [T,C] numbers -> the answer after the last."""
        (known,) = self._known([row])
        if x.ndim not in (1, 2) or len(x) == 0:
            raise ValueError(
                f"the inputs to read have shape {list(x.shape)}; accepted: 1 or more tokens [T], or numbers [T,C]"
            )
        with evaluating(self.model):
            answer, state = self.model.read(x[None], self._state([known]))
        self._restore([known], state)
        return answer[0]

    def state(self, rows: Sequence[int]) -> ModelState:
        """The states of these rows as a value: what happens to the rows later does not change it."""
        return self._state(self._known(rows))

    def restore(self, rows: Sequence[int], state: ModelState) -> None:
        """Put these rows back to a state they, or others, had: `state` has one row for each."""
        known = self._known(rows)
        self._check_state(state)
        if len(state.position) != len(known):
            raise StateError(
                f"the state has {len(state.position)} rows for {len(known)} rows of the batch; accepted: one for each"
            )
        self._restore(known, state)

    def _known(self, rows: Sequence[int]) -> list[int]:
        if type(rows) is list and rows == self._stepped:  # as in the last call, and nobody has come or gone
            return self._stepped
        try:
            known, live = [index(row) for row in rows], set(self.rows)
        except TypeError:
            raise StateError(f"rows is {rows!r}; accepted: a list of the numbers that `join` returned") from None
        for i, row in enumerate(known):
            if row not in live:
                raise StateError(
                    f"row {row} is not in the batch; its rows are {_listed(self.rows)}; use what `join` returned"
                )
            if row in known[:i]:
                raise StateError(f"row {row} is named twice; accepted: each row once in a call")
        self._stepped = known
        return known

    def _check_state(self, state: ModelState) -> None:
        if not isinstance(state, ModelState):
            raise StateError(f"the state is a {type(state).__name__}; accepted: a ModelState, as engine.state returns")
        check_parts("the state", state.layers, state.position, self.model)


class TorchEngine(Engine):
    """`model.step` on joined states; rows stepped together again and again stay joined."""

    def __init__(self, model: StreamModel) -> None:
        super().__init__(model)
        self._single: dict[int, ModelState | None] = {}  # row -> its state, or None while it is in the group
        self._group: tuple[int, ...] = ()  # the rows stepped together last
        self._joined: ModelState | None = None  # and their state

    @property
    def rows(self) -> list[int]:
        return list(self._single)

    def _enter(self, rows: list[int], state: ModelState | None) -> None:
        dtype = next(self.model.parameters()).dtype
        state = self.model.backbone.empty_state(len(rows), dtype=dtype) if state is None else state
        for i, row in enumerate(rows):
            self._single[row] = state.select([i])

    def _remove(self, rows: list[int]) -> None:
        self._part()
        for row in rows:
            del self._single[row]

    @torch.inference_mode()
    def _step(self, x: Tensor, rows: list[int]) -> Tensor:
        joined = self._join(rows)
        with evaluating(self.model):
            answer, new = self.model.step(x, joined)
        self._group, self._joined = tuple(rows), new
        self._single.update(dict.fromkeys(rows))
        return answer

    def _state(self, rows: list[int]) -> ModelState:
        return self._join(rows).clone()

    def _restore(self, rows: list[int], state: ModelState) -> None:
        self._part()
        for i, row in enumerate(rows):
            self._single[row] = state.select([i])

    def _join(self, rows: list[int]) -> ModelState:
        if tuple(rows) == self._group and self._joined is not None:
            return self._joined
        self._part()
        found = [self._single[row] for row in rows]
        return ModelState.join([state for state in found if state is not None])

    def _part(self) -> None:
        """Everyone back to a state of their own."""
        if self._joined is not None:
            for i, row in enumerate(self._group):
                one = self._joined.select([i])
                self._single[row] = ModelState(tuple(without_padding(layer) for layer in one.layers), one.position)
        self._group, self._joined = (), None


@contextmanager
def evaluating(model: StreamModel) -> Iterator[None]:
    """Without dropout; a model that was being trained goes back to it."""
    if not model.training:
        yield
        return
    model.eval()
    try:
        yield
    finally:
        model.train()


def open_engine(
    model: StreamModel,
    *,
    weights: str = "float32",
    backend: str = "auto",
    threads: int | None = None,
    exact: bool = True,
) -> Engine:
    """The engine for a model: `backend` "native", "torch", or "auto" for the first of them that can run it.

    `weights` "bfloat16" or "int8" are smaller and faster, rounded, and native only. `threads`: torch's number if None.
    `exact` gathers what rounding takes from the sums of linear attention, which matters after some ten thousand tokens;
    without it the native states are half as large, and large batches faster.
    """
    from .native_engine import NativeEngine  # not at the top: it is written in terms of Engine

    if backend not in BACKENDS:
        raise unknown("backend", backend, BACKENDS)
    if weights != "float32" and backend == "torch":
        raise BackendError(f"weights {weights!r} need the native decoder; use backend 'native', or weights 'float32'")
    if backend == "torch":
        return TorchEngine(model)
    try:
        return NativeEngine(model, weights, threads, exact=exact)
    except BackendError:
        if backend == "native" or weights != "float32":
            raise
        return TorchEngine(model)


def engine_for(model: StreamModel, engine: Engine | None, **how: Any) -> Engine:
    """The engine that was given, if it runs this model; without one, a new one opened with `how`."""
    if engine is None:
        return open_engine(model, **how)
    if engine.model is not model:
        raise ValueError("the engine runs another model; open one for this model with open_engine(model)")
    return engine


def _listed(rows: Sequence[int], most: int = 8) -> str:
    if not rows:
        return "none"
    shown = ", ".join(str(row) for row in rows[:most])
    return shown if len(rows) <= most else f"{shown} and {len(rows) - most} more"
