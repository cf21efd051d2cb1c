"""Read the header of a GGUF file: its values and where its tensors are, every size compared with the file first.

    "GGUF"   version u32   T u64 tensors   K u64 values
    K times  key, type u32, value;   string = length u64, UTF-8;   array = type u32, length u64, items
    T times  name, axes u32, sizes u64 from the innermost axis, kind u32, offset u64
    padding to `general.alignment`, then the data, where offsets begin

Versions 2 and 3, little-endian (github.com/ggml-org/ggml/blob/master/docs/gguf.md). Nothing of the data is read, and
needs no package. What a damaged file states costs no more time or memory than its own bytes (limits.py), and each kind
of damage has its sentence.
"""

from __future__ import annotations

import os
import struct
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from ..errors import brief
from ..limits import LIMITS

VERSIONS, ALIGNMENT = (2, 3), 32
MOST_AXES, MOST_DEPTH = 4, 8  # of a tensor; arrays within arrays
BOOL, STRING, ARRAY = 7, 8, 9
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", BOOL: "B", 10: "Q", 11: "q", 12: "d"}


class Kind(NamedTuple):
    """How numbers are stored: so many in a block, and the bytes of a block."""

    name: str
    numbers: int
    size: int


KINDS = {
    number: Kind(*kind)
    for number, kind in {
        0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22),
        7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 40), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110),
        12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292),
        16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50),
        20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136),
        24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8), 28: ("F64", 1, 8),
        29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66),
        39: ("MXFP4", 32, 17),
    }.items()
}  # fmt: skip


class Place(NamedTuple):
    """Where a tensor is in the file."""

    shape: tuple[int, ...]  # outermost axis first, as in torch
    kind: int  # of KINDS
    start: int  # from the beginning of the file
    size: int  # bytes


class Header(NamedTuple):
    """What a file says about itself; the values of arrays are lists."""

    values: dict[str, Any]
    tensors: dict[str, Place]


def read_header(path: Path) -> Header:
    """Read the header; ValueError in one sentence that names the file if it is damaged."""
    with open(path, "rb") as file:
        return _Walk(path, file).header()


def damaged(path: Path, why: str) -> ValueError:
    return ValueError(f"{path} is not a whole GGUF file: {why}; accepted: versions 2 and 3; copy or download it again")


class _Walk:
    """One pass over the header; `left` are the bytes still in the file, `items` how many things may still be listed."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path, self.file = path, file
        self.size = self.left = os.fstat(file.fileno()).st_size
        self.items = LIMITS.GGUF_ITEMS

    def header(self) -> Header:
        if self.take(4, "the file") != b"GGUF":
            raise self.damaged("it does not begin with GGUF")
        version = self.number("I", "the version")
        if version not in VERSIONS:
            swapped = int.from_bytes(version.to_bytes(4, "big"), "little") in VERSIONS
            raise self.damaged(f"its version is {version}" + (", big-endian" if swapped else ""))
        tensors = self.counted("the number of tensors", 24)
        values = self.values(self.counted("the number of values", 13))
        places = self.places(tensors)
        alignment = values.get("general.alignment", ALIGNMENT)
        if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
            raise self.damaged(f"general.alignment is {brief(alignment)}, not a power of two")
        start = -(-(self.size - self.left) // alignment) * alignment
        return Header(values, self.laid_out(places, start, alignment))

    def values(self, count: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for i in range(count):
            key = self.text(f"key {i}")
            if key in values:
                raise self.damaged(f"{brief(key)} is there twice")
            values[key] = self.value(self.number("I", f"the type of {brief(key)}"), brief(key), 0)
        return values

    def places(self, count: int) -> dict[str, Place]:
        """Return the tensors with their offsets from the beginning of the data."""
        places: dict[str, Place] = {}
        for i in range(count):
            name = self.text(f"the name of tensor {i}")
            if name in places:
                raise self.damaged(f"tensor {brief(name)} is there twice")
            axes = self.number("I", f"the axes of {brief(name)}")
            if not 1 <= axes <= MOST_AXES:
                raise self.damaged(f"tensor {brief(name)} has {axes:,} axes, not 1 to {MOST_AXES}")
            shape = struct.unpack(f"<{axes}Q", self.take(8 * axes, f"the shape of {brief(name)}"))
            kind, offset = struct.unpack("<IQ", self.take(12, f"the place of {brief(name)}"))
            places[name] = Place(shape[::-1], kind, offset, self.bytes_of(name, shape, kind))
        return places

    def bytes_of(self, name: str, shape: tuple[int, ...], kind: int) -> int:
        """Return how many bytes a tensor has; `shape` from the innermost axis."""
        if kind not in KINDS:
            raise self.damaged(f"tensor {brief(name)} is of the unknown kind {kind}")
        _, numbers, size = KINDS[kind]
        if 0 in shape or shape[0] % numbers:
            got = f"tensor {brief(name)} has shape {list(shape[::-1])}"
            raise self.damaged(f"{got}, not rows of whole {KINDS[kind].name} blocks of {numbers}")
        return prod(shape) // numbers * size

    def laid_out(self, places: dict[str, Place], start: int, alignment: int) -> dict[str, Place]:
        """Return the tensors with their places in the file, all inside it and apart from each other."""
        for name, place in places.items():
            if place.start % alignment:
                raise self.damaged(f"the offset of tensor {brief(name)} is {place.start:,}, no multiple of {alignment}")
            if start + place.start + place.size > self.size:
                there = f"{place.size:,} bytes from {start + place.start:,} on, and the file has {self.size:,}"
                raise self.damaged(f"tensor {brief(name)} has {there}")
        for (a, one), (b, two) in pairwise(sorted(places.items(), key=lambda item: item[1].start)):
            if one.start + one.size > two.start:
                raise self.damaged(f"tensors {brief(a)} and {brief(b)} share bytes")
        return {name: place._replace(start=start + place.start) for name, place in places.items()}

    def value(self, kind: int, what: str, depth: int) -> Any:
        if kind == STRING:
            return self.text(what)
        if kind == ARRAY:
            return self.array(what, depth + 1)
        if kind not in SCALARS:
            raise self.damaged(f"{what} is of the unknown type {kind}")
        number = self.number(SCALARS[kind], what)
        return self.flags([number], what)[0] if kind == BOOL else number

    def array(self, what: str, depth: int) -> list[Any]:
        kind = self.number("I", f"the type of {what}")
        if depth > MOST_DEPTH:
            raise self.damaged(f"{what} has arrays in arrays, more than {MOST_DEPTH} deep")
        least = struct.calcsize(SCALARS[kind]) if kind in SCALARS else 12 if kind == ARRAY else 8
        count = self.counted(f"the length of {what}", least)
        if kind == STRING:
            return [self.text(what) for _ in range(count)]
        if kind not in SCALARS:
            return [self.value(kind, what, depth) for _ in range(count)]
        numbers = np.frombuffer(self.take(count * least, what), "<" + SCALARS[kind]).tolist()
        return self.flags(numbers, what) if kind == BOOL else numbers

    def flags(self, numbers: list[int], what: str) -> list[bool]:
        if any(x > 1 for x in numbers):
            raise self.damaged(f"{what} is {max(numbers)}, neither true nor false")
        return [x == 1 for x in numbers]

    def text(self, what: str) -> str:
        length = self.number("Q", f"the length of {what}")
        if length > LIMITS.LINE_BYTES:
            raise self.damaged(f"the length of {what} is {length:,}, more than {LIMITS.LINE_BYTES:,} bytes")
        try:
            return self.take(length, what).decode()
        except UnicodeDecodeError:
            raise self.damaged(f"{what} is not UTF-8") from None

    def counted(self, what: str, least: int) -> int:
        """Return a number of things that take `least` bytes each."""
        count: int = self.number("Q", what)
        if count * least > self.left:
            raise self.damaged(f"{what} is {count:,}, and {self.left:,} bytes are left")
        self.items -= count
        if self.items < 0:
            raise self.damaged(f"it holds more than linnet.limits.LIMITS.GGUF_ITEMS = {LIMITS.GGUF_ITEMS:,} values")
        return count

    def number(self, code: str, what: str) -> Any:
        return struct.unpack("<" + code, self.take(struct.calcsize(code), what))[0]

    def take(self, count: int, what: str) -> bytes:
        if count > self.left:
            raise self.damaged(f"{what} needs {count:,} bytes, and {self.left:,} are left")
        self.left -= count
        data = self.file.read(count)
        if len(data) < count:
            raise self.damaged("it became shorter while it was read")
        return data

    def damaged(self, why: str) -> ValueError:
        return damaged(self.path, why)
