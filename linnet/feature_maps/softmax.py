"""Softmax over the features of one token: a bounded exponential map.

    phi(x) = softmax(x),   each entry in (0, 1), the entries sum to 1

Shen et al. 2018 (Efficient attention), arXiv:1812.01243. There the queries are normalised like this and the keys over
time; here both are normalised over features, so that a map sees one token at a time. D head width, width D.
"""

from __future__ import annotations

from torch import Tensor

from .common import check_width, wide_dtype
from .elementwise import Elementwise


class SoftmaxFeatures(Elementwise):
    """phi(x) = softmax(x) over the D features of one token; finite, with finite gradients, for any finite input."""

    def prepare_q(self, x: Tensor) -> Tensor:  # [..., D] -> [..., D]
        check_width(x, self.head_dim, "SoftmaxFeatures")
        return x.softmax(-1, dtype=wide_dtype(x)).to(x.dtype)

    def prepare_k(self, x: Tensor) -> Tensor:
        return self.prepare_q(x)
