"""MLP: the per-token half of a block, two linear maps with a non-linearity between them.

relu, gelu:  down(act(up(x)))          swiglu:  down(silu(gate(x)) * up(x))      Shazeer 2020, arXiv:2002.05202
identity:    x (the block still adds norm(x), as in the networks of the recall benchmark)
"""

from __future__ import annotations

from torch import Tensor, nn

from ..errors import unknown
from ..ops.fused.mlp import mlp

MLPS = ("relu", "gelu", "swiglu", "identity", "none")


class MLP(nn.Module):
    """x [...,E] -> [...,E] through a hidden layer of width `d_ff`."""

    def __init__(self, d_model: int, d_ff: int, kind: str = "gelu", *, bias: bool = True) -> None:
        super().__init__()
        self.kind = kind
        self.up = nn.Linear(d_model, 2 * d_ff if kind == "swiglu" else d_ff, bias=bias)
        self.down = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return mlp(x, self.up.weight, self.up.bias, self.down.weight, self.down.bias, self.kind)


def build_mlp(kind: str, d_model: int, d_ff: int, *, bias: bool = True) -> nn.Module | None:
    """Build the MLP of that kind; None for "none"."""
    if kind not in MLPS:
        raise unknown("mlp", kind, MLPS)
    if kind == "none":
        return None
    return nn.Identity() if kind == "identity" else MLP(d_model, d_ff, kind, bias=bias)
