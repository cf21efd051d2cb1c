"""The fused ops as they are written, in float64: the truth that tests compare with. Every token is independent.

E model width, F hidden width, D head width, N vocabulary:  x, h [..., E]   cos, sin [T,D/2]   targets [...]
"""

from __future__ import annotations

import torch
from torch import Tensor


def layer_norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """y = (x - mean) / sqrt(var + eps) * weight + bias"""
    centered = x.double() - x.double().mean(-1, keepdim=True)
    y = centered / (centered.square().mean(-1, keepdim=True) + eps).sqrt()
    return y * _or(weight, 1.0) + _or(bias, 0.0)


def rms_norm(x: Tensor, weight: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """y = x / sqrt(mean(x^2) + eps) * weight"""
    return x.double() / (x.double().square().mean(-1, keepdim=True) + eps).sqrt() * _or(weight, 1.0)


def gate(x: Tensor, z: Tensor, u: Tensor | None = None, skip: Tensor | None = None) -> Tensor:
    """y = (x + skip u) z / (1 + e^-z)"""
    y = x.double() if u is None or skip is None else x.double() + skip.double() * u.double()
    return y * z.double() / (1 + (-z.double()).exp())


def mixtures(x: Tensor, change: Tensor, share: Tensor) -> tuple[Tensor, ...]:
    """y_k = x + share_k change"""
    return tuple(x.double() + one.double() * change.double() for one in share)


def mlp(x: Tensor, up: Tensor, b1: Tensor | None, down: Tensor, b2: Tensor | None, kind: str = "gelu") -> Tensor:
    """relu, gelu:  y = W2 act(W1 x + b1) + b2;   swiglu:  y = W2 (silu(g) * u) + b2,   (g, u) = W1 x + b1"""
    hidden = x.double() @ up.double().t() + _or(b1, 0.0)
    if kind == "swiglu":
        gate, value = hidden.chunk(2, dim=-1)
        hidden = gate / (1 + (-gate).exp()) * value
    elif kind == "relu":
        hidden = hidden.relu()
    else:
        hidden = hidden * (1 + torch.erf(hidden / 2**0.5)) / 2
    return hidden @ down.double().t() + _or(b2, 0.0)


def project(
    x: Tensor, weight: Tensor, bias: Tensor | None, widths: tuple[int, int, int],
    table: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """q, k, v = split(W x + b);   (q_i, q_{i+D/2}) -> (q_i cos - q_{i+D/2} sin, q_i sin + q_{i+D/2} cos), k likewise"""
    q, k, v = (x.double() @ weight.double().t() + _or(bias, 0.0)).split(widths, dim=-1)
    return (q, k, v) if table is None else (_rotate(q, *table), _rotate(k, *table), v)


def linear_cross_entropy(h: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, ignore: int = -100) -> Tensor:
    """sum over tokens of log sum_n exp(w_n . h + b_n) - (w_y . h + b_y),   y the target; `ignore`: no target"""
    scores = h.double() @ weight.double().t() + _or(bias, 0.0)
    counted = targets != ignore
    chosen = scores.gather(-1, torch.where(counted, targets, 0)[..., None])[..., 0]
    return torch.where(counted, scores.logsumexp(-1) - chosen, 0.0).sum()


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:  # [B,T,H D], [T,D/2]
    first, second = x.unflatten(-1, (-1, 2, cos.shape[-1])).unbind(-2)  # [B,T,H,D/2]
    cos, sin = cos.double()[:, None], sin.double()[:, None]
    return torch.stack([first * cos - second * sin, first * sin + second * cos], dim=-2).flatten(-3)


def _or(x: Tensor | None, default: float) -> Tensor | float:
    return default if x is None else x.double()
