"""The delta rules in the native decoder: DeltaNet, gated DeltaNet and Kimi Delta Attention.

projection  u = q [G,D], k [G,D], v [H,V] (through the convolution), beta [H], step [H], gate [H,V];
            KDA: then the narrow halves of its decay and its gate
"""

from __future__ import annotations

from typing import Any

from ....native.decode import DECAYS, GATES, NORMS
from ....native.structs import Gated
from ..weights import PackedWeights
from .recurrent import RecurrentAdapter, negative_exp, norm_fields

OPTIONS = frozenset(
    {"top", "gate", "key_heads", "scale", "qk_eps", "widths", "proj", "filter", "filter_bias", "norm", "out"}
)


class DeltaAdapter(RecurrentAdapter):
    """Adapter of Delta, whose state does not decay."""

    kind = "gated"
    known = OPTIONS

    def fields(self, weights: PackedWeights) -> dict[str, Any]:
        mixer, (_, keys, _) = self.mixer, self.mixer.matrix
        channels, betas, steps, gates = mixer.widths
        shared = mixer.key_heads * keys
        gated = {
            "groups": mixer.key_heads, "q": 0, "k": shared, "v": 2 * shared,
            "beta": channels, "step": channels + betas, "gate": channels + betas + steps,
            "top": mixer.top, "scale": mixer.scale, "length_eps": mixer.qk_eps,
            "gating": GATES["silu" if gates else "none"], "norm": NORMS["rms"],
        }  # fmt: skip
        gated |= norm_fields(weights, mixer.norm) | self.decay(weights)
        sizes = self.heads() | self.conv(weights)
        return {**sizes, "gated": Gated(**gated), "in": self.projection(weights), "out": weights.linear(mixer.out)}

    def projection(self, weights: PackedWeights) -> Any:
        """Pack the matrix of everything that is computed from the input."""
        return weights.linear(self.mixer.proj)

    def decay(self, weights: PackedWeights) -> dict[str, Any]:
        """Return the fields of the decay, and of a gate that is not in the projection."""
        return {"decay": DECAYS["none"]}

    def steps(self, weights: PackedWeights) -> dict[str, Any]:
        """Return the fields of a decay e^(-A softplus(step + bias))."""
        rate, bias = negative_exp(self.mixer.a_log), self.mixer.dt_bias
        limits = {"least": 0.0, "most": float("inf")}
        return {"rate": weights.floats(rate), "step_bias": weights.floats(bias), **limits}


class GatedDeltaAdapter(DeltaAdapter):
    """Adapter of GatedDelta: a decay per head."""

    known = OPTIONS | {"dt_bias", "a_log"}

    def decay(self, weights: PackedWeights) -> dict[str, Any]:
        return {"decay": DECAYS["step"], **self.steps(weights)}


class KDAAdapter(DeltaAdapter):
    """Adapter of KDA: a decay per key channel, and a gate, from projections of low rank."""

    known = OPTIONS | {"dt_bias", "a_log", "narrow", "widen", "narrow_gate", "widen_gate"}

    def projection(self, weights: PackedWeights) -> Any:
        mixer = self.mixer
        narrow = [one.weight for one in (mixer.narrow, mixer.narrow_gate) if one is not None]
        return weights.stacked((mixer.proj.weight, mixer.proj.bias), *((weight, None) for weight in narrow))

    def decay(self, weights: PackedWeights) -> dict[str, Any]:
        mixer, narrow = self.mixer, sum(self.mixer.widths)
        fields = {"decay": DECAYS["channel_step"], "narrow": narrow, "widen": weights.small(mixer.widen.weight)}
        if mixer.widen_gate is not None:
            wide = weights.small(mixer.widen_gate.weight, mixer.widen_gate.bias)
            narrow_gate = narrow + len(mixer.narrow.weight)
            fields |= {"gating": GATES["sigmoid"], "narrow_gate": narrow_gate, "widen_gate": wide}
        return fields | self.steps(weights)
