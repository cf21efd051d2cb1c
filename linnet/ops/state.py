"""What a sequence mixer remembers, as a value: returned, never mutated, forked by keeping it.

    State        linear attention      s [B,H,F,V], z [B,H,F]                       float32 or float64
    KVState      softmax attention     k [B,T,H,D], v [B,T,H,V], mask [B,T] | None  grows with T
    WindowState  sliding window        k [B,W,H,D], v [B,W,H,V], mask [B,W]         W = window - 1, newest last
    ConvState    short convolution     x [B,W,E]                                    W = taps - 1, newest last
    MatrixState  gates, delta, Mamba   s [B,H,F,V], x [B,W,E]                       float32 or float64; W may be 0

All have the same methods; `save` and `load` are those of state_file.py for a single layer.
B batch, T time, H heads, F features, D key width, V value width, E channels. mask: bool, True = real token.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import torch
from torch import Tensor

from ..errors import StateError
from .checks import check_form

Rows: TypeAlias = "Tensor | Sequence[int] | slice"
PathLike: TypeAlias = "str | os.PathLike[str]"


class State(NamedTuple):
    """Linear attention after t tokens: s = sum phi(k) v^T, z = sum phi(k); the same size at every t."""

    s: Tensor  # [B,H,F,V]
    z: Tensor  # [B,H,F]

    @property
    def nbytes(self) -> int:
        """Bytes held by the tensors."""
        return _nbytes(self)

    def select(self, rows: Rows) -> State:
        """The given batch rows, in that order, repeats allowed, as a new state: beams, rows that leave."""
        return _select(self, rows)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> State:
        """On another device or in another floating dtype (a mask stays bool)."""
        return _to(self, device, dtype)

    def detach(self) -> State:
        """Cut from the graph: training over a long stream, one piece at a time."""
        return _map(self, Tensor.detach)

    def clone(self) -> State:
        return _map(self, Tensor.clone)

    def save(self, path: PathLike, *, tokens: int = 0, model: str = "", tokenizer: str = "") -> None:
        """A state file with this one layer; see `save_states`."""
        _save(self, path, tokens=tokens, model=model, tokenizer=tokenizer)

    @classmethod
    def load(cls, path: PathLike, **wanted: Any) -> State:
        """The only layer of a state file; keywords as in `load_states`."""
        return _load(cls, path, **wanted)


class KVState(NamedTuple):
    """Keys and values of every token so far; `mask` is None while every token is real. Methods as in `State`."""

    k: Tensor  # [B,T,H,D]
    v: Tensor  # [B,T,H,V]
    mask: Tensor | None = None  # [B,T] bool

    @property
    def nbytes(self) -> int:
        return _nbytes(self)

    def select(self, rows: Rows) -> KVState:
        return _select(self, rows)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> KVState:
        return _to(self, device, dtype)

    def detach(self) -> KVState:
        return _map(self, Tensor.detach)

    def clone(self) -> KVState:
        return _map(self, Tensor.clone)

    def save(self, path: PathLike, *, tokens: int = 0, model: str = "", tokenizer: str = "") -> None:
        _save(self, path, tokens=tokens, model=model, tokenizer=tokenizer)

    @classmethod
    def load(cls, path: PathLike, **wanted: Any) -> KVState:
        return _load(cls, path, **wanted)


class WindowState(NamedTuple):
    """The last W = window - 1 real tokens, newest last; `mask` is False where there were fewer so far."""

    k: Tensor  # [B,W,H,D]
    v: Tensor  # [B,W,H,V]
    mask: Tensor  # [B,W] bool

    @property
    def nbytes(self) -> int:
        return _nbytes(self)

    def select(self, rows: Rows) -> WindowState:
        return _select(self, rows)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> WindowState:
        return _to(self, device, dtype)

    def detach(self) -> WindowState:
        return _map(self, Tensor.detach)

    def clone(self) -> WindowState:
        return _map(self, Tensor.clone)

    def save(self, path: PathLike, *, tokens: int = 0, model: str = "", tokenizer: str = "") -> None:
        _save(self, path, tokens=tokens, model=model, tokenizer=tokenizer)

    @classmethod
    def load(cls, path: PathLike, **wanted: Any) -> WindowState:
        return _load(cls, path, **wanted)


class ConvState(NamedTuple):
    """The last W = taps - 1 real inputs of a short convolution, newest last; zeros where there were fewer so far."""

    x: Tensor  # [B,W,E]

    @property
    def nbytes(self) -> int:
        return _nbytes(self)

    def select(self, rows: Rows) -> ConvState:
        return _select(self, rows)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> ConvState:
        return _to(self, device, dtype)

    def detach(self) -> ConvState:
        return _map(self, Tensor.detach)

    def clone(self) -> ConvState:
        return _map(self, Tensor.clone)

    def save(self, path: PathLike, *, tokens: int = 0, model: str = "", tokenizer: str = "") -> None:
        _save(self, path, tokens=tokens, model=model, tokenizer=tokenizer)

    @classmethod
    def load(cls, path: PathLike, **wanted: Any) -> ConvState:
        return _load(cls, path, **wanted)


class MatrixState(NamedTuple):
    """A matrix per head that a rule rewrites at every token, and the last W inputs the layer looks back on.

    Decayed, gated, delta, Mamba and RWKV mixers: each says in its own file what F and V are to it.
    """

    s: Tensor  # [B,H,F,V]
    x: Tensor  # [B,W,E]; W = 0 for a layer without a short convolution or token shift

    @property
    def nbytes(self) -> int:
        return _nbytes(self)

    def select(self, rows: Rows) -> MatrixState:
        return _select(self, rows)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> MatrixState:
        return _to(self, device, dtype)

    def detach(self) -> MatrixState:
        return _map(self, Tensor.detach)

    def clone(self) -> MatrixState:
        return _map(self, Tensor.clone)

    def save(self, path: PathLike, *, tokens: int = 0, model: str = "", tokenizer: str = "") -> None:
        _save(self, path, tokens=tokens, model=model, tokenizer=tokenizer)

    @classmethod
    def load(cls, path: PathLike, **wanted: Any) -> MatrixState:
        return _load(cls, path, **wanted)


AnyState: TypeAlias = "State | KVState | WindowState | ConvState | MatrixState"
S = TypeVar("S", State, KVState, WindowState, ConvState, MatrixState)


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
    """One state with the rows of all, in order; caches of different lengths are padded on the right with a mask."""
    kinds = {type(state) for state in states}
    if len(kinds) != 1:
        raise StateError(f"cannot join {sorted(k.__name__ for k in kinds)}; accepted: one or more states of one kind")
    first = states[0]
    if not isinstance(first, KVState):
        return type(first)._make(torch.cat(parts) for parts in zip(*states, strict=True))
    length = max(state[0].shape[1] for state in states)
    k, v = (
        torch.cat([_lengthen(x, length) for x in parts]) for parts in zip(*(state[:2] for state in states), strict=True)
    )
    mask = torch.cat([_lengthen(real_tokens(state), length) for state in states])
    return type(first)._make((k, v, None if bool(mask.all()) else mask))


def real_tokens(state: KVState | WindowState) -> Tensor:  # [B,T] bool
    """The mask, written out when it is None."""
    return state.k.new_ones(state.k.shape[:2], dtype=torch.bool) if state.mask is None else state.mask


def _lengthen(x: Tensor, length: int) -> Tensor:  # [B,T,...] -> [B,length,...]
    return torch.cat([x, x.new_zeros(x.shape[0], length - x.shape[1], *x.shape[2:])], dim=1)


def _map(state: S, change: Callable[[Tensor], Tensor]) -> S:
    return type(state)._make(None if x is None else change(x) for x in state)


def _nbytes(state: AnyState) -> int:
    return sum(x.numel() * x.element_size() for x in state if x is not None)


def _to(state: S, device: torch.device | str | None, dtype: torch.dtype | None) -> S:
    moved = _map(state, lambda x: x.to(device=device, dtype=dtype if x.is_floating_point() else None))
    check_form(moved, type(state))
    return moved


def _select(state: S, rows: Rows) -> S:
    batch = state[0].shape[0]
    chosen = list(range(batch))[rows] if isinstance(rows, slice) else rows
    index = torch.as_tensor(chosen, device=state[0].device)
    if index.ndim != 1 or (index.numel() and index.dtype not in (torch.int32, torch.int64)):
        raise StateError(f"rows is {rows!r}; accepted: a list or 1-d integer tensor of batch rows, or a slice")
    if index.numel() and not (-batch <= int(index.min()) and int(index.max()) < batch):
        raise StateError(f"rows {index.tolist()} go beyond the batch; accepted: from 0 to {batch - 1}")
    return _map(state, lambda x: x[index.long()])


def _save(state: AnyState, path: PathLike, **header: Any) -> None:
    from .state_file import save_states  # not at the top: the file format is written in terms of the states

    save_states(path, [state], **header)


def _load(kind: type[S], path: PathLike, **wanted: Any) -> S:
    from .state_file import load_state

    return load_state(kind, path, **wanted)
