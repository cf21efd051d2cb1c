"""One step of a model in native code, on structs that are kept: Model, Layer, Map, Matrix and Decode of structs.py.

    layer = Layer(mixer=MIXERS["linear"], heads=4, ...)       a field that is not named is 0
    step(call, model)                                         one token of each row of a running batch

csrc/model_fields.h says what the fields mean; linnet/generate/decoder fills them, and decode_check.py compares what
they point to with what a step reads.
"""

from __future__ import annotations

from torch import Tensor

from . import gate
from .library import STATUS, library, refused
from .structs import Decode, Model

PREPARE = {"plain": 0, "norm": 1, "project": 2, "favor": 3, "fourier": 4, "softmax": 5, "dpfp": 6, "taylor_full": 7}
MONOMIALS = 6
MIXERS = {
    "linear": 0, "softmax": 1, "window": 2, "conv": 3, "gated_conv": 4, "gated": 5, "scan": 6, "wkv4": 7, "wkv7": 8,
    "channel_mix": 9,
}  # fmt: skip
DECAYS = {"none": 0, "fixed": 1, "step": 2, "channel_step": 3, "sigmoid": 4}  # of a gated layer
GATES = {"none": 0, "silu": 1, "sigmoid": 2}
VALUES = {"own": 0, "gives": 1, "takes": 2}  # of WKV-7
NORMS = {"none": 0, "layer": 1, "rms": 2}
MLPS = {"none": -1, "identity": -2, "relu": 0, "gelu": 1, "swiglu": 2}
POSITIONS = {"none": 0, "learned": 1, "sinusoidal": 2, "rotary": 3}
DIGITS = 5  # of a position in base 256: the tables of waves
BAD_POSITION = 4  # a status


def scratch(model: Model, rows: int, threads: int, longest: int) -> Tensor:
    """Return memory for a step of so many rows, on a 64-byte boundary."""
    lib = library()
    assert lib is not None
    return gate.aligned(int(lib.linnet_decode_scratch(model, rows, threads, longest)))


def step(call: Decode, model: Model) -> None:
    """Run one step; the caller vouches for every pointer. IndexError: a row is past its last position; none moved."""
    lib = library()
    assert lib is not None
    status = lib.linnet_decode_step(call, model)
    if status == BAD_POSITION:
        raise IndexError(STATUS[status])
    if status:
        raise refused("linnet_decode_step", status)
