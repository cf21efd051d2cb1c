"""Edit state files and fix their checksums, and copy all numbers that the rows of an engine hold."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from linnet.generate import Engine
from linnet.generate.decoder.engine import NativeEngine
from tests.fuzz.mutate import join_safetensors, split_safetensors

NUMPY = {torch.int64: "I64", torch.float32: "F32", torch.float64: "F64", torch.int32: "I32", torch.bool: "BOOL"}


def resealed(data: bytes) -> bytes:
    """Return the file with the crc32 of its metadata and tensors."""
    header, body = split_safetensors(data)
    meta: dict[str, str] = header["__metadata__"]
    crc = zlib.crc32("".join(f"{key}={meta[key]}\n" for key in sorted(meta) if key != "crc32").encode())
    for name in sorted(set(header) - {"__metadata__"}):
        begin, end = header[name]["data_offsets"]
        crc = zlib.crc32(body[begin:end], crc)
    meta["crc32"] = f"{crc:08x}"
    return join_safetensors(header, body)


def rewritten(path: Path, change: Callable[[dict[str, Tensor], dict[str, Any]], None]) -> None:
    """Return a state file with changed tensors and metadata, and a header, offsets and crc32 that match."""
    header, body = split_safetensors(path.read_bytes())
    meta = header.pop("__metadata__")
    tensors = {}
    for name, x in header.items():
        begin, end = x["data_offsets"]
        dtype = next(key for key, value in NUMPY.items() if value == x["dtype"])
        tensors[name] = torch.frombuffer(bytearray(body[begin:end]), dtype=dtype).reshape(x["shape"])
    change(tensors, meta)
    extras = {name: {"dtype": str(x.dtype)[6:], "shape": [*x.shape]} for name, x in tensors.items() if "." not in name}
    meta["extras"] = json.dumps(extras)
    header, body = {"__metadata__": meta}, b""
    for name, x in tensors.items():
        raw = x.contiguous().numpy().tobytes()
        header[name] = {"dtype": NUMPY[x.dtype], "shape": [*x.shape], "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    path.write_bytes(resealed(join_safetensors(header, body)))


def memory(engine: Engine, rows: list[int]) -> list[Tensor]:
    """Copy every number of these rows: for the native engine the memory itself, including spare room."""
    if not isinstance(engine, NativeEngine):
        state = engine.state(rows)
        return [state.position, *(x for layer in state.layers for x in layer if x is not None)]
    slots, places = engine._slots, [engine._rows[row] for row in rows]
    kept = [slots.states[places].view(torch.int32), slots.positions[places].clone()]
    return kept + [slots.caches[place].view(torch.int32).clone() for place in places]


def unchanged(before: list[Tensor], after: list[Tensor]) -> bool:
    return len(before) == len(after) and all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
