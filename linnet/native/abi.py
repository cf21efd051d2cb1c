"""How a struct of the C ABI is declared in Python: its fields by kind and name, in one string, with their shapes.

    @declare
    class ColumnSums(Call):                                 linnet_column_sums_call of csrc/nn_fields.h
        function = "linnet_column_sums"
        fields = "..."                                      as text, one line for each kind:

            float*  sums[cols]  x[rows,cols|x_stride]       pointers first: to [cols]; to [rows,cols] by its strides
            int64   rows  cols  x_stride  threads

A kind is int64, double, the name of another struct, or a pointer: float*, double*, uint8*, int32*, int64*, void*. A
size is a number, a field, a field of a field (matrix.in), or a product or sum of these (2*rows, rows+1). Strides count
elements: one field for all axes, or one for each but the last, which is 1; without any the tensor is contiguous.

`describe` writes the layout of structs as csrc/layout.h does, and `difference` finds the first field that is not the
same in both: library.py compares them once, at load. call.py makes the calls.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from itertools import zip_longest
from typing import Any, ClassVar, NamedTuple, TypeVar

NUMBERS = {"int64": ctypes.c_int64, "double": ctypes.c_double}


class Field(NamedTuple):
    name: str
    kind: str
    shape: tuple[str, ...] = ()
    strides: tuple[str, ...] | None = None

    @property
    def pointer(self) -> bool:
        return self.kind.endswith("*")


class Struct(ctypes.Structure):
    """A struct that crosses the ABI; a subclass says its name in C and its `fields`, under `@declare`."""

    c_name: ClassVar[str]
    fields: ClassVar[str]
    declared: ClassVar[tuple[Field, ...]]


class Call(Struct):
    """The struct of one function of the library, `function`: all of its arguments."""

    function: ClassVar[str]


STRUCTS: dict[str, type[Struct]] = {}  # every declared struct by its name in C


S = TypeVar("S", bound=Struct)


def declare(cls: type[S]) -> type[S]:
    """Make the fields of a struct from its declaration. (ctypes does not allow that in __init_subclass__.)"""
    if issubclass(cls, Call):
        cls.c_name = f"{cls.function}_call"
    cls.declared = tuple(parse(cls.fields))
    cls._fields_ = [(field.name, _ctype(field)) for field in cls.declared]
    STRUCTS[cls.c_name] = cls
    return cls


def parse(text: str) -> Iterable[Field]:
    """Yield the fields of a declaration."""
    for line in filter(str.strip, text.splitlines()):
        kind, *names = line.split()
        for declared in names:
            name, _, shape = declared.rstrip("]").partition("[")
            sizes, _, strides = shape.partition("|")
            yield Field(name, kind, _items(sizes), _items(strides) or None)


def _items(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


def _ctype(field: Field) -> Any:
    return ctypes.c_void_p if field.pointer else NUMBERS.get(field.kind) or STRUCTS[field.kind]


def describe(structs: Iterable[type[Struct]]) -> str:
    """Return the layout of these structs as text: a line for each, then name, kind, offset and size of each field."""
    lines = []
    for struct in structs:
        lines.append(f"{struct.c_name} {ctypes.sizeof(struct)}\n")
        for field in struct.declared:
            place = getattr(struct, field.name)
            lines.append(f" {field.name} {field.kind} {place.offset} {place.size}\n")
    return "".join(lines)


def difference(library: str, package: str) -> str | None:
    """Return which struct, and which of its fields first, two descriptions disagree on; None if on nothing."""
    theirs, ours = _by_struct(library), _by_struct(package)
    if theirs == ours:
        return None
    for name in [*ours, *(name for name in theirs if name not in ours)]:
        if name not in theirs or name not in ours:
            return f"{name} is {'missing' if name in ours else 'not known to this package'}"
        for there, here in zip_longest(theirs[name][1:], ours[name][1:]):
            if there != here:
                return f"{name} has {_field(there)} where this package has {_field(here)}"
        if theirs[name] != ours[name]:
            return f"{name} has {theirs[name][0]} bytes where this package has {ours[name][0]}"
    return None


def _by_struct(text: str) -> dict[str, list[str]]:
    """Return for each struct its size, then its fields."""
    structs: dict[str, list[str]] = {}
    for block in text.replace("\n ", "\t").splitlines():
        head, *fields = block.split("\t")
        name, _, size = head.partition(" ")
        structs[name] = [size, *fields]
    return structs


def _field(line: str | None) -> str:
    if line is None:
        return "no more fields"
    name, kind, offset, size = line.split()
    return f"{name} ({kind}, {size} bytes at {offset})"
