"""Norms by name: "layer" (mean and variance, gain and bias) or "rms" (root mean square, gain).

layer: (x - mean) / sqrt(var + eps) * weight + bias      rms: x / sqrt(mean(x^2) + eps) * weight
"""

from __future__ import annotations

from torch import nn

from ..errors import unknown

NORMS: dict[str, type[nn.Module]] = {"layer": nn.LayerNorm, "rms": nn.RMSNorm}


def build_norm(name: str, d_model: int, eps: float = 1e-5) -> nn.Module:
    """A norm over the last axis, of width `d_model`."""
    if name not in NORMS:
        raise unknown("norm", name, NORMS)
    return NORMS[name](d_model, eps=eps)
