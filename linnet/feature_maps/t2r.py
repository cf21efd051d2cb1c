"""T2R: a learned linear map followed by a relu, used to turn a trained transformer into a recurrent network.

    phi(x) = relu(W x + b)

Kasai et al. 2021, arXiv:2103.13076. W [F, D] and b [F] are learned per head; F may be smaller or larger than D. The
paper writes one phi for queries and keys, so `tie_qk` is on by default; turn it off for separate maps.
"""

from __future__ import annotations

import torch
from torch import nn

from ..errors import whole
from .core import Core
from .learned import LearnedMap


class T2R(LearnedMap):
    """phi(x) = relu(W x + b), width `feature_dim` (head_dim when None).

    W and b are initialised uniformly in +-1 / sqrt(head_dim), as in a linear layer, from `generator` or torch's global
    one. A feature whose W x + b is negative for every token gets no gradient.
    """

    core = Core("relu")

    def __init__(
        self,
        head_dim: int,
        n_heads: int = 1,
        *,
        feature_dim: int | None = None,
        bias: bool = True,
        tie_qk: bool = True,
        generator: torch.Generator | None = None,
    ) -> None:
        whole("head_dim", head_dim, 1)
        width = head_dim if feature_dim is None else whole("feature_dim", feature_dim, 1)
        super().__init__(head_dim, n_heads, rows=width, feature_dim=width, bias=bias, tie_qk=tie_qk)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(head_dim**-0.5), head_dim**-0.5, generator=generator)
