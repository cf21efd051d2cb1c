"""Read llama2.c's "legacy" .bin, or the same arrays as .npz.

    .bin   7 int32 (E, F, L, H, K, N or -N, longest), then float32: tok_embeddings, attention_norm, wq, wk, wv, wo,
           ffn_norm, w1, w2, w3, norm, two rotary tables [longest, D/2] (not used), and output [N,E] if N was negative
    .npz   `config` (the 7 numbers) and these arrays by name, without the rotary tables, float16 or float32

Arrays of layers are stacked, [L, ...]. RMSNorm eps 1e-5 and rotary base 10000, which the files do not record.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data import zip_file
from ..models.config import ModelConfig
from ..models.weights_file import Shape, check_weights
from .architecture import Weights
from .llama import OUTSIDE, head_width, llama_config, part_shapes, parts

Array = np.ndarray[Any, Any]
HEADER = ("dim", "hidden_dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "max_seq_len")
MOST = 1 << 24  # a larger size means a damaged header
MAGIC = 0x616B3432  # "ak42": llama2.c's later formats


def read_bin(path: Path) -> Weights:
    """Read the .bin, memory-mapped; its length must match its header."""
    size = path.stat().st_size
    if size < 28:
        raise ValueError(f"{path} has {size} bytes; accepted: a llama2.c .bin, whose header alone has 28")
    config = _config(path, np.fromfile(path, "<i4", 7))
    longest, D = config.max_length, head_width(config)
    shapes = _stacked(config)
    output = shapes.pop("output", None)
    shapes |= {"rotary cos": (longest, D // 2), "rotary sin": (longest, D // 2)}
    shapes |= {} if output is None else {"output": output}
    wanted = 28 + 4 * sum(map(prod, shapes.values()))
    if size != wanted:
        raise ValueError(
            f"{path} has {size:,} bytes where its header says {wanted:,}; it is truncated or not a llama2.c .bin; "
            "accepted: the legacy format (export.py --version 0)"
        )
    flat, at, arrays = np.memmap(path, "<f4", "r", 28), 0, {}
    for name, shape in shapes.items():
        arrays[name] = flat[at : at + prod(shape)].reshape(shape)
        at += prod(shape)
    return _weights(path, config, {name: array for name, array in arrays.items() if "rotary" not in name})


def read_npz(path: Path) -> Weights:
    """Read the .npz, one array after another."""
    try:
        names = zip_file.npz_names(path)
        header = zip_file.read_npz(path, ["config"]).get("config") if "config" in names else None
        arrays = {} if header is None else zip_file.read_npz(path, [name for name in names if name != "config"])
    except ValueError as error:
        raise ValueError(f"{error}; accepted: llama2.c's arrays, saved by numpy.savez") from None
    if header is None:
        raise ValueError(f"{path} lacks the array 'config'; accepted: 7 integers, {', '.join(HEADER)}")
    config = _config(path, header, tied="output" not in arrays)
    check_weights(arrays, {name: Shape(shape) for name, shape in _stacked(config).items()}, str(path))
    for name, array in arrays.items():
        if array.dtype.kind != "f":
            raise ValueError(f"{path}: {name!r} has dtype {array.dtype}; accepted: float16 or float32")
    return _weights(path, config, arrays)


def _config(path: Path, header: Array, tied: bool = True) -> ModelConfig:
    if header.shape != (7,) or header.dtype.kind not in "iu":
        raise ValueError(
            f"{path}: 'config' is {header.dtype} {list(header.shape)}; accepted: 7 integers, {', '.join(HEADER)}"
        )
    if int(header[0]) == MAGIC:
        raise ValueError(
            f"{path} is llama2.c's version {int(header[1])}; accepted: the legacy format (export.py --version 0)"
        )
    sizes = dict(zip(HEADER, map(int, header), strict=True))
    tied, sizes["vocab_size"] = tied and sizes["vocab_size"] > 0, abs(sizes["vocab_size"])
    for name, value in sizes.items():
        if not 0 < value <= MOST:
            raise ValueError(f"{path}: {name} is {value}; accepted: 1 to {MOST}; it is damaged or not a llama2.c file")
    heads = {"n_heads": sizes["n_heads"], "n_kv_heads": sizes["n_kv_heads"]}
    shape = {"d_model": sizes["dim"], "d_ff": sizes["hidden_dim"], "n_layers": sizes["n_layers"]}
    ends = {"vocab_size": sizes["vocab_size"], "max_length": sizes["max_seq_len"], "tie_embeddings": tied}
    return llama_config(str(path), **heads, **shape, **ends)


def _stacked(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Return array -> shape, in the order of the .bin."""
    shapes = part_shapes(config).items()
    return {name: shape if name in OUTSIDE else (config.n_layers, *shape) for name, shape in shapes}


def _weights(path: Path, config: ModelConfig, arrays: Mapping[str, Array]) -> Weights:
    """Return stacked arrays as one tensor per layer."""
    names = {name: name if name in OUTSIDE else f"{name}.{{i}}" for name in arrays}
    single: dict[str, Array] = {}
    for name, array in arrays.items():
        single |= {name: array} if name in OUTSIDE else {f"{name}.{i}": array[i] for i in range(config.n_layers)}

    def fetch(name: str) -> Tensor:
        return torch.from_numpy(np.array(single[name], dtype=np.float32))

    shapes = {name: array.shape for name, array in single.items()}
    return Weights(str(path), config, partial(parts, names=names, interleaved=True), shapes, fetch)
