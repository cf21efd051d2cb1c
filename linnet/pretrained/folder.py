"""Read the folder of a published model: config.json, and model.safetensors or its shards with their index.

    values = read_values(folder);   shapes, fetch = open_tensors(folder)

Names and shapes come from the headers; a tensor is read when it is used. Pickled weights are never opened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..json_file import read_object
from ..limits import LIMITS
from .architecture import Outer

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
AGAIN = "fetch it again"


def read_values(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file of the folder, where older versions write infinity as a number."""
    if not path.is_file():
        raise ValueError(f"{path} does not exist; accepted: a Hugging Face folder with {CONFIG} and {WEIGHTS}")
    return read_object(path, AGAIN, nan=True)


def open_tensors(
    folder: Path, dropped: Sequence[str] = ()
) -> tuple[dict[str, tuple[int, ...]], Callable[[str], Tensor]]:
    """Return the shape of every tensor, and a function that reads one; `dropped` are ends of names to leave out."""
    where = {name: file for file in _files(folder) for name in _names(file) if not name.endswith(tuple(dropped))}
    shapes = {name: _get(file, name, shape=True) for name, file in where.items()}

    def fetch(name: str) -> Tensor:
        tensor: Tensor = _get(where[name], name)
        if not tensor.is_floating_point():
            raise ValueError(f"{where[name]}: {name!r} has dtype {tensor.dtype}; accepted: floating point")
        return tensor

    return shapes, fetch


def drop_tied(folder: Path, shapes: dict[str, tuple[int, ...]], fetch: Callable[[str], Tensor], outer: Outer) -> None:
    """Remove the head of a tied model from the shapes; raise ValueError if it differs from the embedding."""
    if outer.head not in shapes:
        return
    if outer.embed in shapes and not torch.equal(fetch(outer.head), fetch(outer.embed)):
        raise ValueError(
            f"{folder}: tie_word_embeddings is true, but {outer.head!r} is not the embedding; accepted: the same "
            "numbers, or tie_word_embeddings false"
        )
    del shapes[outer.head]


def _files(folder: Path) -> list[Path]:
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if not (folder / INDEX).is_file():
        raise ValueError(f"{folder} has neither {WEIGHTS} nor {INDEX}; accepted: weights as safetensors, never pickled")
    shards = read_values(folder / INDEX).get("weight_map")
    files: list[Any] = list(shards.values()) if isinstance(shards, dict) else [None]
    if not all(isinstance(name, str) and Path(name).name == name and 0 < len(name) < 256 for name in files):
        raise ValueError(f"{folder / INDEX}: weight_map does not name files of its folder; {AGAIN}")
    return [folder / name for name in sorted(set(files))]


def _get(file: Path, name: str, shape: bool = False) -> Any:
    with _opened(file) as opened:
        return tuple(opened.get_slice(name).get_shape()) if shape else opened.get_tensor(name)


def _names(file: Path) -> list[str]:
    with _opened(file) as opened:
        names = list(opened.keys())
    if len(names) > LIMITS.TENSORS:
        raise ValueError(f"{file} has {len(names):,} tensors; accepted: {LIMITS.TENSORS:,} at most")
    return names


def _opened(file: Path) -> Any:
    if not file.is_file():
        raise ValueError(f"{file} does not exist, but the index names it; fetch it as well")
    try:
        return safe_open(file, "pt")
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{file} is not a whole safetensors file ({error}); copy it again") from None
