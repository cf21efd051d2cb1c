"""For LINNET_CHECK: do the structs of a packed model, and a step of it, point to as many bytes as they will be read?

    verify_model(model, there)       every address in linnet_model, its layers, maps and matrices (csrc/model.h)
    verify_step(call, ...)           every address of a step, and that of each cache it will read

The structs are unpacked again from their bytes, so that a field in the wrong place is found too. An address must be the
beginning of one of the tensors that are kept for it. Slots, tokens and positions are compared with these sizes by the
library itself before every step.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from . import gate
from .decode import DIGITS, LAYER, MAP, MIXERS, MODEL, PREPARE, Decode, Packet
from .library import library
from .matmul import KINDS, MATRIX, PANEL, matrix_bytes

MATRIX_FIELDS = "w scale sums bias out in kind".split()
MAP_FIELDS = (
    "prepare core D R F per_head norm square activation rows order weight bias index scale eps w0 w1 w_diag w_off"
).split()
LAYER_FIELDS = (
    "mixer heads kv_heads key value features window taps channels exact state cache mlp hidden "
    "norm1 bias1 norm2 bias2 filter filter_bias eps scale"
).split()
MODEL_FIELDS = (
    "layers last last_bias embed table waves n_layers width pre rms positions half caches tokens limit norm_eps gain"
).split()
FLOAT, DOUBLE, LONG, BLOCK = 4, 8, 8, 16


def rooms(tensors: Iterable[Tensor]) -> dict[int, int]:
    """Address -> bytes from there on."""
    return {gate.address(x): gate.room(x) for x in tensors}


def verify_model(model: Packet, there: Mapping[int, int]) -> None:
    """RuntimeError with the field, the bytes needed and the bytes there, unless every address of a model holds."""
    numbers = MODEL.unpack(model.buffer.raw)
    m = dict(zip(MODEL_FIELDS, numbers, strict=False))
    E = m["width"]
    table: Packet = model.kept[0]
    layers = {table.address: len(table.buffer)}.get(m["layers"])
    gate.verify_bytes("linnet_model: layers", m["n_layers"] * LAYER.size, layers)
    needs = {"last": E, "last_bias": E, "embed": m["tokens"] * E, "table": m["limit"] * E}
    _verify("linnet_model", m, {name: n * FLOAT for name, n in needs.items()}, there)
    _verify("linnet_model", m, {"waves": DIGITS * 256 * m["half"] * 2 * DOUBLE}, there)
    for i, name in enumerate(("input", "head")):
        _verify_matrix(f"linnet_model: {name}", numbers[len(MODEL_FIELDS) + 7 * i :][:7], there)
    for i in range(m["n_layers"]):
        _verify_layer(f"linnet_layer {i}", LAYER.unpack_from(table.buffer, i * LAYER.size), E, there)


def _verify_layer(where: str, numbers: tuple[Any, ...], E: int, there: Mapping[int, int]) -> None:
    layer = dict(zip(LAYER_FIELDS, numbers, strict=False))
    taps, channels = layer["taps"], layer["channels"]
    needs = dict.fromkeys(("norm1", "bias1", "norm2", "bias2"), E)
    needs |= {"filter": taps * channels, "filter_bias": channels}
    _verify(where, layer, {name: n * FLOAT for name, n in needs.items()}, there)
    rest = numbers[len(LAYER_FIELDS) :]
    for i, side in enumerate("qk"):
        _verify_map(f"{where}: {side}_map", rest[20 * i : 20 * i + 20], layer["kv_heads"], there)
    mixed = channels if layer["mixer"] == MIXERS["gated_conv"] else layer["heads"] * layer["value"]
    inputs = {"in": E, "out": mixed, "up": E, "down": layer["hidden"]}
    for i, (name, wanted) in enumerate(inputs.items()):
        fields = rest[2 * len(MAP_FIELDS) + 7 * i :][:7]
        _verify_matrix(f"{where}: {name}", fields, there)
        if fields[4] and fields[5] != wanted:
            raise RuntimeError(f"{where}: {name} multiplies {fields[5]} numbers, and it is given {wanted}")


def _verify_map(where: str, numbers: tuple[Any, ...], heads: int, there: Mapping[int, int]) -> None:
    m = dict(zip(MAP_FIELDS, numbers, strict=True))
    sets, kind = heads if m["per_head"] else 1, m["prepare"]
    weight, bias = m["F"], 0
    if kind == PREPARE["norm"]:
        weight = bias = sets * m["D"]
    elif kind in (PREPARE["project"], PREPARE["favor"], PREPARE["fourier"]):
        weight, bias = sets * m["D"] * m["rows"], sets * m["rows"]
    elif kind == PREPARE["taylor_full"]:
        weight = m["order"] + 1
    needs = {"weight": weight * FLOAT, "bias": bias * FLOAT, "index": m["F"] * m["order"] * LONG}
    _verify(where, m, needs, there)


def _verify_matrix(where: str, numbers: tuple[Any, ...], there: Mapping[int, int]) -> None:
    m = dict(zip(MATRIX_FIELDS, numbers, strict=True))
    if not m["out"]:
        return
    padded = m["out"] + -m["out"] % PANEL
    needs = dict.fromkeys(("scale", "sums", "bias"), padded * FLOAT)
    _verify(where, m, needs | {"w": matrix_bytes(m["out"], m["in"], m["kind"])}, there)
    if not m["w"] or (m["kind"] == KINDS["int8"] and not (m["scale"] and m["sums"])):
        raise RuntimeError(f"{where}: w, scale or sums is null, and the kernel reads it")


def _verify(where: str, fields: Mapping[str, Any], needs: Mapping[str, int], there: Mapping[int, int]) -> None:
    for name, need in needs.items():
        if fields[name]:
            gate.verify_bytes(f"{where}: {name}", need, there.get(fields[name]))


def verify_step(
    call: Decode, model: Packet, tensors: Mapping[str, Tensor], caches: list[Tensor], cache_floats: int
) -> None:
    """`tensors`: what the fields of these names point to; `caches`: one for each slot, read by their capacity."""
    lib = library()
    assert lib is not None
    numbers = MODEL.unpack(model.buffer.raw)
    m = dict(zip(MODEL_FIELDS, numbers, strict=False))
    entry, head = (numbers[len(MODEL_FIELDS) + 7 * i :][:7] for i in range(2))
    slots, B = call.count, call.B
    needs = {
        "out": B * head[4] * FLOAT, "states": slots * call.stride * FLOAT, "positions": slots * LONG,
        "cache": slots * LONG, "capacity": slots * LONG, "slots": B * LONG, "tokens": B * LONG,
        "values": B * entry[5] * FLOAT,
        "scratch": int(lib.linnet_decode_scratch(model.address, B, call.threads, call.longest)),
    }  # fmt: skip
    _verify("linnet_decode_step", {name: getattr(call, name) for name in needs}, needs, rooms(tensors.values()))
    row = _state_floats(model, m) * FLOAT
    gate.verify_bytes("linnet_decode_step: a row of states", row, call.stride * FLOAT)
    if m["caches"]:
        for slot in tensors["slots"].tolist():
            where, capacity = f"linnet_decode_step: cache[{slot}]", int(tensors["capacity"][slot])
            there = {gate.address(caches[slot]): gate.room(caches[slot])}.get(int(tensors["cache"][slot]))
            gate.verify_bytes(where, capacity * cache_floats * FLOAT, there)


def _state_floats(model: Packet, m: Mapping[str, Any]) -> int:
    """The floats of a row of states that the layers reach to."""
    most = 0
    for i in range(m["n_layers"]):
        numbers = LAYER.unpack_from(model.kept[0].buffer, i * LAYER.size)
        a = dict(zip(LAYER_FIELDS, numbers, strict=False))
        if a["mixer"] == MIXERS["linear"]:
            size = a["kv_heads"] * a["features"] * (a["value"] + 1) * (1 + a["exact"])
        elif a["mixer"] == MIXERS["window"]:
            size = a["kv_heads"] * -(-a["window"] // BLOCK) * BLOCK * (a["key"] + a["value"])
        elif a["mixer"] in (MIXERS["conv"], MIXERS["gated_conv"]):
            size = (a["taps"] - 1) * a["channels"]
        else:
            continue
        most = max(most, a["state"] + size)
    return most


assert len(MAP_FIELDS) * 8 == MAP.size
assert len(MATRIX_FIELDS) * 8 == MATRIX.size
assert ctypes.sizeof(Decode) == 8 * len(Decode._fields_)
