"""The limits of a decoding step on this machine: reading its weights once, and multiplying by them.

    read    bytes of all matrices / the bandwidth of reading a buffer of that size, the fastest of several methods
    sgemm   2 W B flops / the rate of a 1024 x 1024 x 1024 product; also timed: the matrices of a step alone

All take turns with the competitors, so other programs slow the limits down as well.
B streams, W weights of all matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...models import ImageModel
from ...native.gate import address
from ...native.library import library
from ...native.matmul import Packed, matmul, pack
from . import timing
from .checks import cores
from .decode_torch import matrices, matrix

ITEM_BYTES = {"float32": 4, "bfloat16": 2, "int8": 1}
SGEMM, ALONE, TORCH = "sgemm", "projections ", "projections torch"


def weights_of(model: ImageModel) -> int:
    return sum(layer.weight.numel() for layer in matrices(model))


def calls(model: ImageModel, batch: int, kinds: tuple[str, ...]) -> dict[str, Callable[[], Any]]:
    """Return what to time: a product of square matrices, the matrices of a step alone, and reads for each dtype."""
    timed: dict[str, Callable[[], Any]] = {SGEMM: timing.sgemm(), TORCH: products(model, batch)}
    timed |= {f"{ALONE}linnet {kind}": call for kind, call in native_products(model, batch, kinds).items()}
    for kind in kinds:
        timed |= {f"read {kind} {how}": call for how, call in readers(weights_of(model) * ITEM_BYTES[kind]).items()}
    return timed


def readers(size: int) -> dict[str, Callable[[], Any]]:
    """Return methods that read a buffer of `size` bytes once: with torch, and in native code."""
    x, sink, lib = torch.ones(max(1, size // 4)), torch.empty(cores()), library()
    methods: dict[str, Callable[[], Any]] = {"sum": x.sum, "dot": partial(torch.dot, x, x)}
    if lib is not None:
        read = lib.linnet_read
        methods["native"] = lambda: read(address(x), 4 * x.numel(), torch.get_num_threads(), address(sink))
    return methods


def products(model: ImageModel, batch: int) -> Callable[[], None]:
    """Return the products of all matrices of a step with `batch` vectors, and nothing else."""
    pairs = [(matrix(layer, batch), torch.randn(batch, layer.in_features)) for layer in matrices(model)]

    @torch.inference_mode()
    def run() -> None:
        for one, x in pairs:
            one(x)

    return run


def native_products(model: ImageModel, batch: int, kinds: tuple[str, ...]) -> dict[str, Callable[[], Any]]:
    """Return the same with native matrices, for each dtype of the weights; none without the library."""
    if library() is None:
        return {}
    given = [(layer.weight, layer.bias, torch.randn(batch, layer.in_features)) for layer in matrices(model)]

    def run(pairs: list[tuple[Packed, Tensor]]) -> None:
        for packed, x in pairs:
            matmul(packed, x)

    return {kind: partial(run, [(pack(w, b, kind), x) for w, b, x in given]) for kind in kinds}


def reached(
    times: Mapping[str, dict[str, Any]], model: ImageModel, batch: int, kinds: tuple[str, ...]
) -> dict[str, Any]:
    """Return sgemm, projections and reads of a row, from the times of `calls`."""
    size = weights_of(model)
    rate = timing.sgemm_rate(times[SGEMM]["min_s"])
    alone = {name.removeprefix(ALONE): one for name, one in times.items() if name.startswith(ALONE)}
    share = 100 * 2.0 * size * batch / rate
    reads = {kind: bandwidth(times, kind, size * ITEM_BYTES[kind]) for kind in kinds}
    projections = {name: one | {"sgemm_percent": share / one["min_s"]} for name, one in alone.items()}
    return {"sgemm": times[SGEMM] | {"gflops": rate / 1e9}, "projections": projections, "reads": reads}


def bandwidth(times: Mapping[str, dict[str, Any]], kind: str, size: int) -> dict[str, Any]:
    start = f"read {kind} "
    seconds = {name.removeprefix(start): one["min_s"] for name, one in times.items() if name.startswith(start)}
    ways = {how: size / s / 1e9 for how, s in seconds.items()}
    return {"bytes": size, "min_s": min(seconds.values()), "gb_per_s": max(ways.values()), "ways": ways}
