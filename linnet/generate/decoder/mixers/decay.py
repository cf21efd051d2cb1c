"""RetNet and gated linear attention in the native decoder: a state that decays by head or by key channel.

projection  q [H,D], k [H,D], v [H,V], gate [H,V]; GLA: then the narrow half of its decay
"""

from __future__ import annotations

from abc import abstractmethod
from math import prod
from typing import Any

import torch

from ....layers.norm import LayerNorm
from ....native.decode import DECAYS, GATES, NORMS
from ....native.structs import Gated
from ....ops.state import MatrixState
from ..weights import PackedWeights
from .adapter import Memory, get_sums, put_sums
from .recurrent import RecurrentAdapter, norm_fields

OPTIONS = frozenset({"gate", "scale", "widths", "proj", "norm", "out"})


class DecayedAdapter(RecurrentAdapter):
    """What RetNet and GLA share: all but the decay."""

    kind = "gated"

    def fields(self, weights: PackedWeights) -> dict[str, Any]:
        mixer, (keys, _, values, gates) = self.mixer, self.mixer.widths
        gated = Gated(
            groups=mixer.matrix[0], q=0, k=keys, v=2 * keys, gate=2 * keys + values, beta=-1, step=-1,
            gating=GATES["silu" if gates else "none"], scale=mixer.scale,
            norm=NORMS["layer" if isinstance(mixer.norm, LayerNorm) else "rms"],
            **norm_fields(weights, mixer.norm), **self.decay(weights),
        )  # fmt: skip
        return {**self.heads(), "gated": gated, "in": self.projection(weights), "out": weights.linear(mixer.out)}

    def projection(self, weights: PackedWeights) -> Any:
        """Pack the matrix of everything that is computed from the input."""
        return weights.linear(self.mixer.proj)

    @abstractmethod
    def decay(self, weights: PackedWeights) -> dict[str, Any]:
        """Return the fields of the decay."""


class RetNetAdapter(DecayedAdapter):
    """Adapter of RetNet: one number per head, exact in float32 up to head 18, so rounding errors are worth keeping.

    The slowest of 16 heads decays over a million tokens. A decay that a token sets is itself rounded to float32, and
    keeping the errors of the sums would not make such a state more accurate.
    """

    known = OPTIONS | {"rotary", "turns"}

    @property
    def state_floats(self) -> int:
        return prod(self.mixer.matrix) * (1 + self.exact)

    def fields(self, weights: PackedWeights) -> dict[str, Any]:
        return super().fields(weights) | {"exact": self.exact}

    def get(self, memory: Memory, seen: int) -> MatrixState:
        state = get_sums(memory, prod(self.mixer.matrix), self.exact)
        return MatrixState(state.view(1, *self.mixer.matrix))

    def put(self, memory: Memory, seen: int, state: MatrixState) -> None:
        put_sums(memory, state.s.reshape(-1), self.exact)

    def decay(self, weights: PackedWeights) -> dict[str, Any]:
        heads = torch.arange(self.mixer.matrix[0], dtype=torch.float64)
        return {"decay": DECAYS["fixed"], "rate": weights.floats((1 - 2.0 ** (-5 - heads)).float())}


class GLAAdapter(DecayedAdapter):
    """Adapter of GLA: a decay per key channel, from a projection of low rank."""

    known = OPTIONS | {"gate_normalizer", "narrow", "widen"}

    def projection(self, weights: PackedWeights) -> Any:
        proj = self.mixer.proj
        return weights.stacked((proj.weight, proj.bias), (self.mixer.narrow.weight, None))

    def decay(self, weights: PackedWeights) -> dict[str, Any]:
        mixer = self.mixer
        widen = weights.small(mixer.widen.weight, mixer.widen.bias)
        sizes = {"narrow": sum(mixer.widths), "normalizer": mixer.gate_normalizer}
        return {"decay": DECAYS["sigmoid"], "widen": widen, **sizes}
