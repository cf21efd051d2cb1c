"""Mamba-2: a short convolution, then a state that decays by one factor per head, chosen by the token.

    z, u, dt = W_in x;   v, b, c = silu(conv4(u));   dt = softplus(dt + dt_bias);   a_t = exp(-exp(a_log) dt_t)
    S_t = a_t S_{t-1} + b_t (dt_t v_t)^T,   y_t = W_out norm( (S_t^T c_t + skip v_t) * silu(z_t) )

Dao & Gu 2024 (state-space duality), arXiv:2405.21060. All heads of a group share b and c, and the RMS norm is over all
of them together; one group unless `n_groups` says otherwise. As in Mamba, dt begins evenly spread in its logarithm from
0.001 to 0.1; exp(a_log) from 1 to 16. State: S [B,H,N,V], and x [B,K-1,C], the last inputs of the convolution.
B batch, T time, E model width, H heads, N = key_dim, V = head_dim, G groups, C = H V + 2 G N channels, K taps
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import torch
from torch import Tensor, nn
from torch.nn.functional import silu, softplus

from ..errors import whole
from ..feature_maps.common import positive_float
from ..ops.conv.short_conv import short_conv
from ..ops.fused.gate import gate
from ..ops.fused.norm import rms_norm
from ..ops.gated.decay import decayed_attention
from ..ops.state import ConvState, MatrixState
from .attention import head_width
from .mamba import dt_start, rate_start
from .matrix import MatrixMixer, divided, expand_groups, only_causal
from .norm import RMSNorm


class Mamba2(MatrixMixer):
    """The whole block of the paper, so that no MLP is needed; `bias` is for the projections in and out.

    `expand`: width of all heads together in model widths, unless `head_dim` gives the width of each.
    `conv_bias`: one number per channel added by the convolution. `dt_limit`: None, or least and largest dt, the latter
    None for no limit.
    """

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
        expand: int = 2,
        kernel_size: int = 4,
        n_groups: int = 1,
        conv_bias: bool = True,
        norm_eps: float = 1e-5,
        dt_limit: Sequence[float | None] | None = None,
    ) -> None:
        only_causal("mamba2", causal, n_heads, n_kv_heads)
        positive_float("norm_eps", norm_eps)
        for name, value in (("expand", expand), ("kernel_size", kernel_size)):
            whole(name, value, 1)
        values = head_dim or head_width(expand * d_model, n_heads)
        keys, width = key_dim or values, n_heads * values
        groups = divided(n_heads, "n_groups", n_groups)
        channels = width + 2 * groups * keys
        super().__init__((n_heads, keys, values), (kernel_size - 1, channels))
        self.n_groups, self.dt_limit = groups, _limits(dt_limit)
        self.widths = (width, channels, n_heads)
        self.proj = nn.Linear(d_model, sum(self.widths), bias=bias)
        bound = kernel_size**-0.5  # as torch.nn.Conv1d begins
        self.filter = nn.Parameter(torch.empty(channels, kernel_size).uniform_(-bound, bound))
        self.filter_bias = nn.Parameter(torch.empty(channels).uniform_(-bound, bound)) if conv_bias else None
        self.dt_bias = nn.Parameter(dt_start(n_heads))
        self.a_log = nn.Parameter(rate_start(n_heads))
        self.skip = nn.Parameter(torch.ones(n_heads))
        self.norm = RMSNorm(width, eps=norm_eps)
        self.out = nn.Linear(width, d_model, bias=bias)

    def mix(self, x: Tensor, state: MatrixState, mask: Tensor | None) -> tuple[Tensor, MatrixState]:
        (c, b, v, dt), z, past = self._inputs(x, state, mask)
        scaled = (v * dt[..., None]).to(v.dtype)
        out, new = decayed_attention(c, b, scaled, self.decay(dt), **self.how(state, mask))
        assert new is not None
        skip = self.skip.repeat_interleave(self.matrix[2])
        y = gate(out.flatten(2), z, v.flatten(2), skip)
        return self.out(self._normed(y)), MatrixState(new.s, past)

    def _normed(self, y: Tensor) -> Tensor:  # [B,T,HV]
        if self.n_groups == 1:
            return self.norm(y)
        return rms_norm(y.unflatten(-1, (self.n_groups, -1)), None, self.norm.eps).flatten(2) * self.norm.weight

    def decay(self, dt: Tensor) -> Tensor:  # [B,T,H] -> log a [B,T,H]
        return -self.a_log.exp() * dt

    def attention_map(self, x: Tensor) -> Tensor:
        """[B,H,T,T]: the share of v_j in S_t^T c_t + skip v_t, before gate and norm; the skip is on the diagonal."""
        (c, b, _, dt), _, _ = self._inputs(x, self.empty_state(x.shape[0], device=x.device, dtype=x.dtype), None)
        units = torch.eye(x.shape[1], dtype=dt.dtype, device=x.device)  # values
        scaled = (dt[..., None] * units[:, None]).to(c.dtype)  # [B,T,H,T]
        weights, _ = decayed_attention(c, b, scaled, self.decay(dt))
        return weights.transpose(1, 2) + self.skip[:, None, None] * units

    def _inputs(
        self, x: Tensor, state: MatrixState, mask: Tensor | None
    ) -> tuple[tuple[Tensor, Tensor, Tensor, Tensor], Tensor, Tensor]:
        """c, b [B,T,H,N], v [B,T,H,V], dt [B,T,H]; z [B,T,HV]; and the newest inputs of the convolution."""
        x = x if mask is None else x.masked_fill(~mask[..., None], 0.0)
        z, u, dt = self.proj(x).split(self.widths, dim=-1)
        kept = ConvState(state.x.to(u.dtype))
        u, new = short_conv(u, self.filter, self.filter_bias, initial_state=kept, output_final_state=True, mask=mask)
        assert new is not None
        heads, keys, values = self.matrix
        v, b, c = silu(u).split([heads * values, self.n_groups * keys, self.n_groups * keys], dim=-1)
        b, c = (expand_groups(y.unflatten(-1, (self.n_groups, keys)), heads) for y in (b, c))
        dt = softplus(dt.to(torch.promote_types(dt.dtype, torch.float32)) + self.dt_bias)
        dt = dt if self.dt_limit is None else dt.clamp(*self.dt_limit)
        return (c, b, v.unflatten(-1, (heads, values)), dt), z, new.x


def _limits(given: Sequence[float | None] | None) -> tuple[float, float] | None:
    """(least, largest) dt, or None where they change nothing."""
    if given is None:
        return None
    numbers = [inf if x is None else x for x in given] if isinstance(given, (tuple, list)) else []
    fits = len(numbers) == 2 and all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in numbers)
    if not fits or not 0 <= numbers[0] <= numbers[1] or numbers[1] == 0 or numbers[0] == inf:
        raise ValueError(
            f"dt_limit is {given!r}; accepted: None, or two numbers, 0 <= least <= largest, not both 0, and None for "
            "a largest without limit"
        )
    return None if numbers == [0.0, inf] else (float(numbers[0]), float(numbers[1]))
