"""Function: one function of the library, called by the names of the fields of its struct.

    NORM = Function(structs.Norm)
    NORM.call(out=out, stat=stat, x=x, weight=None, bias=None, rows=R, cols=N, rms=0, threads=2, eps=1e-5)

A pointer takes a tensor, or None for null; strides take `x.stride()`; an inner struct takes an instance. Every field
must be named: a missing or unknown one is a TypeError. The first call compiles a function with these keywords, which
packs the values in the order of the struct: that is faster than to look every name up in a dictionary.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping
from functools import cached_property
from math import prod
from typing import Any

import torch

from . import gate, structs
from .abi import STRUCTS, Call, Field
from .library import library, refused

STRIDES = structs.Strides.c_name
FORMATS = {"int64": "q", "double": "d", STRIDES: "4q"}
DTYPES = {"float*": torch.float32, "double*": torch.float64, "int64*": torch.int64}
SOURCE = """
def call(*, {names}):
    if _gate.CHECK:
        _verify(locals())
    _status = _function(_pack(*_addresses(({pointers},)), {values}))
    if _status:
        raise _refused("{function}", _status)
"""


class Function:
    """One function of the library; `call` takes the fields of its struct as keywords."""

    def __init__(self, call: type[Call]) -> None:
        self.struct = call

    @cached_property
    def call(self) -> Callable[..., None]:
        """Make the call, or raise RuntimeError with the library's reason. The caller keeps the tensors alive."""
        fields, name = self.struct.declared, self.struct.function
        pointers = [field.name for field in fields if field.pointer]
        assert [field.name for field in fields[: len(pointers)]] == pointers, "pointers come first"
        values = [_value(field) for field in fields[len(pointers) :]]
        source = SOURCE.format(
            names=", ".join(field.name for field in fields),
            pointers=", ".join(pointers),
            values=", ".join(values),
            function=name,
        )
        scope: dict[str, Any] = {
            "_gate": gate, "_verify": self.verify, "_function": getattr(library(), name), "_pack": self._packer().pack,
            "_addresses": gate.addresses, "_refused": refused,
        }  # fmt: skip
        exec(compile(source, f"<{name}>", "exec"), scope)  # as dataclasses make __init__: nothing but declared names
        call: Callable[..., None] = scope["call"]
        return call

    def _packer(self) -> struct.Struct:
        packer = struct.Struct("".join(_format(field) for field in self.struct.declared))
        assert packer.size == ctypes.sizeof(self.struct)
        return packer

    def verify(self, values: Mapping[str, Any]) -> None:
        """For LINNET_CHECK: raise RuntimeError unless every tensor is as long as the declared shape says."""
        for field in self.struct.declared:
            if field.pointer and (x := values[field.name]) is not None:
                shape = [_size(size, values) for size in field.shape]
                where = f"{self.struct.function}: {field.name}"
                gate.verify(where, x, shape, _dtype(field, x, values), _strides(field, values))


def _value(field: Field) -> str:
    """Return the code for the values of a field: a number, the strides of a tensor, or a struct."""
    if field.kind == STRIDES:
        return f"*{field.name}"
    return field.name if field.kind in FORMATS else f"bytes({field.name})"


def _format(field: Field) -> str:
    if field.pointer:
        return "q"
    return FORMATS.get(field.kind) or f"{ctypes.sizeof(STRUCTS[field.kind])}s"


def _strides(field: Field, values: Mapping[str, Any]) -> list[int] | None:
    if field.strides is None:
        return None
    steps = [values[name] for name in field.strides]
    return [*(steps[0][:-1] if isinstance(steps[0], tuple) else steps), 1]


def _size(text: str, values: Mapping[str, Any]) -> int:
    """Return the number that a size such as S+1, 2*rows or matrix.in stands for."""
    return sum(prod(_number(factor, values) for factor in term.split("*")) for term in text.split("+"))


def _number(text: str, values: Mapping[str, Any]) -> int:
    if text.isdigit():
        return int(text)
    name, _, inner = text.partition(".")
    return int(getattr(values[name], inner) if inner else values[name])


def _dtype(field: Field, x: torch.Tensor, values: Mapping[str, Any]) -> torch.dtype:
    if field.kind == "uint8*":
        return torch.bool if x.dtype == torch.bool else torch.uint8
    if field.kind == "void*":
        return torch.float64 if values["wide"] else torch.float32
    return DTYPES[field.kind]
