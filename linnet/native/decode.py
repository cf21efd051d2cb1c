"""The structs of csrc/model.h, packed field by field, and the calls that take them: a model's step in native code.

    model = Packet(MODEL, ...)         bytes that stay where they are, with the tensors they point to
    step(call, model)                  one token of each row of a running batch

Only packing here: what the fields mean stands in csrc/model.h, what is put into them in linnet/generate/program.py, and
what they must point to in decode_check.py.
"""

from __future__ import annotations

import ctypes
import struct
from typing import Any

from torch import Tensor

from . import gate
from .library import STATUS, library
from .matmul import MATRIX

MAP = struct.Struct("14q6d")
LAYER = struct.Struct("20q2d" + "14q6d" * 2 + "7q" * 4)
MODEL = struct.Struct("15q2d" + "7q" * 2)


class Decode(ctypes.Structure):
    """linnet_decode: one call, kept and changed from step to step."""

    _fields_ = [
        (name, ctypes.c_int64)
        for name in (
            "out", "scratch", "states", "positions", "cache", "capacity", "slots", "tokens", "values",
            "stride", "B", "threads", "longest", "count",
        )
    ]  # fmt: skip


PREPARE = {"plain": 0, "norm": 1, "project": 2, "favor": 3, "fourier": 4, "softmax": 5, "dpfp": 6, "taylor_full": 7}
MONOMIALS = 6
MIXERS = {"linear": 0, "softmax": 1, "window": 2, "conv": 3, "gated_conv": 4}
MLPS = {"none": -1, "identity": -2, "relu": 0, "gelu": 1, "swiglu": 2}
POSITIONS = {"none": 0, "learned": 1, "sinusoidal": 2, "rotary": 3}
DIGITS = 5  # of a position in base 256: the tables of waves
NO_MATRIX = (0,) * 7
BAD_POSITION = 4  # a status


class Packet:
    """Bytes at a fixed address; `kept` are the tensors and packets they point to."""

    def __init__(self, data: bytes, *kept: Any) -> None:
        self.buffer = ctypes.create_string_buffer(data, len(data))
        self.kept = kept
        self.address = ctypes.addressof(self.buffer)


def check_sizes() -> None:
    """The structs are as long as the library thinks, or it is another version's."""
    lib = library()
    assert lib is not None
    sizes = [MATRIX.size, MAP.size, LAYER.size, MODEL.size, ctypes.sizeof(Decode)]
    assert sizes == [lib.linnet_model_sizes(i) for i in range(len(sizes))], sizes


def scratch(model: Packet, rows: int, threads: int, longest: int) -> Tensor:
    """Memory for a step of so many rows, on a 64-byte boundary."""
    lib = library()
    assert lib is not None
    return gate.aligned(int(lib.linnet_decode_scratch(model.address, rows, threads, longest)))


def step(call: Decode, model: Packet) -> None:
    """One step; the caller vouches for every pointer in it. IndexError: a row is past its last position; none moved."""
    lib = library()
    assert lib is not None
    status = lib.linnet_decode_step(ctypes.addressof(call), model.address)
    if status == BAD_POSITION:
        raise IndexError(STATUS[status])
    if status:
        raise RuntimeError(f"linnet_decode_step refused the call: {STATUS.get(status, status)}")
