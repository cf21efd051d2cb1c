"""The short convolutions as they are written, token by token in float64: the truth that tests compare with.

B batch, T time, E channels, K taps:  x, y [B,T,E]   weight [E,K], the newest tap last   bias [E]   past [B,K-1,E]
"""

from __future__ import annotations

import torch
from torch import Tensor


def short_conv(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, past: Tensor | None = None, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """y_t = bias + sum_{i<K} w_i x_{t-K+1+i} over real tokens, x = `past` before the first; returns y and the new past.

    `mask` [B,T] marks real tokens: padding enters no sum, and its output is 0.
    """
    x, weight = x.double(), weight.double()
    B, T, E = x.shape
    past = x.new_zeros(B, weight.shape[1] - 1, E) if past is None else past.double()
    outs = []
    for t in range(T):
        last = torch.cat([past, x[:, t, None]], dim=1)  # [B,K,E]
        y = (last * weight.t()).sum(1) + (0.0 if bias is None else bias.double())
        if mask is None:
            past = last[:, 1:]
        else:
            y = y * mask[:, t, None]
            past = torch.where(mask[:, t, None, None], last[:, 1:], past)
        outs.append(y)
    return (torch.stack(outs, dim=1) if outs else x * 0), past


def base_conv(x: Tensor, weight: Tensor, bias: Tensor, gate_weight: Tensor, gate_bias: Tensor) -> Tensor:
    """y = c * (W x + b) + x, with c the short convolution of x"""
    c, _ = short_conv(x, weight, bias)
    return c * (x.double() @ gate_weight.double().t() + gate_bias.double()) + x.double()
