"""The state file: the states of a model, one per layer, in one safetensors file that names its model.

    tensors "<layer>.<field>"       metadata: format, version, model, tokenizer, tokens, layers, crc32
    tensors "<name>"                          version 2 only, with config, extras: what belongs to no single layer

docs/guide/state-file.md describes it byte by byte. It is written completely or not at all; nothing in it is executed; a
file that does not fit, or is damaged, is refused with the field that differs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_safetensors
from torch import Tensor

from ..atomic import atomic
from ..checksum import crc32_of_bytes
from ..errors import StateError, brief, is_whole
from ..json_file import parse_json
from .checks import LONGEST, check_form
from .state import KINDS, AnyState, PathLike, S

FORMAT = "linnet-state"
LAYERS_ONLY, VERSION = "1", "2"  # what is written without and with a configuration or extras; both are read
DTYPES = {"F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64"}  # safetensors names
DTYPES |= {"BOOL": "bool", "I64": "int64"}


class LayerHeader(NamedTuple):
    """One layer as the header describes it; a mask is always bool, so `dtype` is that of the other tensors."""

    kind: str  # a key of KINDS
    dtype: str  # "float32"
    shapes: dict[str, tuple[int, ...]]  # field -> shape


class ExtraHeader(NamedTuple):
    """One tensor that belongs to no single layer, as the header describes it."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class StateHeader:
    """The description at the head of a state file."""

    layers: tuple[LayerHeader, ...]
    tokens: int  # how many tokens the states have seen
    model: str  # fingerprints; "" = not given
    tokenizer: str
    config: dict[str, Any] | None = None  # of the model
    extras: dict[str, ExtraHeader] = field(default_factory=dict)


class StateFile(NamedTuple):
    """A whole file."""

    header: StateHeader
    states: list[AnyState]
    extras: dict[str, Tensor]


def save_states(
    path: PathLike,
    states: Sequence[AnyState],
    *,
    tokens: int = 0,
    model: str = "",
    tokenizer: str = "",
    config: Mapping[str, Any] | None = None,
    extras: Mapping[str, Tensor] | None = None,
) -> None:
    """Write the states of a model, one per layer, to one file, completely or not at all.

    `config`: the model's, of plain values. `extras`: tensors of no single layer, by names without a dot.
    """
    if not is_whole(tokens, 0, LONGEST):
        raise StateError(f"tokens is {tokens!r}; accepted: how many tokens the states have seen, 0 to {LONGEST}")
    layers, more = [_describe(state) for state in states], dict(extras or {})
    tensors = {f"{i}.{name}": x for i, state in enumerate(states) for name, x in state.tensors.items()}
    tensors = {name: _plain(x) for name, x in (tensors | more).items()}
    meta = {
        "format": FORMAT,
        "format_version": LAYERS_ONLY if config is None and not more else VERSION,
        "model": model,
        "tokenizer": tokenizer,
        "tokens": str(tokens),
        "layers": json.dumps([layer._asdict() for layer in layers]),
    }
    if meta["format_version"] == VERSION:
        meta["config"] = json.dumps(config)
        meta["extras"] = json.dumps({name: _extra(name, x)._asdict() for name, x in more.items()})
    _write(Path(path), to_safetensors(tensors, meta | {"crc32": crc32_of(meta, tensors)}))


def load_states(
    path: PathLike,
    *,
    model: str | None = None,
    tokenizer: str | None = None,
    expect: Sequence[AnyState] | None = None,
    device: torch.device | str = "cpu",
) -> list[AnyState]:
    """Return the states of a file, one per layer, or raise StateError naming the field that differs.

    `model`, `tokenizer`: the fingerprints wanted (None = any). `expect`: states of the wanted kinds, dtypes and
    shapes, for example fresh ones from the model; the length of a KVState is free.
    """
    header, states, _ = load_file(path, device=device)
    compare(path, "model", header.model, model)
    compare(path, "tokenizer", header.tokenizer, tokenizer)
    if expect is not None:
        _compare_layers(path, header.layers, [_describe(state) for state in expect])
    return states


def load_file(path: PathLike, *, device: torch.device | str = "cpu") -> StateFile:
    """Return everything in a file, after checking that it is complete."""
    with _opened(path) as file:
        meta, header = _header(path, file)
        names = [f"{i}.{name}" for i, layer in enumerate(header.layers) for name in layer.shapes]
        tensors = {name: file.get_tensor(name).clone() for name in (*names, *header.extras)}  # the file may go away
    if meta.get("crc32") != crc32_of(meta, tensors):
        raise StateError(
            f"{path} is damaged: crc32 {brief(meta.get('crc32'))} is not that of its content; save it again"
        )
    states: list[AnyState] = []
    for i, layer in enumerate(header.layers):
        kind: Any = KINDS[layer.kind]
        states.append(kind._make([tensors.get(f"{i}.{name}") for name in kind._fields]))
        check_form(states[-1], kind)
    extras = {name: tensors[name].to(device) for name in header.extras}
    return StateFile(header, [state.to(device) for state in states], extras)


def load_state(kind: type[S], path: PathLike, **wanted: Any) -> S:
    """Return the only layer of a file, of this kind; keywords as in `load_states`."""
    states = load_states(path, **wanted)
    compare(path, "number of layers", len(states), 1)
    state = states[0]
    compare(path, "kind of layer 0", type(state).__name__, kind.__name__)
    assert isinstance(state, kind)
    return state


def read_header(path: PathLike) -> StateHeader:
    """Return the header of a file, without reading its tensors."""
    with _opened(path) as file:
        return _header(path, file)[1]


def _describe(state: AnyState) -> LayerHeader:
    kind = next((name for name, cls in KINDS.items() if isinstance(state, cls)), None)
    if kind is None:
        accepted = ", ".join(cls.__name__ for cls in KINDS.values())
        raise StateError(f"a layer's state is a {type(state).__name__}; accepted: a sequence of {accepted}")
    check_form(state, KINDS[kind])
    dtype = next(x.dtype for name, x in state.tensors.items() if name not in state.flags)
    return LayerHeader(
        kind, str(dtype).removeprefix("torch."), {name: tuple(x.shape) for name, x in state.tensors.items()}
    )


def _extra(name: str, x: Tensor) -> ExtraHeader:
    dtype = str(x.dtype).removeprefix("torch.")
    if "." in name or dtype not in DTYPES.values():
        accepted = f"a name without a dot, and one of {', '.join(DTYPES.values())}"
        raise StateError(f"{name!r} is {dtype}; accepted in addition to the layers: {accepted}")
    return ExtraHeader(dtype, tuple(x.shape))


def _plain(x: Tensor) -> Tensor:
    """Return a tensor as it is written: alone, in order, on the CPU."""
    return x.detach().cpu().clone(memory_format=torch.contiguous_format)


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
    """Return the metadata and its meaning, after checking that they agree with the tensors."""
    meta: dict[str, str] = file.metadata() or {}
    compare(path, "format", meta.get("format"), FORMAT)
    version = meta.get("format_version")
    compare(path, "format_version", version, version if version in (LAYERS_ONLY, VERSION) else VERSION)
    try:
        layers = tuple(
            LayerHeader(x["kind"], str(x["dtype"]), {name: tuple(size) for name, size in x["shapes"].items()})
            for x in _json(meta["layers"])
        )
        extras = {
            name: ExtraHeader(str(x["dtype"]), tuple(x["shape"])) for name, x in _json(meta.get("extras", "{}")).items()
        }
        config = _json(meta.get("config", "null"))
        if not isinstance(config, (dict, type(None))):
            raise TypeError(f"config is a {type(config).__name__}")
        header = StateHeader(layers, _tokens(meta["tokens"]), meta["model"], meta["tokenizer"], config, extras)
        wanted = {f"{i}.{name}": size for i, x in enumerate(layers) for name, size in x.shapes.items()}
        wanted |= {name: x.shape for name, x in extras.items()}
        unknown = {x.kind for x in layers if x.kind not in KINDS}
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise StateError(f"{path} has a damaged header ({error!r}); save the state again") from error
    if unknown:
        raise StateError(f"{path} has layers of kind {unknown}; this linnet reads {', '.join(KINDS)}; update linnet")
    slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - not a dict, and not iterable
    compare(path, "shapes", {name: tuple(x.get_shape()) for name, x in slices.items()}, wanted)
    for name, x in slices.items():
        compare(path, f"dtype of {name}", DTYPES.get(x.get_dtype()), _dtype(header, name))
    return meta, header


def _tokens(text: str) -> int:
    """Return a count written as digits only, in bounds."""
    count = int(text)
    if text != str(count) or not 0 <= count <= LONGEST:
        raise ValueError(f"tokens is {text[:40]!r}; accepted: 0 to {LONGEST}")
    return count


def _json(text: str) -> Any:
    return parse_json(text, "its JSON", "save the state again")


def _dtype(header: StateHeader, name: str) -> str:
    if name in header.extras:
        return header.extras[name].dtype
    layer, _, of = name.partition(".")
    described = header.layers[int(layer)]
    return "bool" if of in KINDS[described.kind].flags else described.dtype


def compare(path: PathLike, field: str, saved: object, wanted: object) -> None:
    """Raise StateError unless `saved` is `wanted` (None: anything)."""
    if wanted is not None and saved != wanted:
        raise StateError(
            f"{path}: {field} is {brief(saved, 800)} in the file, {brief(wanted, 800)} is wanted; "
            "use it with what it was saved for, or save another"
        )


def _compare_layers(path: PathLike, saved: Sequence[LayerHeader], wanted: Sequence[LayerHeader]) -> None:
    compare(path, "number of layers", len(saved), len(wanted))
    for i, (have, want) in enumerate(zip(saved, wanted, strict=True)):
        compare(path, f"kind of layer {i}", have.kind, want.kind)
        compare(path, f"dtype of layer {i}", have.dtype, want.dtype)
        compare(path, f"shapes of layer {i}", _fixed(have), _fixed(want))


def _fixed(layer: LayerHeader) -> dict[str, tuple[int, ...]]:
    """Return the shapes that two states of one layer share: any length, and optional fields left out."""
    kind = KINDS[layer.kind]
    return {
        name: tuple(-1 if axis == kind.grows else n for axis, n in zip(kind.axes[name].split(","), size, strict=True))
        for name, size in layer.shapes.items()
        if name not in kind.optional
    }


def crc32_of(meta: Mapping[str, str], tensors: Mapping[str, Tensor]) -> str:
    """Over "key=value\n" of the other metadata, then the bytes of every tensor, both in the order of their names."""
    text = "".join(f"{key}={meta[key]}\n" for key in sorted(meta) if key != "crc32")
    rows = (tensors[name].reshape(-1).view(torch.uint8).numpy().data for name in sorted(tensors))
    return crc32_of_bytes(rows, crc32_of_bytes([text.encode()]))


def _write(path: Path, data: bytes) -> None:
    """Write the file completely or not at all."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent}; create it before saving {path.name}")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; accepted: the name of a file")
    with atomic(path) as file:
        file.write(data)
