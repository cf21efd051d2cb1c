"""For LINNET_CHECK: verify that the structs of a packed model, and a step of it, point to as many bytes as are read.

    verify_model(model, layers, rooms)   every address in a Model, its layers, maps and matrices (structs.py)
    verify_step(call, ...)               every address of a step, and that of each cache it will read

An address must be the beginning of one of the tensors that are kept for it. Slots, tokens and positions are compared
with these sizes by the library itself before every step.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence

from torch import Tensor

from . import gate
from .decode import DECAYS, DIGITS, MIXERS, PREPARE
from .library import library
from .matmul import KINDS, PANEL, matrix_bytes
from .structs import Decode, Layer, Map, Matrix, Model

FLOAT, DOUBLE, LONG = 4, 8, 8


def rooms(tensors: Iterable[Tensor]) -> dict[int, int]:
    """Return the address of each tensor and how many bytes there are from it on."""
    return {gate.address(x): gate.room(x) for x in tensors}


def verify_model(model: Model, layers: ctypes.Array[Layer], there: Mapping[int, int]) -> None:
    """Raise RuntimeError with the field, the bytes needed and those there, unless every address of a model holds."""
    E = model.width
    table = {ctypes.addressof(layers): ctypes.sizeof(layers)}.get(model.layers)
    gate.verify_bytes("linnet_model: layers", model.n_layers * ctypes.sizeof(Layer), table)
    needs = {"last": E, "last_bias": E, "embed": model.tokens * E, "table": model.limit * E}
    _verify("linnet_model", model, {name: n * FLOAT for name, n in needs.items()}, there)
    _verify("linnet_model", model, {"waves": DIGITS * 256 * model.half * 2 * DOUBLE}, there)
    for name in ("input", "head"):
        _verify_matrix(f"linnet_model: {name}", getattr(model, name), there)
    for i, layer in enumerate(layers):
        _verify_layer(f"linnet_layer {i}", layer, E, there)


def _verify_layer(where: str, layer: Layer, E: int, there: Mapping[int, int]) -> None:
    needs = dict.fromkeys(("norm1", "bias1", "norm2", "bias2"), E)
    needs |= {"filter": layer.kernel_size * layer.channels, "filter_bias": layer.channels}
    needs |= dict.fromkeys(("q_norm", "k_norm"), layer.key)
    _verify(where, layer, {name: n * FLOAT for name, n in needs.items()}, there)
    for name in ("q_map", "k_map"):
        _verify_map(f"{where}: {name}", getattr(layer, name), layer.kv_heads, there)
    mixed = layer.heads * layer.value or layer.channels
    _verify_matrices(where, layer, {"in": E, "out": mixed, "up": E, "down": layer.hidden}, there)
    _verify_gated(f"{where}: gated", layer, there)
    _verify_rwkv(f"{where}: rwkv", layer, E, there)
    _verify_scan(f"{where}: scan", layer, there)


def _verify_gated(where: str, layer: Layer, there: Mapping[int, int]) -> None:
    g, H, D, V = layer.gated, layer.heads, layer.key, layer.value
    steps = H * D if g.decay == DECAYS["channel_step"] else H
    needs = {"rate": H, "step_bias": steps, "skip": H} | dict.fromkeys(("norm_weight", "norm_bias"), V)
    needs |= {"norm_weight": H * V} if g.joint else {}
    _verify(where, g, {name: n * FLOAT for name, n in needs.items()}, there)
    _verify_matrices(where, g, {"widen": None, "widen_gate": None}, there)


def _verify_rwkv(where: str, layer: Layer, E: int, there: Mapping[int, int]) -> None:
    w, keys, values = layer.rwkv, layer.heads * layer.key, layer.heads * layer.value
    of_heads = layer.mixer == MIXERS["wkv7"]
    mixtures = (1 + (w.k.out > 0)) if layer.mixer == MIXERS["channel_mix"] else 6 if of_heads else 3
    needs = {"shift": mixtures * E, "decay": E, "bonus": keys if of_heads else E}
    needs |= dict.fromkeys(("remove", "replace"), keys) | dict.fromkeys(("norm_weight", "norm_bias"), values)
    _verify(where, w, {name: n * FLOAT for name, n in needs.items()}, there)
    narrow: dict[str, int | None] = {f"{name}_out": getattr(w, f"{name}_in").out for name in ("decay", "rate", "gate")}
    narrow |= {"value_out": w.v.out - values}
    _verify_matrices(where, w, dict.fromkeys(("k", "v", "decay_in", "rate_in", "gate_in"), E) | narrow, there)


def _verify_scan(where: str, layer: Layer, there: Mapping[int, int]) -> None:
    scan, C = layer.scan, layer.channels
    _verify(where, scan, {"a": scan.numbers * C * FLOAT, "skip": C * FLOAT}, there)
    _verify_matrices(where, scan, {"select": C, "widen": scan.select.out - 2 * scan.numbers}, there)


def _verify_matrices(
    where: str, fields: ctypes.Structure, inputs: Mapping[str, int | None], there: Mapping[int, int]
) -> None:
    """Verify matrices by name, with how many numbers each multiplies; None: any number."""
    for name, wanted in inputs.items():
        matrix = getattr(fields, name)
        _verify_matrix(f"{where}: {name}", matrix, there)
        given = getattr(matrix, "in")
        if matrix.out and wanted is not None and given != wanted:
            raise RuntimeError(f"{where}: {name} multiplies {given} numbers, and it is given {wanted}")


def _verify_map(where: str, m: Map, heads: int, there: Mapping[int, int]) -> None:
    sets, weight, bias = heads if m.per_head else 1, m.F, 0
    if m.prepare == PREPARE["norm"]:
        weight = bias = sets * m.D
    elif m.prepare in (PREPARE["project"], PREPARE["favor"], PREPARE["fourier"]):
        weight, bias = sets * m.D * m.rows, sets * m.rows
    elif m.prepare == PREPARE["taylor_full"]:
        weight = m.order + 1
    _verify(where, m, {"weight": weight * FLOAT, "bias": bias * FLOAT, "index": m.F * m.order * LONG}, there)


def _verify_matrix(where: str, m: Matrix, there: Mapping[int, int]) -> None:
    if not m.out:
        return
    padded = m.out + -m.out % PANEL
    needs = dict.fromkeys(("scale", "sums", "bias"), padded * FLOAT)
    _verify(where, m, needs | {"w": matrix_bytes(m.out, getattr(m, "in"), m.kind)}, there)
    if not m.w or (m.kind == KINDS["int8"] and not (m.scale and m.sums)):
        raise RuntimeError(f"{where}: w, scale or sums is null, and the kernel reads it")


def _verify(where: str, fields: ctypes.Structure, needs: Mapping[str, int], there: Mapping[int, int]) -> None:
    for name, need in needs.items():
        at = getattr(fields, name)
        if at:
            gate.verify_bytes(f"{where}: {name}", need, there.get(at))


def verify_step(
    call: Decode,
    model: Model,
    tensors: Mapping[str, Tensor],
    caches: Sequence[Tensor],
    state_floats: int,
    cache_floats: int,
) -> None:
    """Raise RuntimeError unless a step stays inside its memory.

    tensors: what the fields of these names point to; caches: one for each slot, read up to their capacity;
    state_floats, cache_floats: of one row, and of one cached token.
    """
    lib = library()
    assert lib is not None
    slots, B = call.count, call.B
    needs = {
        "out": B * model.head.out * FLOAT, "states": slots * call.stride * FLOAT, "positions": slots * LONG,
        "cache": slots * LONG, "capacity": slots * LONG, "slots": B * LONG, "tokens": B * LONG,
        "values": B * getattr(model.input, "in") * FLOAT,
        "scratch": int(lib.linnet_decode_scratch(model, B, call.threads, call.longest)),
    }  # fmt: skip
    _verify("linnet_decode_step", call, needs, rooms(tensors.values()))
    gate.verify_bytes("linnet_decode_step: a row of states", state_floats * FLOAT, call.stride * FLOAT)
    for slot in tensors["slots"].tolist() if cache_floats else ():
        where, capacity = f"linnet_decode_step: cache[{slot}]", int(tensors["capacity"][slot])
        there = {gate.address(caches[slot]): gate.room(caches[slot])}.get(int(tensors["cache"][slot]))
        gate.verify_bytes(where, capacity * cache_floats * FLOAT, there)
