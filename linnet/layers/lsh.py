"""LSHAttention: Reformer's attention within buckets, as a mixer with the same result for any split.

    y = W_o lsh(rotate(W_q x), W_v x) + b_o         keys are the queries at unit length; ops/softmax/lsh.py

Kitaev et al. 2020, arXiv:2001.04451. What it saves is time: a query looks at most at rounds * span tokens (twice that
when not causal). Its state is every key and value so far, like that of softmax attention, because a token of any age
may be the last of its bucket.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import ArgumentError, is_whole, whole
from ..feature_maps.random import RandomMap
from ..ops.fused.projection import rotate_heads
from ..ops.softmax.lsh import lsh_attention, lsh_attention_step
from ..ops.state import KVState
from .attention import CachedAttention
from .positions import Rotation


class LSHAttention(CachedAttention):
    """Softmax over the last `span` tokens of the query's bucket in each of `rounds` rounds.

    `n_buckets` is even and fixed: it may not depend on a length that a stream does not know. About T / n_buckets tokens
    share a bucket; a `span` below that forgets the older ones. `redraw` draws other buckets; nothing else does.
    """

    separate_keys = False

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        rounds: int = 4,
        n_buckets: int = 16,
        span: int = 32,
        seed: int = 0,
        generator: torch.Generator | None = None,
        **common: Any,
    ) -> None:
        whole("rounds", rounds, 1)
        if not is_whole(n_buckets, 2) or n_buckets % 2:
            raise ArgumentError("n_buckets", n_buckets, "an even number, 2 or more")
        whole("span", span, 1)
        super().__init__(d_model, n_heads, **common)
        if self.group > 1:
            raise ValueError(
                f"mixer 'lsh' makes its keys from its queries, as many as heads, {n_heads}; "
                f"n_kv_heads is {self.n_kv_heads}: leave it out"
            )
        self.rounds, self.n_buckets, self.span = rounds, n_buckets, span
        self.rotations = Rotations(self.key_dim, rounds, n_heads, n_buckets, seed, generator)

    def redraw(self, generator: torch.Generator | None = None) -> None:
        """Other buckets from here on: from `generator`, or the next of the seed. A running state stays valid."""
        self.rotations.redraw(generator)

    def project(self, x: Tensor, positions: Tensor | Rotation | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """q [...,H,D], again q, v [...,H,V], and the gate [...,H V]."""
        q, v, gate = self.qkv(x).split((self.widths[0], self.widths[2], self.gate), dim=-1)
        q, v = q.unflatten(-1, (-1, self.key_dim)), v.unflatten(-1, (-1, self.head_dim))
        if self.rotary:
            q = rotate_heads(q, self.turns.of(x, positions, self.key_dim))
        return q, q, v, gate

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **how: Any) -> tuple[Tensor, KVState | None]:
        return lsh_attention(q, v, self.rotations.matrices, span=self.span, **how)

    def attend_step(self, q: Tensor, k: Tensor, v: Tensor, state: KVState | None) -> tuple[Tensor, KVState]:
        return lsh_attention_step(q, v, self.rotations.matrices, state, span=self.span)


class Rotations(RandomMap):
    """The directions of the buckets: drawn once, kept in the state dict, never rounded to half precision."""

    def __init__(
        self, head_dim: int, rounds: int, n_heads: int, n_buckets: int, seed: int, generator: torch.Generator | None
    ) -> None:
        rows = rounds * n_heads * n_buckets // 2
        super().__init__(
            head_dim, rows=rows, feature_dim=rows, scale=None, orthogonal=False, seed=seed, generator=generator
        )
        self.sizes = (rounds, n_heads, n_buckets // 2, head_dim)

    @property
    def matrices(self) -> Tensor:  # [R,H,buckets/2,D]
        return self.projection.view(self.sizes)
