"""Attention layers: project to q, k, v, mix along time by an op of linnet.ops, project back.

    y = W_o attend(rotate(W_q x), rotate(W_k x), W_v x) + b_o          x, y [B,T,E]

with two options of newer models: `gate`, the output of attend times sigmoid(W_g x), and `qk_norm`, an RMS norm of each
head of q and of k before the rotation (as in Qwen3-Next).

LinearAttention (any feature map), SoftmaxAttention, WindowAttention, and LSHAttention of lsh.py, differ only in the op
and its state.
E model width, H query heads, G = H / n_kv_heads queries share one key-value head (Ainslie et al. 2023,
arXiv:2305.13245): the state is kept once for each key-value head.   q [B,T,H,D]   k [B,T,H/G,D]   v [B,T,H/G,V]
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ArgumentError
from ..feature_maps import FeatureMap, build
from ..feature_maps.common import positive_float
from ..ops.fused.projection import project, rotate_heads
from ..ops.linear.attention import linear_attention, linear_attention_step
from ..ops.linear.attention import state_bytes as linear_bytes
from ..ops.softmax.full import softmax_attention, softmax_attention_step
from ..ops.softmax.full import state_bytes as softmax_bytes
from ..ops.softmax.window import empty_state, sliding_window_attention, sliding_window_attention_step
from ..ops.softmax.window import state_bytes as window_bytes
from ..ops.state import AnyState, KVState, State, WindowState
from .mixer import Mixer
from .norm import RMSNorm
from .positions import BASE, Rotary, Rotation, turned_width
from .rope_scaling import check_scaling

EPS = 1e-6  # of linear_attention


class Attention(Mixer):
    """The projections, heads and rotation that all attention layers share; a subclass says how to attend."""

    separate_keys = True  # False: the keys are made from the queries
    head_axis = 2  # of the tensors of the state

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        n_kv_heads: int | None = None,
        head_dim: int | None = None,
        key_dim: int | None = None,
        causal: bool = True,
        rotary: bool = False,
        rotary_base: float = BASE,
        rotary_scaling: Mapping[str, Any] | None = None,
        rotary_fraction: float | None = None,
        bias: bool = True,
        gate: bool = False,
        qk_norm: bool = False,
        qk_norm_eps: float = 1e-6,
    ) -> None:
        super().__init__()
        if rotary_scaling is not None:
            check_scaling(rotary_scaling, rotary_base)
        for name, value in (("gate", gate), ("qk_norm", qk_norm)):
            if not isinstance(value, bool):
                raise ArgumentError(name, value, "true or false")
        self.n_heads, self.n_kv_heads = n_heads, n_kv_heads or n_heads
        self.head_dim = head_dim or head_width(d_model, n_heads)
        self.key_dim = key_dim or self.head_dim
        self.causal, self.rotary = causal, rotary
        self.turns = Rotary(rotary_base, rotary_scaling, rotary_fraction)
        if n_heads % self.n_kv_heads:
            raise ValueError(f"n_kv_heads ({n_kv_heads}) must divide n_heads ({n_heads})")
        if rotary and self.key_dim % 2:
            raise ValueError(f"rotary positions turn pairs of numbers, but key_dim is {self.key_dim}; use an even one")
        if rotary:
            turned_width(self.key_dim, rotary_fraction)
        if qk_norm and not self.separate_keys:
            raise ValueError("qk_norm is true, but this mixer makes its keys from its queries; accepted: false")
        self.group = n_heads // self.n_kv_heads
        keys = self.n_kv_heads * self.key_dim if self.separate_keys else 0
        self.widths = (n_heads * self.key_dim, keys, self.n_kv_heads * self.head_dim)
        self.gate = n_heads * self.head_dim if gate else 0  # numbers, after the values
        self.qkv = nn.Linear(d_model, sum(self.widths) + self.gate, bias=bias)  # one product for all
        positive_float("qk_norm_eps", qk_norm_eps)
        self.q_norm, self.k_norm = (RMSNorm(self.key_dim, eps=qk_norm_eps) if qk_norm else None for _ in range(2))
        self.out = nn.Linear(n_heads * self.head_dim, d_model, bias=bias)

    @property
    def rotary_width(self) -> int:
        return self.key_dim if self.rotary else 0

    def forward(
        self,
        x: Tensor,
        state: AnyState | None = None,
        *,
        mask: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        positions: Tensor | Rotation | None = None,
        output_state: bool = False,
    ) -> tuple[Tensor, AnyState | None]:
        q, k, v, gate = self.project(x, positions)
        how: dict[str, Any] = {
            "mask": mask,
            "cu_seqlens": cu_seqlens,
            "output_final_state": output_state,
            "causal": self.causal,
        }
        k, v = self.shared(k), self.shared(v)
        out, state = self.attend(q, k, v, initial_state=self.expand_groups(state), **how)
        return self._leave(out.flatten(2), gate), self.collapse_groups(state)

    def step(
        self, x: Tensor, state: AnyState | None = None, *, positions: Tensor | Rotation | None = None
    ) -> tuple[Tensor, AnyState]:
        if not self.causal:
            raise ValueError("a bidirectional layer needs the whole sequence; build it with causal=True to step")
        q, k, v, gate = self.project(x, positions)
        out, state = self.attend_step(q, self.shared(k), self.shared(v), self.expand_groups(state))
        new = self.collapse_groups(state)
        assert new is not None
        return self._leave(out.flatten(1), gate), new

    def _leave(self, y: Tensor, gate: Tensor) -> Tensor:  # [...,H V] -> [...,E]
        return self.out(y * gate.sigmoid() if self.gate else y)

    def attention_map(self, x: Tensor) -> Tensor:
        """x [B,T,E] -> [B,H,T,T]: the weights of the op, norm included: its output for unit vectors as values."""
        q, k, _, _ = self.project(x, None)
        unit = torch.eye(x.shape[1], dtype=q.dtype, device=q.device)[:, None].expand(*q.shape[:3], -1)  # [B,T,H,T]
        out, _ = self.attend(q, self.shared(k), unit, causal=self.causal)
        return out.transpose(1, 2)

    def project(self, x: Tensor, positions: Tensor | Rotation | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """q [...,H,D], k [...,H/G,D], v [...,H/G,V], and the gate [...,H V], as views of one product."""
        turn = self.turns.of(x, positions, self.key_dim) if self.rotary else None
        at_once = turn if self.q_norm is None else None
        keys, values = self.widths[:2], self.widths[2]
        q, k, v = project(x, self.qkv.weight, self.qkv.bias, (*keys, values + self.gate), at_once)
        v, gate = v.split([values, self.gate], dim=-1)
        heads = ((q, self.key_dim), (k, self.key_dim), (v, self.head_dim))
        q, k, v = (y.unflatten(-1, (-1, width)) for y, width in heads)
        if self.q_norm is None or self.k_norm is None:
            return q, k, v, gate
        q, k = self.q_norm(q), self.k_norm(k)
        return (q, k, v, gate) if turn is None else (rotate_heads(q, turn), rotate_heads(k, turn), v, gate)

    def shared(self, x: Tensor) -> Tensor:
        """Keys or values [...,H/G,.] repeated for the G queries that share them."""
        return x if self.group == 1 else x.repeat_interleave(self.group, dim=-2)

    def expand_groups(self, state: AnyState | None) -> Any:
        """Return the state for the op, one row per query head."""
        if state is None or self.group == 1:
            return state
        return _heads(state, self.head_axis, lambda x, axis: x.repeat_interleave(self.group, dim=axis))

    def collapse_groups(self, state: Any) -> Any:
        """Return the state as the layer stores it: the G query heads of a group share one."""
        if state is None or self.group == 1:
            return state
        first = torch.arange(0, self.n_heads, self.group, device=state[0].device)
        return _heads(state, self.head_axis, lambda x, axis: x.index_select(axis, first))

    @abstractmethod
    def attend(self, q: Tensor, k: Tensor, v: Tensor, **how: Any) -> tuple[Tensor, Any]:
        """Run the op on whole sequences, [B,T,H,.]."""

    @abstractmethod
    def attend_step(self, q: Tensor, k: Tensor, v: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Run the op on one token, [B,H,.]."""


class LinearAttention(Attention):
    """phi(q) (phi(k)^T v): a state of H/G x F x (V + 1) numbers for any length.

    `options` are those of the feature map, and `denominator_eps`, what is added to the sum of the scores.
    """

    head_axis = 1

    def __init__(
        self, d_model: int, n_heads: int, *, feature_map: str, options: Mapping[str, Any] | None = None, **common: Any
    ) -> None:
        super().__init__(d_model, n_heads, **common)
        of_map = dict(options or {})
        self.eps = positive_float("denominator_eps", of_map.pop("denominator_eps", EPS))
        # One map for a key-value head and the queries that read it, or their features would not be shared.
        self.feature_map = build(feature_map, self.key_dim, self.n_kv_heads, **of_map)
        grouped = self.group > 1 and hasattr(self.feature_map, "n_heads")
        self._mapped = (_Grouped(self.feature_map) if grouped else self.feature_map,)  # a tuple: not a second submodule

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **how: Any) -> tuple[Tensor, State | None]:
        return linear_attention(q, k, v, feature_map=self._mapped[0], eps=self.eps, **how)

    def attend_step(self, q: Tensor, k: Tensor, v: Tensor, state: State | None) -> tuple[Tensor, State]:
        return linear_attention_step(q, k, v, state, feature_map=self._mapped[0], eps=self.eps)

    def empty_state(self, batch: int, *, device: torch.device | None = None, dtype: torch.dtype | None = None) -> State:
        wide = dtype if dtype == torch.float64 else torch.float32
        shape = (batch, self.n_kv_heads, self.feature_map.feature_dim)
        z = torch.zeros(shape, device=device, dtype=wide)
        return State(z.new_zeros(*shape, self.head_dim), z)

    def state_bytes(self, length: int, dtype: torch.dtype = torch.float32) -> int:
        sizes = {"feature_dim": self.feature_map.feature_dim, "value_dim": self.head_dim}
        return linear_bytes(length, heads=self.n_kv_heads, **sizes, dtype=dtype)


class CachedAttention(Attention):
    """Base of the layers whose state is every key and value so far."""

    def empty_state(
        self, batch: int, *, device: torch.device | None = None, dtype: torch.dtype | None = None
    ) -> KVState:
        k = torch.zeros(batch, 0, self.n_kv_heads, self.key_dim, device=device, dtype=dtype)
        return KVState(k, k.new_zeros(batch, 0, self.n_kv_heads, self.head_dim))

    def state_bytes(self, length: int, dtype: torch.dtype = torch.float32) -> int:
        return softmax_bytes(length, heads=self.n_kv_heads, head_dim=self.key_dim, value_dim=self.head_dim, dtype=dtype)


class SoftmaxAttention(CachedAttention):
    """Softmax attention."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **how: Any) -> tuple[Tensor, KVState | None]:
        return softmax_attention(q, k, v, **how)

    def attend_step(self, q: Tensor, k: Tensor, v: Tensor, state: KVState | None) -> tuple[Tensor, KVState]:
        return softmax_attention_step(q, k, v, state)


class WindowAttention(Attention):
    """Softmax over the last `window` tokens; its state is the keys and values of all but the newest."""

    def __init__(self, d_model: int, n_heads: int, *, window: int, **common: Any) -> None:
        super().__init__(d_model, n_heads, **common)
        if not self.causal:
            raise ValueError("mixer 'window' looks back only, but causal is False; use 'softmax' or a linear mixer")
        self.window = window

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **how: Any) -> tuple[Tensor, WindowState | None]:
        return sliding_window_attention(q, k, v, window=self.window, **how)

    def attend_step(self, q: Tensor, k: Tensor, v: Tensor, state: WindowState | None) -> tuple[Tensor, WindowState]:
        return sliding_window_attention_step(q, k, v, state, window=self.window)

    def empty_state(
        self, batch: int, *, device: torch.device | None = None, dtype: torch.dtype | None = None
    ) -> WindowState:
        k = torch.zeros(batch, 1, self.n_kv_heads, self.key_dim, device=device, dtype=dtype)
        return empty_state(k, k.new_zeros(batch, 1, self.n_kv_heads, self.head_dim), self.window)

    def state_bytes(self, length: int, dtype: torch.dtype = torch.float32) -> int:
        sizes = {"head_dim": self.key_dim, "value_dim": self.head_dim, "window": self.window}
        return window_bytes(length, heads=self.n_kv_heads, **sizes, dtype=dtype)


class _Grouped(FeatureMap):
    """A feature map of H/G heads, for q and k that have H: head h is mapped as head h // G."""

    def __init__(self, inner: FeatureMap) -> None:
        super().__init__(inner.head_dim, feature_dim=inner.feature_dim)
        self.core = inner.core
        self._inner = (inner,)  # a tuple: the parameters belong to the layer

    def prepare_q(self, x: Tensor) -> Tensor:  # [...,H,D] -> [...,H,D']
        return self._by_group(x, self._inner[0].prepare_q)

    def prepare_k(self, x: Tensor) -> Tensor:
        return self._by_group(x, self._inner[0].prepare_k)

    def _by_group(self, x: Tensor, prepare: Callable[[Tensor], Tensor]) -> Tensor:
        grouped = x.unflatten(-2, (self._inner[0].n_heads, -1)).transpose(-3, -2)  # [...,G,H/G,D]
        return prepare(grouped).transpose(-3, -2).flatten(-3, -2)


def head_width(d_model: int, n_heads: int) -> int:
    """Width of a head; d_model must be a multiple of n_heads."""
    if n_heads < 1 or d_model % n_heads:
        raise ValueError(
            f"d_model ({d_model}) must be a multiple of n_heads ({n_heads}); change one of them, or give head_dim"
        )
    return d_model // n_heads


def _heads(state: Any, axis: int, change: Any) -> Any:
    """The state with `change(x, axis)` applied to its tensors that have heads; a mask [B,T] has none."""
    return type(state)._make([x if x is None or x.ndim < 3 else change(x, axis) for x in state])
