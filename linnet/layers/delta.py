"""Delta-rule mixers: a token overwrites the value stored under its key, instead of only adding to it.

    q, k, v = silu(conv(W_qkv x)),   q, k -> q / |q|, k / |k|,   b = sigmoid(W_b x)
    S_t = (I - b_t k_t k_t^T) Diag(a_t) S_{t-1} + b_t k_t v_t^T,   y_t = W_o norm(S_t^T q_t)

delta        a = 1                                    Yang et al. 2024 (DeltaNet), arXiv:2406.06484
gated_delta  a_t = exp(-A softplus(W_a x + dt_bias)), and norm(.) * silu(W_g x)   Yang et al. 2024, arXiv:2412.06464
kda          a_t for every key channel, with W_a of low rank, and norm(.) * sigmoid(W_g x + b_g), W_g of low rank too
             (Kimi Delta Attention)                   Kimi team 2025, arXiv:2510.26692
The q that reads is q / |q| times `scale`, 1 / sqrt(D) unless given, as in flash-linear-attention and Qwen3-Next.
One RMS norm for the values of a head, shared by the heads. State: S [B,H,D,V] and the last inputs of the convolution.
B batch, T time, E model width, H heads, D = key_dim, V = head_dim, N = 2 key_heads D + H V channels, K taps
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import silu, softplus

from ..errors import whole
from ..feature_maps.common import positive_float
from ..ops.checks import check_scale
from ..ops.conv.short_conv import short_conv
from ..ops.fused.norm import rms_norm
from ..ops.gated.delta import delta_rule
from ..ops.state import ConvState, MatrixState
from .attention import head_width
from .mamba import dt_start, rate_start
from .matrix import MatrixMixer, divided, expand_groups, only_causal
from .norm import RMSNorm


class Delta(MatrixMixer):
    """DeltaNet. `conv`: taps of the convolution, 0 for none. `negative`: b up to 2, which reflects values.

    `gate`: the output is multiplied by silu(W_g x). `key_heads`: fewer heads of q and k than of v; each serves
    n_heads / key_heads of them, one after the other. `conv_bias`: one number per channel added by the convolution.
    `scale`: on q, None for 1 / sqrt(key_dim). `norm_eps`: of the norm after reading. `qk_eps`: added to |q|^2, |k|^2.
    """

    name = "delta"
    extra = 0  # numbers per head that a subclass takes from the projection besides q, k, v and b

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
        conv: int = 4,
        negative: bool = False,
        gate: bool = False,
        key_heads: int | None = None,
        conv_bias: bool = False,
        scale: float | None = None,
        norm_eps: float = 1e-5,
        qk_eps: float = 1e-6,
    ) -> None:
        only_causal(self.name, causal, n_heads, n_kv_heads)
        positive_float("norm_eps", norm_eps)
        positive_float("qk_eps", qk_eps)
        whole("conv", conv, 0, hint="it is the number of tokens a filter spans, 0 for no convolution")
        values = head_dim or head_width(d_model, n_heads)
        keys = key_dim or values
        shared = divided(n_heads, "key_heads", key_heads)
        channels = 2 * shared * keys + n_heads * values
        super().__init__((n_heads, keys, values), (conv - 1, channels) if conv else (0, 0))
        self.top, self.gate, self.key_heads = 2.0 if negative else 1.0, gate, shared
        self.scale, self.qk_eps = check_scale(scale, keys), qk_eps
        self.widths = (channels, n_heads, self.extra * n_heads, n_heads * values if gate else 0)
        self.proj = nn.Linear(d_model, sum(self.widths), bias=bias)  # one product for all
        bound = max(conv, 1) ** -0.5  # as torch.nn.Conv1d begins
        self.filter = nn.Parameter(torch.empty(channels, conv).uniform_(-bound, bound)) if conv else None
        self.filter_bias = nn.Parameter(torch.empty(channels).uniform_(-bound, bound)) if conv and conv_bias else None
        self.norm = RMSNorm(values, eps=norm_eps)
        self.out = nn.Linear(n_heads * values, d_model, bias=bias)

    def mix(self, x: Tensor, state: MatrixState, mask: Tensor | None) -> tuple[Tensor, MatrixState]:
        given, gate, past = self._inputs(x, state, mask)
        out, new = delta_rule(*given, **self.how(state, mask))
        assert new is not None
        y = self.norm(out).flatten(2)
        return self.out(y if gate is None else y * gate), MatrixState(new.s, past)

    def attention_map(self, x: Tensor) -> Tensor:
        """[B,H,T,T]: the share of the value v_j in S_t^T q_t, from one triangular solve with unit vectors as values."""
        B, T, _ = x.shape
        (q, k, v, beta, decay), _, _ = self._inputs(x, self.empty_state(B, device=x.device, dtype=x.dtype), None)
        units = torch.eye(T, dtype=v.dtype, device=v.device)[None, :, None].expand(B, T, v.shape[2], T)
        weights, _ = delta_rule(q, k, units, beta, decay, form="parallel")  # [B,T,H,T]
        return weights.transpose(1, 2)

    def _inputs(
        self, x: Tensor, state: MatrixState, mask: Tensor | None
    ) -> tuple[tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None], Tensor | None, Tensor]:
        """Return q, k, v, beta and decay for the op, the output gate, and the newest inputs of the convolution."""
        x = x if mask is None else x.masked_fill(~mask[..., None], 0.0)
        u, b, extra, gate = self.proj(x).split(self.widths, dim=-1)
        u, past = self._look_back(u, state.x, mask)
        heads, keys, values = self.matrix
        both, v = silu(u).split([2 * self.key_heads * keys, heads * values], dim=-1)
        length, eps = both.new_full((keys,), keys**-0.5), self.qk_eps / keys
        q, k = rms_norm(both.unflatten(-1, (-1, keys)), length, eps).chunk(2, dim=-2)  # x / sqrt(|x|^2 + qk_eps)
        q = q if self.scale == 1.0 else q * self.scale
        q, k = (expand_groups(y, heads) for y in (q, k))
        given = q, k, v.unflatten(-1, (-1, values)), self.top * b.sigmoid(), self.decay(x, extra)
        return given, self.output_gate(x, gate), past

    def _look_back(self, u: Tensor, past: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        if self.filter is None:
            return u, past
        kept = ConvState(past.to(u.dtype))
        u, new = short_conv(u, self.filter, self.filter_bias, initial_state=kept, output_final_state=True, mask=mask)
        assert new is not None
        return u, new.x.to(past.dtype)

    def decay(self, x: Tensor, extra: Tensor) -> Tensor | None:
        """Return log a [B,T,H] or [B,T,H,D] from x [B,T,E] or from its projection [B,T,extra H]; None for a = 1."""
        return None

    def output_gate(self, x: Tensor, projected: Tensor) -> Tensor | None:
        """Return the factors of the output [B,T,H V] from x or from its projection; None for no gate."""
        return silu(projected) if self.gate else None


class GatedDelta(Delta):
    """Gated DeltaNet: the state also decays, by a factor per head and token, and the output has a gate."""

    name = "gated_delta"
    extra = 1

    def __init__(self, d_model: int, n_heads: int, *, gate: bool = True, **options: Any) -> None:
        super().__init__(d_model, n_heads, gate=gate, **options)
        self.dt_bias = nn.Parameter(dt_start(n_heads))
        self.a_log = nn.Parameter(rate_start(n_heads))

    def decay(self, x: Tensor, extra: Tensor) -> Tensor:
        wide = torch.promote_types(extra.dtype, torch.float32)
        return -self.a_log.exp() * softplus(extra.to(wide) + self.dt_bias)


class KDA(Delta):
    """Kimi Delta Attention: every key channel of the state decays by its own factor, which the token sets.

    `rank`: numbers between the two matrices of the decay, and of the gate; as many as values of a head unless given.
    """

    name = "kda"

    def __init__(
        self, d_model: int, n_heads: int, *, rank: int | None = None, gate: bool = True, **options: Any
    ) -> None:
        super().__init__(d_model, n_heads, gate=False, **options)
        heads, keys, values = self.matrix
        rank = values if rank is None else whole("rank", rank, 1)
        self.narrow = nn.Linear(d_model, rank, bias=False)
        self.widen = nn.Linear(rank, heads * keys, bias=False)
        self.dt_bias = nn.Parameter(dt_start(heads * keys))
        self.a_log = nn.Parameter(rate_start(heads))
        self.gate = gate
        self.narrow_gate = nn.Linear(d_model, rank, bias=False) if gate else None
        self.widen_gate = nn.Linear(rank, heads * values) if gate else None  # its bias is part of the definition

    def decay(self, x: Tensor, extra: Tensor) -> Tensor:
        steps = self.widen(self.narrow(x))
        wide = torch.promote_types(steps.dtype, torch.float32)
        steps = softplus(steps.to(wide) + self.dt_bias).unflatten(-1, (self.matrix[0], -1))  # [B,T,H,D]
        return -self.a_log.exp()[:, None] * steps

    def output_gate(self, x: Tensor, projected: Tensor) -> Tensor | None:
        if self.narrow_gate is None or self.widen_gate is None:
            return None
        gate: Tensor = self.widen_gate(self.narrow_gate(x))
        return gate.sigmoid()
