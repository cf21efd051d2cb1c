"""Base of the attention adapters: heads, projections, and the layout of keys and values in memory.

    keys [kv, T/16, D, 16]     values [kv, T, V]           csrc/mix.h; T: capacity in tokens

kv key-value heads, D key width, V value width.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from ....native.gate import CPU
from ....ops.state import KVState, WindowState, real_tokens
from ..options import check_norm, check_options
from ..weights import PackedWeights
from .adapter import BLOCK, MixerAdapter

OPTIONS = frozenset(
    {
        "n_heads", "n_kv_heads", "head_dim", "key_dim", "causal", "rotary", "turns", "group", "widths", "qkv", "gate",
        "q_norm", "k_norm", "out",
    }
)  # fmt: skip


class AttentionAdapter(MixerAdapter):
    """Heads, widths, the projections, and the norms of q and k."""

    known: ClassVar[frozenset[str]] = OPTIONS

    def __init__(self, mixer: Any, *, exact: bool) -> None:
        super().__init__(mixer, exact=exact)
        check_options(mixer, self.known)
        self.kv, self.D, self.V = mixer.n_kv_heads, mixer.key_dim, mixer.head_dim

    def fields(self, weights: PackedWeights) -> dict[str, Any]:
        mixer = self.mixer
        return {
            "heads": mixer.n_heads, "kv_heads": self.kv, "key": self.D, "value": self.V, "scale": self.D**-0.5,
            "gate_heads": mixer.gate > 0, "in": weights.linear(mixer.qkv), "out": weights.linear(mixer.out),
            **self._norms(weights),
        }  # fmt: skip

    def _norms(self, weights: PackedWeights) -> dict[str, Any]:
        q, k = self.mixer.q_norm, self.mixer.k_norm
        if q is None:
            return {}
        for norm in (q, k):
            check_norm(norm)
        return {"q_norm": weights.floats(q.weight), "k_norm": weights.floats(k.weight), "qk_eps": q.eps}

    @property
    def token_floats(self) -> int:
        """Floats of the key and the value of one token."""
        return int(self.kv * (self.D + self.V))

    def keys_values(self, memory: Tensor, tokens: int) -> tuple[Tensor, Tensor]:
        """Return views of the keys and values in memory for `tokens` tokens."""
        kv, D, V = self.kv, self.D, self.V
        keys = memory[: kv * tokens * D].view(kv, tokens // BLOCK, D, BLOCK)
        return keys, memory[kv * tokens * D : kv * tokens * (D + V)].view(kv, tokens, V)


def take(keys: Tensor, values: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """Return the tokens at these places as k [1,T,kv,D] and v [1,T,kv,V]."""
    k = keys.transpose(2, 3).flatten(1, 2)[:, places]  # [kv,T,D]
    return k.transpose(0, 1)[None].contiguous(), values[:, places].transpose(0, 1)[None].contiguous()


def write(keys: Tensor, values: Tensor, state: KVState | WindowState, places: Tensor) -> None:
    """Write the real tokens of a state of one row to these places, rounded to float32."""
    real = real_tokens(state)[0]
    k, v = state.k[0, real].float(), state.v[0, real].float()
    keys[:, places // BLOCK, :, places % BLOCK] = k  # [T,kv,D]: separated index axes come first
    values[:, places] = v.transpose(0, 1)


def times(start: int, end: int) -> Tensor:
    """Return start .. end - 1."""
    return torch.arange(start, end, device=CPU)
