"""RWKV-4 and RWKV-7 in the native decoder; x, the previous token, is a ring of one.

RWKV-4  s [3,E]: the average's numerator and denominator, and the largest exponent in them
RWKV-7  s [H,D,V]; its biases of decay and rate are those of the matrices that widen them
"""

from __future__ import annotations

from typing import Any

import torch

from ....native.structs import Rwkv
from ..weights import PackedWeights
from .recurrent import RecurrentAdapter


class RWKV4Adapter(RecurrentAdapter):
    """Adapter of RWKV4: an average per channel."""

    kind = "wkv4"
    known = frozenset({"shift_r", "shift_k", "shift_v", "decay", "bonus", "r", "k", "v", "out"})

    def fields(self, weights: PackedWeights) -> dict[str, Any]:
        mixer = self.mixer
        shift = torch.stack([mixer.shift_r, mixer.shift_k, mixer.shift_v])
        rwkv = Rwkv(
            shift=weights.floats(shift), decay=weights.floats(mixer.decay.exp()), bonus=weights.floats(mixer.bonus),
            k=weights.linear(mixer.k), v=weights.linear(mixer.v),
        )  # fmt: skip
        sizes = {"channels": mixer.inputs[1], "past": self.past}
        return {**sizes, "rwkv": rwkv, "in": weights.linear(mixer.r), "out": weights.linear(mixer.out)}


class RWKV7Adapter(RecurrentAdapter):
    """Adapter of RWKV7: a matrix per head."""

    kind = "wkv7"
    known = frozenset(
        {
            "norm_eps", "shift", "r", "k", "v", "decay_in", "rate_in", "gate_in", "decay_out", "rate_out", "gate_out",
            "decay_bias", "rate_bias", "remove", "replace", "bonus", "norm_weight", "norm_bias", "out",
        }
    )  # fmt: skip

    def fields(self, weights: PackedWeights) -> dict[str, Any]:
        mixer = self.mixer
        vectors = ("shift", "remove", "replace", "bonus", "norm_weight", "norm_bias")
        rwkv: dict[str, Any] = {name: weights.floats(getattr(mixer, name)) for name in vectors}
        rwkv |= {name: weights.linear(getattr(mixer, name)) for name in "kv"}
        rwkv |= {f"{name}_in": weights.small(getattr(mixer, f"{name}_in").weight) for name in ("decay", "rate", "gate")}
        rwkv |= {
            "decay_out": weights.small(mixer.decay_out.weight, mixer.decay_bias),
            "rate_out": weights.small(mixer.rate_out.weight, mixer.rate_bias),
            "gate_out": weights.small(mixer.gate_out.weight), "norm_eps": mixer.norm_eps,
        }  # fmt: skip
        matrices = {"in": weights.linear(mixer.r), "out": weights.linear(mixer.out)}
        return {**self.heads(), "rwkv": Rwkv(**rwkv), **matrices}
