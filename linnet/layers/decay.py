"""Mixers with a decaying state: linear attention without a normalizer, then a norm and a gate on the output.

    S_t = Diag(a_t) S_{t-1} + k_t v_t^T,   y_t = W_o( norm(S_t^T q_t / sqrt(D)) * silu(W_g x_t) ),   q, k, v = W_qkv x

retnet  a = 1 - 2^(-5-h), fixed for head h = 0, 1, ...; layer norm            Sun et al. 2023, arXiv:2307.08621
gla     a_t = sigmoid(W_2 W_1 x_t + b)^(1/16), one per key channel; RMS norm  Yang et al. 2024, arXiv:2312.06635
The norm is over the values of each head, with one gain for all heads. RetNet's rotation of q and k is an option,
`rotary` (as in flash-linear-attention: the frequencies of rotary positions, without xPos), since the decay already
encodes the order. The papers' keys are half as wide as their values; here both are equally wide unless
`key_dim` says otherwise. RetNet's code has an RMS norm where its paper has a group norm: `norm="rms"`.
State: S [B,H,D,V] alone.
B batch, T time, E model width, H heads, D = key_dim, V = head_dim
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from math import log1p
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from ..errors import ArgumentError, whole
from ..feature_maps.common import positive_float
from ..ops.checks import check_scale
from ..ops.fused.gate import gate as silu_gate
from ..ops.fused.projection import rotate_heads
from ..ops.gated.decay import decayed_attention
from ..ops.state import MatrixState
from .attention import head_width
from .matrix import MatrixMixer, only_causal
from .norm import build_norm
from .positions import BASE, Rotary, Rotation


class Decayed(MatrixMixer):
    """Everything but the decay. `gate`: multiply by silu(W_g x) before the last projection.

    `norm`: "layer" or "rms", each mixer's own unless given, with `norm_eps`. `scale`: on q, None for 1 / sqrt(key_dim).
    """

    name: str
    norm_name: str

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        n_kv_heads: int | None = None,
        head_dim: int | None = None,
        key_dim: int | None = None,
        causal: bool = True,
        bias: bool = True,
        gate: bool = True,
        norm: str | None = None,
        norm_eps: float = 1e-5,
        scale: float | None = None,
    ) -> None:
        only_causal(self.name, causal, n_heads, n_kv_heads)
        positive_float("norm_eps", norm_eps)
        values = head_dim or head_width(d_model, n_heads)
        keys = key_dim or values
        super().__init__((n_heads, keys, values))
        self.gate, self.scale = gate, check_scale(scale, keys)
        self.widths = (n_heads * keys, n_heads * keys, n_heads * values, n_heads * values if gate else 0)
        self.proj = nn.Linear(d_model, sum(self.widths), bias=bias)  # one product for all
        self.norm = build_norm(norm or self.norm_name, values, norm_eps)
        self.out = nn.Linear(n_heads * values, d_model, bias=bias)

    @abstractmethod
    def decay(self, x: Tensor) -> Tensor:
        """x [B,T,E] -> log a [1,T,H] or [B,T,H,D], float32 or wider."""

    def mix(
        self, x: Tensor, state: MatrixState, mask: Tensor | None, turn: Rotation | None = None
    ) -> tuple[Tensor, MatrixState]:
        x = x if mask is None else x.masked_fill(~mask[..., None], 0.0)
        q, k, v, gate = self._inputs(x, turn)
        out, new = decayed_attention(q, k, v, self.decay(x), **self.how(state, mask))
        assert new is not None
        y = self.norm(out).flatten(2)
        return self.out(silu_gate(y, gate) if self.gate else y), MatrixState(new.s, state.x)

    def attention_map(self, x: Tensor) -> Tensor:
        """[B,H,T,T]: the share of the value v_j in S_t^T q_t, before norm and gate."""
        q, k, v, _ = self._inputs(x, self.turns.of(x, None, self.rotary_width) if self.rotary_width else None)
        T = x.shape[1]
        units = torch.eye(T, dtype=v.dtype, device=v.device)[None, :, None].expand(*v.shape[:3], T)  # values
        return decayed_attention(q, k, units, self.decay(x))[0].transpose(1, 2)

    def _inputs(self, x: Tensor, turn: Rotation | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return q, k [B,T,H,D], v [B,T,H,V] for the op, and the input of the gate [B,T,HV]."""
        q, k, v, gate = self.proj(x).split(self.widths, dim=-1)
        _, keys, values = self.matrix
        q, k = q.unflatten(-1, (-1, keys)), k.unflatten(-1, (-1, keys))
        if turn is not None:
            q, k = rotate_heads(q, turn), rotate_heads(k, turn)
        return q * self.scale, k, v.unflatten(-1, (-1, values)), gate


class RetNet(Decayed):
    """Retention: every head decays at a fixed rate, the first over about 32 tokens, each next one over twice that.

    `rotary`: q and k are turned to their positions first, with the base of the model's rotary positions.
    """

    name, norm_name = "retnet", "layer"

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        rotary: bool = False,
        rotary_base: float = BASE,
        rotary_scaling: Mapping[str, Any] | None = None,
        rotary_fraction: float | None = None,
        **common: Any,
    ) -> None:
        super().__init__(d_model, n_heads, **common)
        if not isinstance(rotary, bool):
            raise ArgumentError("rotary", rotary, "true or false")
        self.rotary = rotary
        self.turns = Rotary(rotary_base, rotary_scaling, rotary_fraction)
        if rotary and self.matrix[1] % 2:
            raise ValueError(f"rotary turns pairs of numbers, but key_dim is {self.matrix[1]}; use an even one")

    @property
    def rotary_width(self) -> int:
        return self.matrix[1] if self.rotary else 0

    def decay(self, x: Tensor) -> Tensor:
        rates = [log1p(-(2.0 ** (-5 - h))) for h in range(self.matrix[0])]
        wide = torch.promote_types(x.dtype, torch.float32)
        return torch.tensor(rates, dtype=wide, device=x.device).expand(1, x.shape[1], -1)


class GLA(Decayed):
    """Gated linear attention: the token sets the decay of each key channel, through a projection of low `rank`.

    The sigmoid of the gate is raised to the power 1 / `gate_normalizer`: its initial value, one half, becomes 0.96.
    """

    name, norm_name = "gla", "rms"

    def __init__(
        self, d_model: int, n_heads: int, *, rank: int = 16, gate_normalizer: float = 16, **common: Any
    ) -> None:
        super().__init__(d_model, n_heads, **common)
        positive_float("gate_normalizer", gate_normalizer)
        self.gate_normalizer = gate_normalizer
        whole("rank", rank, 1)
        self.narrow = nn.Linear(d_model, rank, bias=False)
        self.widen = nn.Linear(rank, self.widths[1])  # its bias is part of the definition, independent of `bias`

    def decay(self, x: Tensor) -> Tensor:
        gates = self.widen(self.narrow(x))
        wide = torch.promote_types(gates.dtype, torch.float32)
        return logsigmoid(gates.to(wide)).unflatten(-1, (self.matrix[0], -1)) / self.gate_normalizer
