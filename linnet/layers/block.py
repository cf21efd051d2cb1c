"""Block: a mixer along time, then an MLP per token, each with a residual connection.

    pre    x = x + mixer(norm(x));   x = x + mlp(norm(x))          the residual stream is never normalised
    post   x = norm(x + mixer(x));   x = norm(x + mlp(x))          Vaswani et al. 2017, as in "Transformers are RNNs"

A decoder block has cross attention to a source between the two. `forward` takes [B,T,E], `step` one token [B,E].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from ..errors import unknown
from ..ops.state import AnyState
from .mixer import Mixer
from .norm import build_norm

PLACES = ("pre", "post")


class Block(nn.Module):
    """`mlp` and `cross` may be None; dropout applies to the output of each branch."""

    def __init__(
        self,
        mixer: Mixer,
        mlp: nn.Module | None,
        *,
        d_model: int,
        cross: nn.Module | None = None,
        norm: str = "layer",
        norm_place: str = "pre",
        norm_eps: float = 1e-5,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if norm_place not in PLACES:
            raise unknown("norm_place", norm_place, PLACES)
        self.pre = norm_place == "pre"
        self.mixer, self.cross, self.mlp = mixer, cross, mlp
        self.norm1 = build_norm(norm, d_model, norm_eps)
        self.norm_cross = None if cross is None else build_norm(norm, d_model, norm_eps)
        self.norm2 = None if mlp is None else build_norm(norm, d_model, norm_eps)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Tensor, state: AnyState | None = None, source: Any = None, **how: Any
    ) -> tuple[Tensor, AnyState | None]:
        """Apply the block to x [B,T,E]; keywords as in Mixer.forward, and `shared` (see Mixer)."""
        y, state = self.mixer(self.norm1(x) if self.pre else x, state, **self._given(how))
        return self._rest(self._residual(x, y, self.norm1), source), state

    def step(self, x: Tensor, state: AnyState | None = None, source: Any = None, **how: Any) -> tuple[Tensor, AnyState]:
        """Apply the block to the next token, x [B,E]."""
        y, new = self.mixer.step(self.norm1(x) if self.pre else x, state, **self._given(how))
        return self._rest(self._residual(x, y, self.norm1), source), new

    def _given(self, how: dict[str, Any]) -> dict[str, Any]:
        """Return the keywords for the mixer: without `shared` unless it shares something."""
        return how if self.mixer.shares else {name: value for name, value in how.items() if name != "shared"}

    def _rest(self, x: Tensor, source: Any) -> Tensor:
        if self.cross is not None:
            cross = self.cross
            x = self._branch(x, self.norm_cross, lambda y: cross(y, source))
        return x if self.mlp is None else self._branch(x, self.norm2, self.mlp)

    def _branch(self, x: Tensor, norm: nn.Module | None, branch: Callable[[Tensor], Tensor]) -> Tensor:
        assert norm is not None
        return self._residual(x, branch(norm(x) if self.pre else x), norm)

    def _residual(self, x: Tensor, y: Tensor, norm: nn.Module) -> Tensor:
        x = x + self.dropout(y)
        return x if self.pre else norm(x)
