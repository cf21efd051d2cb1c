"""Mamba and Mamba-2 in the native decoder.

Mamba    projection u [C] (through the convolution), z [C]; its state h lies as [N,C], channels side by side
Mamba-2  projection u = v [H,V], b [G,N], c [G,N] (through the convolution), z [H,V], dt [H]
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch

from ....native.decode import DECAYS, GATES
from ....native.gate import CPU
from ....native.structs import Gated, Scan
from ....ops.state import MatrixState
from ..weights import PackedWeights
from .adapter import Memory
from .recurrent import RecurrentAdapter, negative_exp, norm_fields

CONV = frozenset({"proj", "filter", "filter_bias", "dt_bias", "a_log", "skip", "out"})


class MambaAdapter(RecurrentAdapter):
    """Adapter of Mamba: a scan per channel."""

    kind = "scan"
    known = CONV | {"rank", "select", "dt", "select_norm_eps"}

    def fields(self, weights: PackedWeights) -> dict[str, Any]:
        mixer, (channels, numbers, _) = self.mixer, self.mixer.matrix
        a = negative_exp(mixer.a_log).view(channels, numbers)
        scan = Scan(
            numbers=numbers, a=weights.floats(a.T), skip=weights.floats(mixer.skip),
            norm_eps=mixer.select_norm_eps or 0.0,
            select=weights.small(mixer.select.weight), widen=weights.small(mixer.dt.weight, mixer.dt_bias),
        )  # fmt: skip
        sizes = {"past": self.past, **self.conv(weights)}
        return {**sizes, "scan": scan, "in": weights.linear(mixer.proj), "out": weights.linear(mixer.out)}

    def get(self, memory: Memory, seen: int) -> MatrixState:
        channels, numbers, _ = self.mixer.matrix
        x = super().get(memory, seen).x
        h = memory.state[: channels * numbers].view(numbers, channels)
        return MatrixState(h.T.contiguous()[None, ..., None], x)

    def put(self, memory: Memory, seen: int, state: MatrixState) -> None:
        super().put(memory, seen, state)
        memory.state[: prod(self.mixer.matrix)] = state.s[0, ..., 0].T.reshape(-1)


class Mamba2Adapter(RecurrentAdapter):
    """Adapter of Mamba2: a decay per head, chosen by the token, and a norm over all heads of a group."""

    kind = "gated"
    known = CONV | {"n_groups", "dt_limit", "widths", "norm"}

    def fields(self, weights: PackedWeights) -> dict[str, Any]:
        mixer, (width, channels, _) = self.mixer, self.mixer.widths
        group = mixer.n_groups * mixer.matrix[1]
        least, most = mixer.dt_limit or (0.0, float("inf"))
        gated = Gated(
            groups=mixer.n_groups, q=width + group, k=width, v=0, gate=channels, beta=-1, step=channels + width,
            decay=DECAYS["step"], gating=GATES["silu"], joint=mixer.n_groups, scaled_values=True, scale=1.0,
            rate=weights.floats(negative_exp(mixer.a_log)), step_bias=weights.floats(mixer.dt_bias),
            skip=weights.floats(mixer.skip), least=least, most=most, **norm_fields(weights, mixer.norm),
        )  # fmt: skip
        z, u, dt = torch.arange(sum(mixer.widths), device=CPU).split(mixer.widths)
        order = torch.cat([u, z, dt])  # the channels of the convolution first
        weight, bias = mixer.proj.weight, mixer.proj.bias
        projection = weights.matrix(weight[order], None if bias is None else bias[order])
        sizes = self.heads() | self.conv(weights)
        return {**sizes, "gated": gated, "in": projection, "out": weights.linear(mixer.out)}
