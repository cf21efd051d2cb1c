"""RWKV-4, RWKV-7 and channel mixing in the native decoder; x, the previous token, is a ring of one.

RWKV-4  s [3,E]: the average's numerator and denominator, and the largest exponent in them
RWKV-7  s [H,D,V]; its biases of decay, rate and value share are those of the matrices that widen them
"""

from __future__ import annotations

from typing import Any

import torch

from ....native.decode import VALUES
from ....native.structs import Rwkv
from ....ops.state import ConvState
from ..options import check_options
from ..weights import PackedWeights
from .adapter import Memory, MixerAdapter
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
            "decay_bias", "rate_bias", "remove", "replace", "bonus", "norm_weight", "norm_bias", "out", "shares",
            "value_in", "value_out", "value_bias",
        }
    )  # fmt: skip

    def fields(self, weights: PackedWeights) -> dict[str, Any]:
        mixer = self.mixer
        vectors = ("shift", "remove", "replace", "bonus", "norm_weight", "norm_bias")
        rwkv: dict[str, Any] = {name: weights.floats(getattr(mixer, name)) for name in vectors}
        rwkv |= {"k": weights.linear(mixer.k), **self._values(weights)}
        rwkv |= {f"{name}_in": weights.small(getattr(mixer, f"{name}_in").weight) for name in ("decay", "rate", "gate")}
        rwkv |= {
            "decay_out": weights.small(mixer.decay_out.weight, mixer.decay_bias),
            "rate_out": weights.small(mixer.rate_out.weight, mixer.rate_bias),
            "gate_out": weights.small(mixer.gate_out.weight), "norm_eps": mixer.norm_eps,
        }  # fmt: skip
        matrices = {"in": weights.linear(mixer.r), "out": weights.linear(mixer.out)}
        return {**self.heads(), "rwkv": Rwkv(**rwkv), **matrices}

    def _values(self, weights: PackedWeights) -> dict[str, Any]:
        """Pack the matrix of the values, and the network of their share of the first layer's values below it."""
        mixer = self.mixer
        if mixer.value_in is None:
            return {"v": weights.linear(mixer.v), "values": VALUES["gives" if mixer.shares else "own"]}
        both = weights.stacked((mixer.v.weight, mixer.v.bias), (mixer.value_in.weight, None))
        share = weights.small(mixer.value_out.weight, mixer.value_bias)
        return {"v": both, "value_out": share, "values": VALUES["takes"]}


class ChannelMixAdapter(MixerAdapter):
    """Adapter of ChannelMix: the fields of RWKV with a matrix for k, and one for r if it has a gate."""

    kind = "channel_mix"

    def __init__(self, mixer: Any, *, exact: bool) -> None:
        super().__init__(mixer, exact=exact)
        check_options(mixer, {"width", "shift_k", "shift_r", "k", "r", "out"})

    @property
    def state_floats(self) -> int:
        return int(self.mixer.width)

    def fields(self, weights: PackedWeights) -> dict[str, Any]:
        mixer = self.mixer
        rwkv: dict[str, Any] = {"shift": weights.floats(mixer.shift_k)}
        if mixer.r is not None:
            rwkv = {"shift": weights.floats(torch.stack([mixer.shift_k, mixer.shift_r])), "k": weights.linear(mixer.r)}
        matrices = {"in": weights.linear(mixer.k), "out": weights.linear(mixer.out)}
        return {"channels": mixer.k.out_features, "rwkv": Rwkv(**rwkv), **matrices}

    def get(self, memory: Memory, seen: int) -> ConvState:
        return ConvState(memory.state[: self.state_floats].clone().view(1, 1, -1))

    def put(self, memory: Memory, seen: int, state: ConvState) -> None:
        memory.state[: self.state_floats] = state.x.reshape(-1).float()
