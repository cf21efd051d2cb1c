"""Cross attention: queries from one sequence, keys and values from another that is read once and kept as a state.

    source = layer.source_state(memory)      memory [B,S,E]  ->  State (linear: F x V sums) or KVState (softmax)
    y = layer(x, source)                     x [B,T,E] or one token [B,E]; every query sees the whole source

With a linear kernel the source is summed up once, so a decoded token costs the same for any source length.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from .. import ops
from ..feature_maps import FEATURE_MAPS, build
from ..ops.state import KVState, State
from .attention import head_width


class CrossAttention(nn.Module):
    """`mixer` is "softmax" or the name of a feature map."""

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        mixer: str = "elu",
        head_dim: int | None = None,
        options: Mapping[str, Any] | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if mixer != "softmax" and mixer not in FEATURE_MAPS:
            raise ValueError(
                f"mixer {mixer!r} cannot attend to another sequence; accepted: softmax, {', '.join(FEATURE_MAPS)}"
            )
        self.n_heads, self.head_dim = n_heads, head_dim or head_width(d_model, n_heads)
        width = n_heads * self.head_dim
        self.query, self.key_value = nn.Linear(d_model, width, bias=bias), nn.Linear(d_model, 2 * width, bias=bias)
        self.out = nn.Linear(width, d_model, bias=bias)
        self.feature_map = None if mixer == "softmax" else build(mixer, self.head_dim, n_heads, **(options or {}))

    def source_state(self, memory: Tensor, mask: Tensor | None = None) -> State | KVState:
        """All of `memory` [B,S,E] that a query will need; mask [B,S], True = real."""
        k, v = self.key_value(memory).unflatten(-1, (2, self.n_heads, self.head_dim)).unbind(2)  # [B,S,H,D]
        if self.feature_map is None:
            _, kept = ops.softmax_attention(k[:, :0], k, v, causal=False, mask=mask, output_final_state=True)
            assert kept is not None
            return kept
        how: dict[str, Any] = {
            "feature_map": self.feature_map,
            "causal": False,
            "mask": mask,
            "output_final_state": True,
        }
        _, state = ops.linear_attention(k[:, :0], k, v, **how)
        assert state is not None
        return state

    def forward(self, x: Tensor, source: State | KVState) -> Tensor:
        """x [B,T,E] or [B,E] -> the same shape."""
        if x.ndim == 2:
            return self.forward(x[:, None], source)[:, 0]
        q = self.query(x).unflatten(-1, (self.n_heads, self.head_dim))  # [B,T,H,D]
        nothing = q[:, :0]  # no new keys: the source is in the state
        if isinstance(source, KVState):
            out, _ = ops.softmax_attention(q, nothing, nothing, causal=False, initial_state=source)
        else:
            how: dict[str, Any] = {"feature_map": self.feature_map, "causal": False, "initial_state": source}
            out, _ = ops.linear_attention(q, nothing, nothing, **how)
        return self.out(out.flatten(2))
