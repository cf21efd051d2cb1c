"""Hedgehog: exponentials of a learned projection and of its negative, trained to mimic softmax attention.

    phi(x) = softmax([W x, -W x])        over the 2 D features of one token; W starts as the identity

Zhang et al. 2024, arXiv:2402.04347. D head width; W is learned per head and, as in the paper, separate for q and k.
The softmax is over features, not over time: it bounds the exponential and sees one token only.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import whole
from .common import one_of
from .core import Core
from .learned import LearnedMap

ACTIVATIONS = ("joint", "halves", "exp")


class Hedgehog(LearnedMap):
    """phi(x) = activation([W x + b, -(W x + b)]), width 2 D.

    activation  "joint": one softmax over all 2 D, as in the authors' later code; "halves": [softmax(W x),
                softmax(-W x)], as in LoLCATs (Zhang et al. 2024, arXiv:2410.10254); "exp": the exponential of the
                paper's equation, which overflows where |W x| exceeds 88 in float32 (11 in float16)
    bias        add b, starting at 0
    tie_qk      share W between q and k
    """

    def __init__(
        self, head_dim: int, n_heads: int = 1, *, activation: str = "joint", bias: bool = False, tie_qk: bool = False
    ) -> None:
        whole("head_dim", head_dim, 1)
        super().__init__(head_dim, n_heads, rows=head_dim, feature_dim=2 * head_dim, bias=bias, tie_qk=tie_qk)
        self.activation = one_of("activation", activation, ACTIVATIONS)
        self.core = Core("exp") if activation == "exp" else Core("identity")
        for part in (self.q, self.k):
            if part is not None:
                part.weight.data.copy_(torch.eye(head_dim))

    def activate(self, y: Tensor) -> Tensor:  # [..., H, D] -> [..., H, 2 D]
        if self.activation == "halves":
            return torch.cat([y.softmax(-1), (-y).softmax(-1)], dim=-1)
        both = torch.cat([y, -y], dim=-1)
        return both if self.activation == "exp" else both.softmax(-1)
