"""The state of a sequence op, as a value: returned, never modified in place, forked by keeping it.

    State        linear attention      s [B,H,F,V], z [B,H,F]                       float32 or float64
    KVState      softmax attention     k [B,T,H,D], v [B,T,H,V], mask [B,T] | None  grows with T
    WindowState  sliding window        k [B,W,H,D], v [B,W,H,V], mask [B,W]         W = window - 1, newest last
    ConvState    short convolution     x [B,W,E]                                    W = kernel_size - 1, newest last
    MatrixState  gates, delta, Mamba   s [B,H,F,V], x [B,W,E]                       float32 or float64; W may be 0

A state class describes itself (name in files, axes, dtypes, what grows); a new one needs no other table.
B batch, T time, H heads, F features, D key width, V value width, E channels. mask: bool, True = real token.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar

import torch
from torch import Tensor

from ..errors import StateError
from .checks import NARROW, WIDE, check_form

Rows: TypeAlias = "Tensor | Sequence[int] | slice"
PathLike: TypeAlias = "str | os.PathLike[str]"
S = TypeVar("S", bound="BaseState")
KINDS: dict[str, type[BaseState]] = {}  # every state class by its name in files; a subclass of BaseState adds itself
PAST = "W"  # the axis of the tokens before the newest: one shorter than the window or the filter it belongs to
WORDS = {  # the axes after the batch, as the options of a layer call them
    "H": "number of heads",
    "F": "number of features",
    "D": "key_dim",
    "V": "head_dim",
    "E": "width",
    PAST: "window",
}


class BaseState:
    """The methods of every state, and how a state class describes itself; a subclass is also a NamedTuple."""

    __slots__ = ()

    kind: ClassVar[str]  # its name in a state file
    axes: ClassVar[dict[str, str]]  # field -> its axes; equal letters are equal sizes, B comes first
    dtypes: ClassVar[tuple[torch.dtype, ...]] = WIDE  # one of these, the same for all fields but the flags
    flags: ClassVar[tuple[str, ...]] = ()  # fields that are bool
    optional: ClassVar[tuple[str, ...]] = ()  # fields that may be None
    grows: ClassVar[str] = ""  # the axis that grows with every token
    words: ClassVar[dict[str, str]] = WORDS  # what to call an axis in messages

    def __init_subclass__(cls) -> None:
        if "kind" in cls.__dict__:
            KINDS[cls.kind] = cls

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The fields that are not None, by name."""
        fields: dict[str, Tensor | None] = self._asdict()  # type: ignore[attr-defined]
        return {name: x for name, x in fields.items() if x is not None}

    @property
    def rows(self) -> int:
        """Size of the batch."""
        return next(iter(self.tensors.values())).shape[0]

    @property
    def nbytes(self) -> int:
        """Bytes held by the tensors."""
        return sum(x.numel() * x.element_size() for x in self.tensors.values())

    def select(self: S, rows: Rows) -> S:
        """Return the given batch rows, in that order, repeats allowed, as a new state."""
        index = torch.tensor(row_numbers(rows, self.rows), dtype=torch.int64)
        return _map(self, lambda x: x[index.to(x.device)])

    def to(self: S, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> S:
        """Move to another device or convert to another floating dtype (a mask stays bool)."""
        moved = _map(self, lambda x: x.to(device=device, dtype=dtype if x.is_floating_point() else None))
        check_form(moved, type(self))
        return moved

    def detach(self: S) -> S:
        """Detach from the graph: for training over a long stream, one piece at a time."""
        return _map(self, Tensor.detach)

    def clone(self: S) -> S:
        """Copy every tensor."""
        return _map(self, Tensor.clone)

    @classmethod
    def join(cls: type[S], states: Sequence[S]) -> S:
        """Return one state with the rows of all, in order."""
        parts = zip(*(state.tensors.values() for state in states), strict=True)
        return _make(cls, [torch.cat(part) for part in parts])

    def save(self, path: PathLike, *, tokens: int = 0, model: str = "", tokenizer: str = "") -> None:
        """Write a state file with this one layer; see `save_states`."""
        from .state_file import save_states  # not at the top: the file format is written in terms of the states

        save_states(path, [self], tokens=tokens, model=model, tokenizer=tokenizer)

    @classmethod
    def load(cls: type[S], path: PathLike, **wanted: Any) -> S:
        """Read the only layer of a state file; keywords as in `load_states`."""
        from .state_file import load_state

        return load_state(cls, path, **wanted)


class State(BaseState, NamedTuple("State", [("s", Tensor), ("z", Tensor)])):
    """Linear attention after t tokens: s = sum phi(k) v^T, z = sum phi(k); the same size for every t."""

    __slots__ = ()
    kind = "linear"
    axes: ClassVar = {"s": "B,H,F,V", "z": "B,H,F"}


class KVState(BaseState, NamedTuple("KVState", [("k", Tensor), ("v", Tensor), ("mask", "Tensor | None")])):
    """Keys and values of every token so far; `mask` is None while every token is real."""

    __slots__ = ()
    kind = "softmax"
    axes: ClassVar = {"k": "B,T,H,D", "v": "B,T,H,V", "mask": "B,T"}
    dtypes = NARROW + WIDE
    flags = optional = ("mask",)
    grows = "T"

    def __new__(cls, k: Tensor, v: Tensor, mask: Tensor | None = None) -> KVState:
        return super().__new__(cls, k, v, mask)

    @classmethod
    def join(cls, states: Sequence[KVState]) -> KVState:
        """Return one cache with the rows of all; shorter ones are padded on the right, with a mask."""
        length = max(state.k.shape[1] for state in states)
        k = torch.cat([_lengthen(state.k, length) for state in states])
        v = torch.cat([_lengthen(state.v, length) for state in states])
        mask = torch.cat([_lengthen(real_tokens(state), length) for state in states])
        return cls(k, v, None if bool(mask.all()) else mask)


class WindowState(BaseState, NamedTuple("WindowState", [("k", Tensor), ("v", Tensor), ("mask", Tensor)])):
    """The last W = window - 1 real tokens, newest last; `mask` is False where there were fewer so far."""

    __slots__ = ()
    kind = "window"
    axes: ClassVar = {"k": "B,W,H,D", "v": "B,W,H,V", "mask": "B,W"}
    dtypes = NARROW + WIDE
    flags = ("mask",)


class ConvState(BaseState, NamedTuple("ConvState", [("x", Tensor)])):
    """The last W = kernel_size - 1 real inputs of a short convolution, newest last; zeros where there were fewer."""

    __slots__ = ()
    kind = "conv"
    axes: ClassVar = {"x": "B,W,E"}
    dtypes = NARROW + WIDE
    words: ClassVar = {**WORDS, PAST: "kernel_size"}


class MatrixState(BaseState, NamedTuple("MatrixState", [("s", Tensor), ("x", Tensor)])):
    """A matrix per head that an op updates at every token, and the last W inputs that a layer keeps.

    Decayed, gated, delta, Mamba and RWKV ops: the file of each says what F and V mean there. `x` is None, stored as
    [B,0,0], at the level of the ops and for a layer without a short convolution or token shift.
    """

    __slots__ = ()
    kind = "matrix"
    axes: ClassVar = {"s": "B,H,F,V", "x": "B,W,E"}
    words: ClassVar = {**WORDS, PAST: "kernel_size"}

    def __new__(cls, s: Tensor, x: Tensor | None = None) -> MatrixState:
        if x is None:
            x = s.new_empty(s.shape[0], 0, 0)
        return super().__new__(cls, s, x)


AnyState: TypeAlias = BaseState


def check_state(
    state: State, *, batch: int, heads: int, feature_dim: int, value_dim: int, device: torch.device | str | None = None
) -> None:
    """StateError unless `state` is a State of exactly this shape, in float32 or float64, on `device`."""
    check_form(state, State)
    wanted = [batch, heads, feature_dim, value_dim]
    if list(state.s.shape) != wanted:
        raise StateError(f"initial_state.s has shape {list(state.s.shape)}; accepted here: [B,H,F,V] = {wanted}")
    if device is not None and state.s.device != torch.device(device):
        raise StateError(f"initial_state is on {state.s.device}, the inputs on {device}; use state.to({str(device)!r})")


def check_cache(state: KVState | WindowState, kind: type[AnyState], k: Tensor, v: Tensor) -> None:
    """StateError unless `state` is of this kind and continues k [B,T,H,D], v [B,T,H,V]: rows, heads, widths, dtype."""
    check_form(state, kind)
    for name, past, new in (("k", state.k, k), ("v", state.v, v)):
        if past.shape[0] != new.shape[0] or past.shape[2:] != new.shape[2:]:
            got, wanted = list(past.shape), [new.shape[0], "time", *new.shape[2:]]
            raise StateError(f"initial_state.{name} has shape {got}; accepted here: {wanted}")
        if past.dtype != new.dtype or past.device != new.device:
            raise StateError(
                f"initial_state.{name} is {past.dtype} on {past.device} but {name} is {new.dtype} on {new.device}; "
                f"use state.to({str(new.device)!r}, {new.dtype})"
            )


def join_states(states: Sequence[S]) -> S:
    """Return one state with the rows of all, in order; caches of different lengths are padded, with a mask."""
    kinds = {type(state) for state in states}
    if len(kinds) != 1:
        raise StateError(f"cannot join {sorted(k.__name__ for k in kinds)}; accepted: one or more states of one kind")
    return kinds.pop().join(states)


def row_numbers(rows: Rows, batch: int) -> list[int]:
    """Return the rows as integers, or raise StateError unless all of them exist."""
    if isinstance(rows, slice):
        return list(range(batch))[rows]
    numbers = torch.as_tensor(rows)
    if numbers.ndim != 1 or (numbers.numel() and numbers.dtype not in (torch.int32, torch.int64)):
        raise StateError(f"rows is {rows!r}; accepted: a list or 1-d integer tensor of batch rows, or a slice")
    chosen: list[int] = numbers.tolist()
    for row in chosen:
        if not -batch <= row < batch:
            accepted = f"rows 0 to {batch - 1}" if batch else "none, for it has no rows"
            raise StateError(f"row {row} is not in the state; accepted: {accepted}")
    return chosen


def real_tokens(state: KVState | WindowState) -> Tensor:  # [B,T] bool
    """Return the mask, all True when it is None."""
    return state.k.new_ones(state.k.shape[:2], dtype=torch.bool) if state.mask is None else state.mask


def _lengthen(x: Tensor, length: int) -> Tensor:  # [B,T,...] -> [B,length,...]
    return torch.cat([x, x.new_zeros(x.shape[0], length - x.shape[1], *x.shape[2:])], dim=1)


def _map(state: S, change: Callable[[Tensor], Tensor]) -> S:
    fields: Any = state
    return _make(type(state), [None if x is None else change(x) for x in fields])


def _make(kind: type[S], fields: list[Any]) -> S:
    named_tuple: Any = kind
    return named_tuple._make(fields)
