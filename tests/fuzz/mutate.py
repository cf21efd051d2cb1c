"""Mutators: what a fuzzer does to the bytes of a file, to the JSON in it, and to a safetensors file as a whole.

    name, data = damage(rng, data)              bits, cuts, insertions, splices, length fields, numbers
    name, value = change(rng, value)            a JSON value with one thing in it changed
    name, data = change_json(rng, data)         the same, from bytes to bytes; also what no value can say: NaN, depth
    name, data = change_safetensors(rng, data)  header, metadata (JSON inside strings too) or tensors, still well formed

All of them draw from the `random.Random` they are given, so that a seed gives the same file again.
"""

from __future__ import annotations

import json
import random
from copy import deepcopy
from typing import Any

DEPTH = 100_000  # of nested JSON: far beyond Python's own limit
HUGE = (
    2**31 - 1,
    2**31,
    2**32,
    2**40,
    2**53 + 1,
    2**63 - 1,
    2**63,
    2**64,
    10**30,
    10**400,
    -1,
    -(2**63),
    0,
    50_000_000,
)
WRONG: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1.5,
    1e308,
    "",
    "x",
    "1",
    "\x00",
    "\ud800",
    [],
    {},
    [[]],
    [None],
    {"a": 1},
)
DTYPES = ("BOOL", "U8", "I8", "I32", "I64", "F16", "BF16", "F32", "F64", "F8_E5M2", "X9")


def damage(rng: random.Random, data: bytes) -> tuple[str, bytes]:
    """Bytes changed without regard to what they mean."""
    name = rng.choice(("flip", "flip", "byte", "truncate", "insert", "delete", "splice", "zeros", "length", "digits"))
    if not data:
        return "insert", rng.randbytes(rng.randrange(1, 16))
    at = _place(rng, len(data))
    if name == "flip":
        return name, _with(data, at, bytes([data[at] ^ 1 << rng.randrange(8)]))
    if name == "byte":
        return name, _with(data, at, bytes([rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))]))
    if name == "truncate":
        return name, data[: rng.choice((0, 1, 3, at, len(data) - 1))]
    if name == "insert":
        return name, data[:at] + rng.randbytes(rng.choice((1, 2, 8, 100))) + data[at:]
    if name == "delete":
        return name, data[:at] + data[at + rng.choice((1, 2, 8, 100)) :]
    if name == "splice":
        other, size = rng.randrange(len(data)), rng.choice((1, 4, 16, 256))
        return name, _with(data, at, data[other : other + size][: len(data) - at])
    if name == "zeros":
        return name, _with(data, at, bytes(min(rng.choice((1, 4, 64, 1024)), len(data) - at)))
    if name == "length":
        return name, _length(rng, data)
    return name, _digits(rng, data)


def change(rng: random.Random, value: Any) -> tuple[str, Any]:
    """A copy of a JSON value with one thing in it of another type, another size, missing, twice, or of another name."""
    value = deepcopy(value)
    places = list(_places(value))
    name = rng.choice(("type", "number", "type", "number", "drop", "rename", "add", "repeat", "swap", "text"))
    if not places:
        return "type", rng.choice(WRONG)
    holder, key = rng.choice(places)
    if name == "type":
        holder[key] = deepcopy(rng.choice(WRONG))
    elif name == "number":
        holder[key] = rng.choice(HUGE)
    elif name == "drop":
        del holder[key]
    elif name == "rename" and isinstance(holder, dict):
        holder[rng.choice(("", "x", f"{key}x", "__class__"))] = holder.pop(key)
    elif name == "swap":
        other, there = rng.choice(places)
        holder[key], other[there] = deepcopy(other[there]), deepcopy(holder[key])
    elif name == "text" and isinstance(holder[key], str):
        text = holder[key]
        holder[key] = rng.choice((text + "x", text[:-1], text.upper(), "../" + text, "/" + text, text * 100))
    elif isinstance(holder, list):
        holder.insert(key, deepcopy(holder[key]))
    else:
        holder[f"{key}{rng.randrange(10)}"] = deepcopy(holder[key])
    return name, value


def change_json(rng: random.Random, data: bytes) -> tuple[str, bytes]:
    """JSON in, bytes out: a changed value most of the time, else what a parser has to survive."""
    name = rng.choice(("value",) * 8 + ("deep", "deep inside", "nan", "twice", "encoding", "damage"))
    value = json.loads(data)
    if name == "deep":
        bracket = rng.choice(("[", '{"a":'))
        return name, (bracket * DEPTH).encode()
    if name == "damage":
        return damage(rng, data)
    if name == "encoding":
        text = data.decode()
        return name, rng.choice(
            (text.encode("utf-16"), b"\xef\xbb\xbf" + data, text.encode("latin-1", "replace") + b"\xff")
        )
    places = [(holder, key) for holder, key in _places(value)]
    if name == "twice" and isinstance(value, dict) and value:
        key = rng.choice(sorted(value))
        return name, b"{" + json.dumps(key).encode() + b": " + json.dumps(
            rng.choice(WRONG)
        ).encode() + b"," + data.lstrip()[1:]
    if name in ("deep inside", "nan") and places:
        holder, key = rng.choice(places)
        holder[key] = "@here@"
        nested = "[" * DEPTH + "]" * DEPTH
        inside = nested if name == "deep inside" else rng.choice(("NaN", "Infinity", "-Infinity", "1e999", "-0"))
        return name, json.dumps(value).replace('"@here@"', inside, 1).encode()
    kind, value = change(rng, value)
    return kind, json.dumps(value).encode()


def change_lines(rng: random.Random, data: bytes) -> tuple[str, bytes]:
    """JSON lines: one of them changed, lost, twice, or out of order."""
    lines = data.splitlines()
    if not lines:
        return damage(rng, data)
    at = rng.randrange(len(lines))
    name = rng.choice(("json", "json", "json", "lose", "again", "order", "damage"))
    if name == "json":
        name, lines[at] = change_json(rng, lines[at])
    elif name == "lose":
        del lines[at]
    elif name == "again":
        lines.insert(at, lines[at])
    elif name == "order":
        other = rng.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    else:
        return damage(rng, data)
    return name, b"".join(line + b"\n" for line in lines)


def split_safetensors(data: bytes) -> tuple[dict[str, Any], bytes]:
    """(header as it stands in the JSON, bytes of the tensors) of a file that is whole."""
    size = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def join_safetensors(header: dict[str, Any] | str, body: bytes) -> bytes:
    """The file of a header and the bytes of its tensors."""
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + body


def change_safetensors(rng: random.Random, data: bytes) -> tuple[str, bytes]:
    """A file whose length field is right again, so that what was changed is what a reader meets."""
    header, body = split_safetensors(data)
    tensors = sorted(name for name in header if name != "__metadata__")
    name = rng.choice(("body", "shape", "dtype", "offsets", "name", "drop", "metadata", "metadata", "header", "damage"))
    if name == "damage" or not tensors:
        return damage(rng, data)
    chosen = rng.choice(tensors)
    if name == "body":
        kind, body = damage(rng, body)
        return f"body {kind}", join_safetensors(header, body)
    if name == "shape":
        header[chosen]["shape"] = _shape(rng, header[chosen]["shape"])
    elif name == "dtype":
        header[chosen]["dtype"] = rng.choice(DTYPES)
    elif name == "offsets":
        header[chosen]["data_offsets"][rng.randrange(2)] = rng.choice((*HUGE, len(body), len(body) - 1))
    elif name == "name":
        header[rng.choice(("", "x", chosen + "x", chosen[:-1]))] = header.pop(chosen)
    elif name == "drop":
        del header[chosen]
    elif name == "metadata" and header.get("__metadata__"):
        kind, header["__metadata__"] = change_metadata(rng, header["__metadata__"])
        return f"metadata {kind}", join_safetensors(header, body)
    else:
        kind, text = change_json(rng, json.dumps(header).encode())
        return f"header {kind}", join_safetensors(text.decode("utf-8", "replace"), body)
    return name, join_safetensors(header, body)


def change_metadata(rng: random.Random, meta: dict[str, str]) -> tuple[str, dict[str, str]]:
    """One of the strings of a safetensors file: another text, gone, or JSON changed where it holds JSON."""
    meta, key = dict(meta), rng.choice(sorted(meta))
    try:
        holds_json = isinstance(json.loads(meta[key]), dict | list)
    except ValueError:
        holds_json = False
    if holds_json and rng.random() < 0.8:
        kind, data = change_json(rng, meta[key].encode())
        meta[key] = data.decode("utf-8", "replace")
        return f"{key} {kind}", meta
    if rng.random() < 0.3:
        del meta[key]
        return f"{key} drop", meta
    meta[key] = rng.choice(("", "x", meta[key] + "0", "-1", "9" * 5000, str(2**63 - 2), str(2**64), "null", "é", "²"))
    return f"{key} text", meta


def _place(rng: random.Random, size: int) -> int:
    """Anywhere, but half of the time near the beginning, where headers are."""
    return rng.randrange(min(size, 64)) if rng.random() < 0.5 else rng.randrange(size)


def _with(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def _length(rng: random.Random, data: bytes) -> bytes:
    """A number of 4 or 8 bytes at the beginning made small, huge or negative; either order of bytes."""
    size = rng.choice((4, 8))
    at = rng.randrange(0, max(1, min(len(data), 128) - size), rng.choice((1, 4)))
    value = rng.choice((0, 1, 2**16, 2**24, 2 ** (8 * size - 2), 2 ** (8 * size - 1), 2 ** (8 * size) - 1))
    return _with(data, at, value.to_bytes(size, rng.choice(("little", "big"))))[: max(len(data), size)]


def _digits(rng: random.Random, data: bytes) -> bytes:
    """A number written in digits replaced by another."""
    starts = [i for i in range(len(data)) if data[i : i + 1].isdigit() and not data[max(0, i - 1) : i].isdigit()]
    if not starts:
        return _length(rng, data)
    at = end = rng.choice(starts)
    while end < len(data) and data[end : end + 1].isdigit():
        end += 1
    return data[:at] + str(rng.choice(HUGE)).encode() + data[end:]


def _shape(rng: random.Random, shape: list[int]) -> list[int]:
    kind = rng.randrange(4)
    if kind == 0:
        return [*shape, 1]
    if kind == 1:
        return shape[::-1]
    if kind == 2 or not shape:
        return [rng.choice(HUGE[:9])]
    at = rng.randrange(len(shape))
    return [*shape[:at], rng.choice((0, shape[at] + 1, *HUGE[:6])), *shape[at + 1 :]]


def _places(value: Any, depth: int = 0) -> Any:
    """(container, key) of everything inside a JSON value; of long lists some only."""
    if depth > 20 or not isinstance(value, dict | list):
        return
    keys = list(value) if isinstance(value, dict) else range(min(len(value), 8))
    for key in keys:
        yield value, key
        yield from _places(value[key], depth + 1)
