"""What a sequence mixer remembers, as a value: returned, never mutated, forked by keeping it, saved to a file.

    State        linear attention      s [B,H,F,V], z [B,H,F]                       float32 or float64
    KVState      softmax attention     k [B,T,H,D], v [B,T,H,V], mask [B,T] | None  grows with T
    WindowState  sliding window        k [B,W,H,D], v [B,W,H,V], mask [B,W]         W = window - 1, newest last

The file is safetensors (docs/guide/state-file.md): tensors "<layer>.<field>", and a header that says which model and
tokenizer the states belong to. A file that does not fit, or is damaged, is refused with the field that differs.
B batch, T time, H heads, F features, D key width, V value width. mask: bool, True = real token.
"""

from __future__ import annotations

import json
import os
import secrets
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_safetensors
from torch import Tensor

from ..errors import StateError
from .checks import check_form

FORMAT, VERSION = "linnet-state", "1"
DTYPES = {"F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64", "BOOL": "bool"}  # safetensors names

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
        save_states(path, [self], tokens=tokens, model=model, tokenizer=tokenizer)

    @classmethod
    def load(cls, path: PathLike, **wanted: Any) -> State:
        """The only layer of a state file; keywords as in `load_states`."""
        return _load_one(cls, path, **wanted)


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
        save_states(path, [self], tokens=tokens, model=model, tokenizer=tokenizer)

    @classmethod
    def load(cls, path: PathLike, **wanted: Any) -> KVState:
        return _load_one(cls, path, **wanted)


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
        save_states(path, [self], tokens=tokens, model=model, tokenizer=tokenizer)

    @classmethod
    def load(cls, path: PathLike, **wanted: Any) -> WindowState:
        return _load_one(cls, path, **wanted)


AnyState: TypeAlias = "State | KVState | WindowState"
S = TypeVar("S", State, KVState, WindowState)
KINDS: dict[str, type[AnyState]] = {"linear": State, "softmax": KVState, "window": WindowState}


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


class LayerHeader(NamedTuple):
    """One layer as the header describes it; a mask is always bool, so `dtype` is that of the other tensors."""

    kind: str  # a key of KINDS
    dtype: str  # "float32"
    shapes: dict[str, tuple[int, ...]]  # field -> shape


@dataclass(frozen=True)
class StateHeader:
    """What a state file says of itself."""

    layers: tuple[LayerHeader, ...]
    tokens: int  # how many tokens the states have seen
    model: str  # fingerprints; "" = not given
    tokenizer: str


def save_states(
    path: PathLike, states: Sequence[AnyState], *, tokens: int = 0, model: str = "", tokenizer: str = ""
) -> None:
    """Write the states of a model, one per layer, to one file: whole or not at all."""
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 0:
        raise StateError(f"tokens is {tokens!r}; accepted: how many tokens the states have seen, 0 or more")
    layers = [_describe(state) for state in states]
    tensors = {
        f"{i}.{name}": x.detach().cpu().clone(memory_format=torch.contiguous_format)
        for i, state in enumerate(states)
        for name, x in state._asdict().items()
        if x is not None
    }
    meta = {
        "format": FORMAT,
        "format_version": VERSION,
        "model": model,
        "tokenizer": tokenizer,
        "tokens": str(tokens),
        "layers": json.dumps([layer._asdict() for layer in layers]),
    }
    _write(Path(path), to_safetensors(tensors, meta | {"crc32": _crc32(meta, tensors)}))


def load_states(
    path: PathLike,
    *,
    model: str | None = None,
    tokenizer: str | None = None,
    expect: Sequence[AnyState] | None = None,
    device: torch.device | str = "cpu",
) -> list[AnyState]:
    """The states of a file, one per layer, or StateError naming the field that differs.

    `model`, `tokenizer`: the fingerprints wanted (None = any). `expect`: states of the wanted kinds, dtypes and
    shapes, for example fresh ones from the model; the length of a KVState is free.
    """
    with _opened(path) as file:
        meta, header = _header(path, file)
        _compare(path, "model", header.model, model)
        _compare(path, "tokenizer", header.tokenizer, tokenizer)
        if expect is not None:
            _compare_layers(path, header.layers, [_describe(state) for state in expect])
        names = [f"{i}.{name}" for i, layer in enumerate(header.layers) for name in layer.shapes]
        tensors = {name: file.get_tensor(name).clone() for name in names}  # a copy: the file may go away
    if meta.get("crc32") != _crc32(meta, tensors):
        raise StateError(f"{path} is damaged: crc32 {meta.get('crc32')!r} is not that of its content; save it again")
    states: list[AnyState] = []
    for i, layer in enumerate(header.layers):
        kind = KINDS[layer.kind]
        states.append(kind._make(tensors.get(f"{i}.{name}") for name in kind._fields))
        check_form(states[-1], kind)
    return [state.to(device) for state in states]


def read_header(path: PathLike) -> StateHeader:
    """What the file holds, without reading its tensors."""
    with _opened(path) as file:
        return _header(path, file)[1]


def _load_one(kind: type[S], path: PathLike, **wanted: Any) -> S:
    states = load_states(path, **wanted)
    _compare(path, "number of layers", len(states), 1)
    _compare(path, "kind of layer 0", type(states[0]).__name__, kind.__name__)
    return kind._make(states[0])


def _describe(state: AnyState) -> LayerHeader:
    kind = next((name for name, cls in KINDS.items() if isinstance(state, cls)), None)
    if kind is None:
        accepted = ", ".join(cls.__name__ for cls in KINDS.values())
        raise StateError(f"a layer's state is a {type(state).__name__}; accepted: a sequence of {accepted}")
    check_form(state, KINDS[kind])
    shapes = {name: tuple(x.shape) for name, x in state._asdict().items() if x is not None}
    return LayerHeader(kind, str(state[0].dtype).removeprefix("torch."), shapes)


def _opened(path: PathLike) -> Any:  # safe_open, which has no types
    if Path(path).is_dir():
        raise IsADirectoryError(f"{path} is a folder; accepted: a state file")
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no state file {path}; write one with save_states")
    try:
        return safe_open(path, framework="pt", device="cpu")
    except SafetensorError as error:
        raise StateError(f"{path} is not a whole safetensors file ({error}); save the state again") from error


def _header(path: PathLike, file: Any) -> tuple[dict[str, str], StateHeader]:
    """The metadata and what it means, once it agrees with the tensors that are there."""
    meta: dict[str, str] = file.metadata() or {}
    _compare(path, "format", meta.get("format"), FORMAT)
    _compare(path, "format_version", meta.get("format_version"), VERSION)
    try:
        layers = tuple(
            LayerHeader(x["kind"], str(x["dtype"]), {name: tuple(size) for name, size in x["shapes"].items()})
            for x in json.loads(meta["layers"])
        )
        header = StateHeader(layers, int(meta["tokens"]), meta["model"], meta["tokenizer"])
        wanted = {f"{i}.{name}": size for i, x in enumerate(layers) for name, size in x.shapes.items()}
        unknown = {x.kind for x in layers if x.kind not in KINDS}
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise StateError(f"{path} has a damaged header ({error!r}); save the state again") from error
    if unknown:
        raise StateError(f"{path} has layers of kind {unknown}; this linnet reads {', '.join(KINDS)}; update linnet")
    slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - not a dict, and not iterable
    _compare(path, "shapes", {name: tuple(x.get_shape()) for name, x in slices.items()}, wanted)
    for name, x in slices.items():
        layer, _, field = name.partition(".")
        dtype = "bool" if field == "mask" else layers[int(layer)].dtype
        _compare(path, f"dtype of {name}", DTYPES.get(x.get_dtype()), dtype)
    return meta, header


def _compare(path: PathLike, field: str, found: object, wanted: object) -> None:
    if wanted is not None and found != wanted:
        raise StateError(f"{path}: {field} is {found!r} in the file, {wanted!r} is wanted")


def _compare_layers(path: PathLike, found: Sequence[LayerHeader], wanted: Sequence[LayerHeader]) -> None:
    _compare(path, "number of layers", len(found), len(wanted))
    for i, (have, want) in enumerate(zip(found, wanted, strict=True)):
        _compare(path, f"kind of layer {i}", have.kind, want.kind)
        _compare(path, f"dtype of layer {i}", have.dtype, want.dtype)
        if have.kind == "softmax":  # any length, with or without a mask
            have, want = _timeless(have), _timeless(want)
        _compare(path, f"shapes of layer {i}", have.shapes, want.shapes)


def _timeless(layer: LayerHeader) -> LayerHeader:
    return layer._replace(shapes={name: (*x[:1], -1, *x[2:]) for name, x in layer.shapes.items() if name != "mask"})


def _crc32(meta: Mapping[str, str], tensors: Mapping[str, Tensor]) -> str:
    """Over "key=value\n" of the other metadata, then the bytes of every tensor, both in the order of their names."""
    crc = zlib.crc32("".join(f"{key}={meta[key]}\n" for key in sorted(meta) if key != "crc32").encode())
    for name in sorted(tensors):
        crc = zlib.crc32(tensors[name].reshape(-1).view(torch.uint8).numpy().data, crc)
    return f"{crc:08x}"


def _write(path: Path, data: bytes) -> None:
    """Whole or not at all: a temporary file beside it, flushed to the disk, then renamed over it."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent}; create it before saving {path.name}")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; accepted: the name of a file")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:  # an interrupt as well: nothing half-written stays behind
        temporary.unlink(missing_ok=True)
        raise
