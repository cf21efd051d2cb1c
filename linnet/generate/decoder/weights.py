"""PackedWeights: pack tensors for the native decoder and keep them alive, since structs hold only addresses.

weights = PackedWeights("int8")
weights.linear(layer.qkv)              a Matrix (native/decode.py) in int8
weights.floats(norm.weight)            the address of a float32 copy; 0 for None
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ...feature_maps import FeatureMap
from ...native.decode_check import rooms
from ...native.gate import address, dense
from ...native.matmul import Packed, pack
from ...native.structs import Map, Matrix
from .feature_map_packing import pack_map
from .options import check_norm


class PackedWeights:
    """`kind` is the dtype of matrices: "float32", "bfloat16" or "int8"; `bytes` is their total size."""

    def __init__(self, kind: str) -> None:
        self.kind, self.bytes = kind, 0
        self._kept: list[Tensor | Packed] = []

    def linear(self, linear: nn.Linear) -> Matrix:
        """Pack weight and bias of a linear layer."""
        return self.matrix(linear.weight, linear.bias)

    def matrix(self, weight: Tensor, bias: Tensor | None, kind: str | None = None) -> Matrix:
        """Pack weight [N,K] and bias [N] as `kind`, by default that of all matrices."""
        packed = pack(weight, bias, kind or self.kind)
        self._kept.append(packed)
        self.bytes += packed.w.numel()
        return packed.struct()

    def stacked(self, *parts: tuple[Tensor, Tensor | None]) -> Matrix:
        """Pack several matrices [N_i,K] and their biases as one, whose outputs follow one another."""
        weights = torch.cat([weight for weight, _ in parts])
        if all(bias is None for _, bias in parts):
            return self.matrix(weights, None)
        biases = [weight.new_zeros(len(weight)) if bias is None else bias for weight, bias in parts]
        return self.matrix(weights, torch.cat(biases))

    def small(self, weight: Tensor, bias: Tensor | None = None) -> Matrix:
        """Pack a small matrix, of low rank for example; never as int8, since its inputs would be rounded as well."""
        return self.matrix(weight, bias, "bfloat16" if self.kind == "int8" else self.kind)

    def maps(self, phi: FeatureMap) -> dict[str, Map]:
        """Return the structs for queries and keys; raise BackendError for a map without a native form."""
        maps = {}
        for side in "qk":
            maps[f"{side}_map"], tensors = pack_map(phi, side)
            self._kept += tensors
        return maps

    def floats(self, x: Tensor | None) -> int:
        """Return the address of a float32 copy."""
        return 0 if x is None else self.keep(dense(x.detach()).clone())

    def norm(self, norm: nn.Module | None, number: int | str) -> dict[str, int]:
        """Return the addresses of a norm's weight and bias as the fields norm1 and bias1, for number 1."""
        if norm is not None:
            check_norm(norm)
        parts: list[Any] = [getattr(norm, name, None) for name in ("weight", "bias")]
        return {f"norm{number}": self.floats(parts[0]), f"bias{number}": self.floats(parts[1])}

    def keep(self, x: Tensor) -> int:
        """Keep a tensor and return its address."""
        self._kept.append(x)
        return address(x)

    @property
    def rooms(self) -> dict[int, int]:
        """Every address in the structs with its size in bytes, for LINNET_CHECK."""
        parts = [(x.w, x.scale, x.sums, x.bias) if isinstance(x, Packed) else (x,) for x in self._kept]
        return rooms(x for part in parts for x in part if x is not None)
