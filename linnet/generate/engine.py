"""Engine: a running batch. Each row is a stream with its own state; rows are added, stepped, forked and removed.

    engine = open_engine(model)                       the native decoder, or torch where it cannot run
    (row,) = engine.add()                             a new stream; engine.add(state) continues from a state
    output = engine.read(prompt, row)                 many inputs by the chunked form -> the output after the last, [P]
    outputs = engine.step(tokens, rows)               one input for each of these rows -> [B,P]

A call is checked before anything changes, so a bad row or token does not affect other rows. `TorchEngine` calls
`model.step`: it is the reference for the native engine, and the fallback. B rows of a call, P width of an output.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from operator import index
from threading import Lock, RLock
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
from torch import Tensor

from ..errors import BackendError, StateError, unknown, whole
from ..models import ModelState, StreamModel
from ..models.state_checks import check_parts
from ..ops.softmax.full import without_padding

BACKENDS = ("auto", "native", "torch")
READ = 4096  # tokens of a prompt read in one call: bounds the memory for a long one

P = ParamSpec("P")
R = TypeVar("R")


def _locked(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Run a method of Engine while holding the engine's lock."""

    @wraps(method)
    def guarded(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._lock:
            return method(self, *args, **kwargs)

    return guarded


class Engine(ABC):
    """Base class of engines; a subclass defines where states are stored and how they step.

    Threads: all methods may be called from any thread. Each call holds the engine's one lock from its first check to
    its return, so calls run one after another, and a row gets the same outputs as alone whatever other threads do to
    their own rows in between. Two threads that use the same row must agree on the order of their calls. Engines are
    independent of each other, even on one model, and their native steps run in parallel (the library releases the
    GIL). Do not train or modify a model while an engine uses it.
    """

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
        self._lock = RLock()
        self._next = 0
        self._stepped: list[int] | None = None  # the rows of the last call, already checked

    @property
    @abstractmethod
    def rows(self) -> list[int]:
        """The rows of the batch, oldest first. A number is never reused."""

    @abstractmethod
    def _add(self, rows: list[int], state: ModelState | None) -> None: ...

    @abstractmethod
    def _remove(self, rows: list[int]) -> None: ...

    @abstractmethod
    def _step(self, x: Tensor, rows: list[int]) -> Tensor: ...

    @abstractmethod
    def _state(self, rows: list[int]) -> ModelState: ...

    @abstractmethod
    def _restore(self, rows: list[int], state: ModelState) -> None: ...

    @_locked
    def add(self, state: ModelState | None = None, *, rows: int = 1) -> list[int]:
        """Add `rows` rows at the start of a sequence, or one for each row of `state`; return their numbers."""
        if state is not None:
            self.check_state(state)
            rows = len(state.position)
        else:
            whole("rows", rows, 1)
        new = list(range(self._next, self._next + rows))
        self._add(new, state)
        self._next += rows
        return new

    @_locked
    def remove(self, rows: Sequence[int]) -> None:
        """Remove rows; their memory is reused."""
        known = self._known(rows)
        self._stepped = None
        self._remove(known)

    @_locked
    def fork(self, row: int, copies: int = 1) -> list[int]:
        """Add `copies` rows with the state of `row`; return their numbers."""
        return self.add(self.state([row]).select([0] * whole("copies", copies, 1)))

    @_locked
    def step(self, x: Tensor, rows: Sequence[int]) -> Tensor:
        """Return the outputs of `model.step` for the next input of each of these rows, tokens [B] or numbers [B,C]."""
        known = self._known(rows)
        if not known:
            raise StateError(f"rows is empty; accepted: one or more of {_listed(self.rows)}")
        if x.ndim not in (1, 2) or len(x) != len(known):
            raise ValueError(
                f"inputs have shape {list(x.shape)} for {len(known)} rows; accepted: one input for each row"
            )
        return self._step(x, known)

    @_locked
    @torch.inference_mode()
    def read(self, x: Tensor, row: int) -> Tensor:
        """Read many inputs of one row, tokens [T] or numbers [T,C]; return the output after the last."""
        (known,) = self._known([row])
        if x.ndim not in (1, 2) or len(x) == 0:
            raise ValueError(
                f"the inputs to read have shape {list(x.shape)}; accepted: 1 or more tokens [T], or numbers [T,C]"
            )
        with evaluation_mode(self.model):
            output, state = self.model.read(x[None], self._state([known]))
        self._restore([known], state)
        return output[0]

    @_locked
    @torch.inference_mode()
    def read_all(self, x: Tensor, row: int) -> Tensor:
        """Read many inputs of one row as `read` does; return the output after each, [T,P]."""
        (known,) = self._known([row])
        model = self.model
        with evaluation_mode(model):
            h, state = model.backbone(model.embed_inputs(x[None]), self._state([known]))
            output = model.apply_head(h, x[None])
        self._restore([known], state)
        return output[0]

    @_locked
    def state(self, rows: Sequence[int]) -> ModelState:
        """Return the states of these rows as a value, which later calls do not change."""
        return self._state(self._known(rows))

    @_locked
    def restore(self, rows: Sequence[int], state: ModelState) -> None:
        """Set the states of these rows; `state` has one row for each, of these or other rows."""
        known = self._known(rows)
        self.check_state(state)
        if len(state.position) != len(known):
            raise StateError(
                f"the state has {len(state.position)} rows for {len(known)} rows of the batch; accepted: one for each"
            )
        self._restore(known, state)

    def _known(self, rows: Sequence[int]) -> list[int]:
        if type(rows) is list and rows == self._stepped:  # as in the last call, and no row was added or removed
            return self._stepped
        try:
            known, live = [index(row) for row in rows], set(self.rows)
        except TypeError:
            raise StateError(f"rows is {rows!r}; accepted: a list of numbers that `add` returned") from None
        for i, row in enumerate(known):
            if row not in live:
                raise StateError(
                    f"row {row} is not in the batch; accepted: {_listed(self.rows)}; use what `add` returned"
                )
            if row in known[:i]:
                raise StateError(f"row {row} is given twice; accepted: each row once per call")
        self._stepped = known
        return known

    def check_state(self, state: ModelState) -> None:
        """Raise StateError unless `add` and `restore` accept this state; only the model is read, without the lock."""
        if not isinstance(state, ModelState):
            raise StateError(f"the state is a {type(state).__name__}; accepted: a ModelState, as engine.state returns")
        check_parts("the state", state.layers, state.position, self.model)


class TorchEngine(Engine):
    """Calls `model.step` on joined states; rows that are stepped together repeatedly stay joined."""

    def __init__(self, model: StreamModel) -> None:
        super().__init__(model)
        self._single: dict[int, ModelState | None] = {}  # row -> its state, or None while it is in the group
        self._group: tuple[int, ...] = ()  # the rows of the last step
        self._joined: ModelState | None = None  # and their state

    @property
    def rows(self) -> list[int]:
        return list(self._single)

    def _add(self, rows: list[int], state: ModelState | None) -> None:
        dtype = next(self.model.parameters()).dtype
        state = self.model.backbone.empty_state(len(rows), dtype=dtype) if state is None else state
        for i, row in enumerate(rows):
            self._single[row] = state.select([i])

    def _remove(self, rows: list[int]) -> None:
        self._split()
        for row in rows:
            del self._single[row]

    @torch.inference_mode()
    def _step(self, x: Tensor, rows: list[int]) -> Tensor:
        joined = self._join(rows)
        with evaluation_mode(self.model):
            output, new = self.model.step(x, joined)
        self._group, self._joined = tuple(rows), new
        self._single.update(dict.fromkeys(rows))
        return output

    def _state(self, rows: list[int]) -> ModelState:
        return self._join(rows).clone()

    def _restore(self, rows: list[int], state: ModelState) -> None:
        self._split()
        for i, row in enumerate(rows):
            self._single[row] = state.select([i])

    def _join(self, rows: list[int]) -> ModelState:
        if tuple(rows) == self._group and self._joined is not None:
            return self._joined
        self._split()
        singles = [self._single[row] for row in rows]
        return ModelState.join([state for state in singles if state is not None])

    def _split(self) -> None:
        """Split the joined state into one per row."""
        if self._joined is not None:
            for i, row in enumerate(self._group):
                one = self._joined.select([i])
                self._single[row] = ModelState(tuple(without_padding(layer) for layer in one.layers), one.position)
        self._group, self._joined = (), None


_running: dict[StreamModel, tuple[int, bool]] = {}  # model -> calls that run it now, whether it was in training mode
_running_lock = Lock()


@contextmanager
def evaluation_mode(model: StreamModel) -> Iterator[None]:
    """Run without dropout; a model in training mode returns to it when the last of overlapping calls ends.

    Engines of one model may run in several threads, so the calls are counted: one that ends first must not turn
    dropout on for the others.
    """
    with _running_lock:
        calls, training = _running.get(model, (0, model.training))
        if training and not calls:
            model.eval()
        _running[model] = calls + 1, training
    try:
        yield
    finally:
        with _running_lock:
            calls, training = _running.pop(model)
            if calls > 1:
                _running[model] = calls - 1, training
            elif training:
                model.train()


def open_engine(
    model: StreamModel,
    *,
    weights: str = "float32",
    backend: str = "auto",
    threads: int | None = None,
    exact: bool = True,
) -> Engine:
    """Open an engine for a model; `backend` is "native", "torch", or "auto" for the first of them that can run it.

    `weights` "bfloat16" or "int8" are rounded: smaller, faster and native only. `threads`: torch's number if None.
    `exact` uses compensated summation for the sums of linear attention, which matters after some ten thousand tokens;
    without it native states are half as large and large batches faster.
    """
    from .decoder.engine import NativeEngine  # not at the top: it imports Engine from here

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
    """Return the given engine if it runs this model; without one, open a new one with `how`."""
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
