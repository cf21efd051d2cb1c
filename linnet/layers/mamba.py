"""Mamba: a short convolution, then a selective scan whose decay, input and read-out are chosen by the token.

    u, z = W_in x;   u = silu(conv4(u));   dt, b, c = W_select u;   dt = softplus(W_dt dt + dt_bias)
    h_t = exp(dt_t a) h_{t-1} + dt_t b_t u_t;   y = W_out( (c_t . h_t + skip * u_t) * silu(z_t) ),   a = -exp(a_log)

Gu & Dao 2023, arXiv:2312.00752, section 3. There are no heads: every one of E' = expand * d_model channels keeps N
numbers. `n_heads` and `head_dim` change nothing here, and `key_dim` is another name for N.
As in the paper, a starts at -1 ... -N in every channel, and dt, for an input of zeros, spread evenly in its logarithm
from 0.001 to 0.1. State: s [B,E',N,1], and x [B,K-1,E'], the last inputs of the convolution, K taps.
"""

from __future__ import annotations

from math import ceil, log

import torch
from torch import Tensor, nn
from torch.nn.functional import silu, softplus

from ..errors import whole
from ..feature_maps.common import positive_float
from ..ops.conv.short_conv import short_conv
from ..ops.fused.gate import gate
from ..ops.fused.norm import rms_norm
from ..ops.gated.selective_scan import selective_scan
from ..ops.state import ConvState, MatrixState
from .matrix import MatrixMixer, only_causal

SLOW, FAST = 1e-3, 1e-1  # dt at the start


class Mamba(MatrixMixer):
    """The whole block of the paper, so that no MLP is needed; `bias` is for the projections in and out.

    `conv_bias`: one number per channel added by the convolution. `dt_rank`: of W_dt, None for d_model / 16 rounded up.
    `select_norm_eps`: normalise dt (before W_dt), b and c by their root mean squares, as Falcon Mamba does.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int = 1,
        *,
        n_kv_heads: int | None = None,
        head_dim: int | None = None,
        key_dim: int | None = None,
        causal: bool = True,
        bias: bool = True,
        d_state: int = 16,
        expand: int = 2,
        kernel_size: int = 4,
        conv_bias: bool = True,
        dt_rank: int | None = None,
        select_norm_eps: float | None = None,
    ) -> None:
        only_causal("mamba", causal, n_heads, n_kv_heads)
        if select_norm_eps is not None:
            positive_float("select_norm_eps", select_norm_eps)
        d_state, rank = key_dim or d_state, ceil(d_model / 16) if dt_rank is None else dt_rank
        sizes = {"d_state": d_state, "expand": expand, "kernel_size": kernel_size, "dt_rank": rank}
        for name, value in sizes.items():
            whole(name, value, 1)
        width, self.rank, self.select_norm_eps = expand * d_model, rank, select_norm_eps
        super().__init__((width, d_state, 1), (kernel_size - 1, width))
        self.proj = nn.Linear(d_model, 2 * width, bias=bias)
        bound = kernel_size**-0.5  # as torch.nn.Conv1d begins
        self.filter = nn.Parameter(torch.empty(width, kernel_size).uniform_(-bound, bound))
        self.filter_bias = nn.Parameter(torch.empty(width).uniform_(-bound, bound)) if conv_bias else None
        self.select = nn.Linear(width, self.rank + 2 * d_state, bias=False)
        self.dt = nn.Linear(self.rank, width, bias=False)
        self.dt_bias = nn.Parameter(dt_start(width))
        self.a_log = nn.Parameter(torch.arange(1.0, d_state + 1).log().repeat(width))  # [E' N], a vector: never decayed
        self.skip = nn.Parameter(torch.ones(width))
        self.out = nn.Linear(width, d_model, bias=bias)

    def mix(self, x: Tensor, state: MatrixState, mask: Tensor | None) -> tuple[Tensor, MatrixState]:
        u, z, past = self._inputs(x, state, mask)
        y, new = selective_scan(u, *self._selected(u), **self.how(state, mask))
        assert new is not None
        return self.out(gate(y, z, u, self.skip)), MatrixState(new.s, past)

    def attention_map(self, x: Tensor) -> Tensor:
        """[B,E',T,T]: the share of u_j in y_t before the gate, channel by channel; the skip is on the diagonal."""
        B, T, _ = x.shape
        u, _, _ = self._inputs(x, self.empty_state(B, device=x.device, dtype=x.dtype), None)
        dt, a, b, c = (p if p.ndim == 2 else p.repeat_interleave(T, dim=0) for p in self._selected(u))
        units = torch.eye(T, dtype=u.dtype, device=u.device)[None, ..., None].expand(B, T, T, u.shape[-1])  # [B,j,t,E']
        y, _ = selective_scan(units.flatten(0, 1), dt, a, b, c)
        return (y.view(units.shape) + self.skip * units).permute(0, 3, 2, 1)

    def _inputs(self, x: Tensor, state: MatrixState, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return u, z [B,T,E'] and the newest inputs of the convolution."""
        x = x if mask is None else x.masked_fill(~mask[..., None], 0.0)
        u, z = self.proj(x).chunk(2, dim=-1)
        kept = ConvState(state.x.to(u.dtype))
        u, new = short_conv(u, self.filter, self.filter_bias, initial_state=kept, output_final_state=True, mask=mask)
        assert new is not None
        return silu(u), z, new.x.to(state.x.dtype)

    def _selected(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return dt [B,T,E'], a [E',N], b and c [B,T,N]."""
        _, N, _ = self.matrix
        dt, b, c = self.select(u).split([self.rank, N, N], dim=-1)
        if self.select_norm_eps is not None:
            dt, b, c = (rms_norm(y, None, self.select_norm_eps) for y in (dt, b, c))
        return softplus(self.dt(dt) + self.dt_bias), -torch.exp(self.a_log).view(-1, N), b, c


def dt_start(count: int) -> Tensor:  # [count]
    """Biases whose softplus lies between SLOW and FAST, evenly on a log scale; one alone in the middle, 0.01.

    Even and not drawn, as the papers have it: with a single head, one unlucky draw forgets within a few tokens.
    """
    start = torch.linspace(log(SLOW), log(FAST), count + 2)[1:-1].exp()
    return start + torch.log(-torch.expm1(-start))


def rate_start(heads: int) -> Tensor:  # [heads]
    """Logarithms of rates from 1 to 16, evenly; one head alone has 1."""
    return torch.linspace(1, 16, heads).log()
