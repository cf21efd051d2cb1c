"""Norms by name: "layer" (mean and variance, gain and bias) or "rms" (root mean square, gain).

    layer: (x - mean) / sqrt(var + eps) * weight + bias      rms: x / sqrt(mean(x^2) + eps) * weight

Subclasses of torch's modules, with the same parameters and names, computed by the fused ops of linnet.ops.
"""

from __future__ import annotations

from torch import Tensor, nn

from ..errors import unknown
from ..ops.fused.norm import layer_norm, rms_norm


class LayerNorm(nn.LayerNorm):
    """nn.LayerNorm over the last axis."""

    def forward(self, x: Tensor) -> Tensor:
        return layer_norm(x, self.weight, self.bias, self.eps)


class RMSNorm(nn.RMSNorm):
    """nn.RMSNorm over the last axis, with an explicit eps."""

    eps: float

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self.eps)


NORMS: dict[str, type[nn.Module]] = {"layer": LayerNorm, "rms": RMSNorm}


def build_norm(name: str, d_model: int, eps: float = 1e-5) -> nn.Module:
    """Build a norm over the last axis, of width `d_model`."""
    if name not in NORMS:
        raise unknown("norm", name, NORMS)
    return NORMS[name](d_model, eps=eps)
