"""Weights packed once, then multiplied by a few vectors at a time:  y = W x + b,  for decoding.

    float32   [panel][k][32 outputs]
    bfloat16  [panel][k][16 words], output j in the low half and output j + 16 in the high half of word j
    int8      [panel][k / 4][32 outputs][4 k];  W = scale[o] * integer,  scale = max|W[o]| / 127

The layout is the same on every instruction set (csrc/matmul.h). int8 rounds x too, to integers times max|x| / 127 of
its row, and adds the products of integers exactly; a row with an infinity or a NaN in it becomes NaN.
A row of y is the same bits alone, in any batch and on any number of threads. B rows of x, K inputs, N outputs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from . import gate, structs
from .call import Function
from .memory import fresh

PANEL = 32
KINDS = {"float32": 0, "bfloat16": 1, "int8": 2}
MATMUL = Function(structs.Matmul)
MOST_INT8 = (2**31 - 1) // 127**2  # inputs of an int8 matrix: more could overflow a sum


@dataclass(frozen=True)
class Packed:
    """A packed matrix; its fields keep the memory alive that `struct` points to."""

    w: Tensor  # bytes, 64-byte aligned
    scale: Tensor | None  # int8: [N padded] float32
    sums: Tensor | None  # int8: [N padded] int32, the sums of the integers of each row
    bias: Tensor | None  # [N padded] float32
    outputs: int
    inputs: int
    kind: str

    def struct(self) -> structs.Matrix:
        """Return the struct that points to this matrix."""
        if gate.CHECK:
            self.verify()
        w, scale, sums, bias = gate.addresses((self.w, self.scale, self.sums, self.bias))
        sizes = {"out": self.outputs, "in": self.inputs, "kind": KINDS[self.kind]}
        return structs.Matrix(w=w, scale=scale, sums=sums, bias=bias, **sizes)

    def verify(self) -> None:
        """For LINNET_CHECK: every tensor is as long as the kernels read it."""
        padded = self.outputs + -self.outputs % PANEL
        gate.verify("matrix: w", self.w, (matrix_bytes(self.outputs, self.inputs, KINDS[self.kind]),), torch.uint8)
        gate.verify("matrix: scale", self.scale, (padded,))
        gate.verify("matrix: sums", self.sums, (padded,), torch.int32)
        gate.verify("matrix: bias", self.bias, (padded,))


def matrix_bytes(outputs: int, inputs: int, kind: int) -> int:
    """Return the size of the packed weights: see the layouts above."""
    padded, item = outputs + -outputs % PANEL, (4, 2, 1)[kind]
    return padded * (inputs + -inputs % 4 if kind == KINDS["int8"] else inputs) * item


def pack(weight: Tensor, bias: Tensor | None = None, kind: str = "float32") -> Packed:
    """Pack weight [N,K] and bias [N] in the layout of `kind`."""
    if kind not in KINDS:
        raise ValueError(f"unknown kind of weights {kind!r}; accepted: {', '.join(KINDS)}")
    if weight.ndim != 2 or 0 in weight.shape or not weight.is_floating_point():
        raise ValueError(f"weight must be floats of shape [N,K], not {weight.dtype} {tuple(weight.shape)}")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(
            f"bias must have shape {tuple(weight.shape[:1])} like the rows of weight, not {tuple(bias.shape)}"
        )
    N, K = weight.shape
    if kind == "int8" and K > MOST_INT8:
        raise ValueError(f"int8 weights take at most {MOST_INT8} inputs, not {K}; pack them as bfloat16")
    if kind == "int8" and not weight.isfinite().all():
        raise ValueError("int8 weights must be finite, and these hold an infinity or a NaN; pack them as float32")
    w = _pad(gate.dense(weight.detach().to("cpu")), PANEL)  # [N',K]
    padded_bias = None if bias is None else _pad(gate.dense(bias.detach().to("cpu")), PANEL).clone()
    if kind == "int8":
        w, scale, sums = _integers(w)
        return Packed(_aligned(_int8_panels(w)), scale, sums, padded_bias, N, K, kind)
    panels = w.view(-1, PANEL, K).transpose(1, 2)  # [panel,K,32]
    if kind == "bfloat16":
        panels = panels.bfloat16().unflatten(2, (2, 16)).transpose(2, 3)  # [panel,K,16,2]
    return Packed(_aligned(panels), None, None, padded_bias, N, K, kind)


def unpack(packed: Packed) -> Tensor:
    """Return the weights [N,K] in float32 that the packed ones stand for."""
    N, K = packed.outputs, packed.inputs
    if packed.kind == "int8":
        w = packed.w.view(torch.int8).view(-1, (K + 3) // 4, PANEL, 4).transpose(1, 2).flatten(2).flatten(0, 1)
        assert packed.scale is not None
        return w[:N, :K] * packed.scale[:N, None]
    if packed.kind == "bfloat16":
        panels = packed.w.view(torch.bfloat16).view(-1, K, 16, 2).transpose(2, 3).flatten(2)
    else:
        panels = packed.w.view(torch.float32).view(-1, K, PANEL)
    return panels.transpose(1, 2).reshape(-1, K)[:N].float()


def matmul(packed: Packed, x: Tensor, threads: int | None = None) -> Tensor:
    """Return [B,N] for x [B,K] float32 on the cpu; on torch's number of threads unless `threads` is given."""
    if x.ndim != 2 or x.shape[1] != packed.inputs or x.dtype != torch.float32 or x.device.type != "cpu":
        raise ValueError(
            f"x must be float32 [B,{packed.inputs}] on the cpu, not {x.dtype} {tuple(x.shape)} on {x.device.type}"
        )
    x, y = gate.dense(x), fresh(x.shape[0], packed.outputs)
    if not len(x):
        return y
    MATMUL.call(y=y, x=x, matrix=packed.struct(), rows=len(x), threads=threads or torch.get_num_threads())
    return y


def _pad(t: Tensor, multiple: int, dim: int = 0) -> Tensor:
    missing = -t.shape[dim] % multiple
    if not missing:
        return t
    shape = list(t.shape)
    shape[dim] = missing
    return torch.cat([t, t.new_zeros(shape)], dim)


def _integers(w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return w [N',K] as integers of -127 to 127, scale [N'], sums of the integers [N']; rows of zeros have scale 0."""
    scale = w.abs().amax(1) / 127
    near = torch.where(scale[:, None] > 0, w / scale[:, None], 0.0).round().clamp(-127, 127)
    return near.to(torch.int8), scale, near.to(torch.int32).sum(1, dtype=torch.int32)


def _int8_panels(w: Tensor) -> Tensor:
    return _pad(w, 4, 1).view(w.shape[0] // PANEL, PANEL, -1, 4).transpose(1, 2)  # [panel,K/4,32,4]


def _aligned(t: Tensor) -> Tensor:
    """Return the bytes of t, in order, on a 64-byte boundary."""
    raw = t.contiguous().view(-1).view(torch.uint8)
    out = gate.aligned(raw.numel())
    out.copy_(raw)
    return out
