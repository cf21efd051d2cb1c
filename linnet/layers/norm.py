"""Norms by name: "layer" (mean and variance, gain and bias) or "rms" (root mean square, gain).

    layer: (x - mean) / sqrt(var + eps) * weight + bias      rms: x / sqrt(mean(x^2) + eps) * weight

torch's modules with their parameters and names; the numbers come from linnet.ops, in one sweep each way.
"""

from __future__ import annotations

from torch import Tensor, nn

from ..errors import unknown
from ..ops.norm import layer_norm, rms_norm


class LayerNorm(nn.LayerNorm):
    """nn.LayerNorm over one axis."""

    def forward(self, x: Tensor) -> Tensor:
        return layer_norm(x, self.weight, self.bias, self.eps)


class RMSNorm(nn.RMSNorm):
    """nn.RMSNorm over one axis, with an eps of its own."""

    eps: float

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self.eps)


NORMS: dict[str, type[nn.Module]] = {"layer": LayerNorm, "rms": RMSNorm}


def build_norm(name: str, d_model: int, eps: float = 1e-5) -> nn.Module:
    """A norm over the last axis, of width `d_model`."""
    if name not in NORMS:
        raise unknown("norm", name, NORMS)
    return NORMS[name](d_model, eps=eps)
