"""ReBased: a quadratic kernel with learned scale and vertex, so that a weight can reach zero.

    kappa(q, k) = (a_Q(q) . a_K(k))^2 / D,     a(x) = gamma * norm(x) + beta

Aksenov et al. 2024, arXiv:2402.10644. D head width, H heads; width D (D + 1) / 2 through symmetric features.
The paper writes "x^2"; the authors' code squares the dot product, as here. Squaring each coordinate instead gives the
weaker kernel sum_i a_i^2 b_i^2 of width D: it is `square="elementwise"`, for comparison only.

The defaults are the authors' code: one LayerNorm over all H * D numbers of a token before the split into heads,
eps 1e-5, gamma = 1, beta = 0, and separate parameters for q and k. flash-linear-attention's map is
`ReBased(D, norm_scope="per_head", affine="shared", tie_qk=True)`. The two are not interchangeable.

    layer: (x - mean) / sqrt(var + eps)      rms: x / sqrt(mean(x^2) + eps)      l2: x / sqrt(sum(x^2) + eps)
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from ..errors import whole
from .base import FeatureMap
from .common import check_heads, check_width, one_of, positive_float, wide_dtype
from .core import Core

NORMS = ("layer", "rms", "l2")
NORM_SCOPES = ("joint", "per_head", "none")
AFFINES = ("per_head", "shared", "none")
SQUARES = ("outer", "elementwise")

# Options of ReBased: the rows of the paper's ablation (table 1), then controls that are not in the paper.
ABLATIONS: dict[str, dict[str, Any]] = {
    "x^2": {"norm_scope": "none", "affine": "none"},
    "norm(x)^2": {"affine": "none"},
    "(gamma x)^2": {"norm_scope": "none", "use_beta": False},
    "(gamma x + beta)^2": {"norm_scope": "none"},
    "(gamma norm(x) + beta)^2": {},
    "element-wise square": {"square": "elementwise"},
    "rms norm": {"norm": "rms"},
    "l2 norm": {"norm": "l2"},
    "norm per head": {"norm_scope": "per_head"},
    "shared affine": {"affine": "shared"},
    "tied q and k": {"tie_qk": True},
}


class NormAffine(nn.Module):
    """a(x) = gamma * norm(x) + beta over [..., H, D], one token at a time; either part may be absent."""

    def __init__(
        self,
        n_heads: int,
        head_dim: int,
        *,
        norm: str,
        norm_scope: str,
        affine: str,
        use_gamma: bool,
        use_beta: bool,
        eps: float,
    ) -> None:
        super().__init__()
        self.n_heads, self.head_dim, self.norm, self.eps = n_heads, head_dim, norm, eps
        # only these two depend on the head axis; the others take any number of heads
        self.needs_heads = norm_scope == "joint" or affine == "per_head"
        shape = (n_heads, head_dim) if affine == "per_head" else (head_dim,)
        learned = affine != "none"
        self.gamma = nn.Parameter(torch.ones(shape)) if learned and use_gamma else None
        self.beta = nn.Parameter(torch.zeros(shape)) if learned and use_beta else None
        self.over = {"joint": (n_heads, head_dim), "per_head": (head_dim,), "none": ()}[norm_scope]  # the norm's axes
        self.fused = norm == "layer" and self.over == shape  # torch's layer norm then includes the affine part

    def forward(self, x: Tensor) -> Tensor:  # [..., H, D] -> [..., H, D], in the dtype of x
        if self.needs_heads:
            check_heads(x, self.n_heads, self.head_dim, "ReBased")
        else:
            check_width(x, self.head_dim, "ReBased")
        wide = wide_dtype(x, self.gamma, self.beta)
        gamma, beta = (None if p is None else p.to(wide) for p in (self.gamma, self.beta))
        if self.fused:
            return layer_norm(x.to(wide), self.over, gamma, beta, self.eps).to(x.dtype)
        a = self._normalize(x.to(wide))
        a = a if gamma is None else a * gamma
        return (a if beta is None else a + beta).to(x.dtype)

    def _normalize(self, x: Tensor) -> Tensor:
        if not self.over:
            return x
        if self.norm == "layer":
            return layer_norm(x, self.over, eps=self.eps)
        axes = tuple(range(-len(self.over), 0))
        squares = x.square().sum(axes, keepdim=True)
        size = squares / prod(self.over) if self.norm == "rms" else squares
        return x * (size + self.eps).rsqrt()


class ReBased(FeatureMap):
    """kappa(q, k) = (a_Q(q) . a_K(k))^2 / D with a(x) = gamma * norm(x) + beta; see the module docstring.

    norm        "layer", "rms" or "l2"
    norm_scope  "joint": over all heads of the token; "per_head": over each head; "none": no norm, `norm` is ignored
    affine      "per_head": gamma and beta [H, D]; "shared": [D], the same for all heads; "none"
    use_gamma, use_beta    set one to False to omit it, as in the paper's ablation (see `ABLATIONS`)
    tie_qk      share one set of parameters between q and k
    square      "outer": (a . b)^2 / D; "elementwise": sum_i a_i^2 b_i^2
    """

    def __init__(
        self,
        head_dim: int,
        n_heads: int = 1,
        *,
        norm: str = "layer",
        norm_scope: str = "joint",
        affine: str = "per_head",
        use_gamma: bool = True,
        use_beta: bool = True,
        tie_qk: bool = False,
        square: str = "outer",
        eps: float = 1e-5,
    ) -> None:
        super().__init__(whole("head_dim", head_dim, 1))
        self.n_heads = whole("n_heads", n_heads, 1)
        self.norm = one_of("norm", norm, NORMS)
        self.norm_scope = one_of("norm_scope", norm_scope, NORM_SCOPES)
        self.affine = one_of("affine", affine, AFFINES)
        self.square = one_of("square", square, SQUARES)
        self.tie_qk = tie_qk
        self.core = Core("polynomial", (0.0, 0.0, 1.0 / head_dim)) if square == "outer" else Core("identity")
        self.feature_dim = self.core.feature_dim(head_dim)
        positive_float("eps", eps)
        affines = [
            NormAffine(
                n_heads,
                head_dim,
                norm=norm,
                norm_scope=norm_scope,
                affine=affine,
                use_gamma=use_gamma,
                use_beta=use_beta,
                eps=eps,
            )
            for _ in "qk"
        ]
        self.q = affines[0]
        self.k = None if tie_qk else affines[1]

    def prepare_q(self, x: Tensor) -> Tensor:  # [..., H, D] -> [..., H, D]
        return self._square(self.q(x))

    def prepare_k(self, x: Tensor) -> Tensor:  # [..., H, D] -> [..., H, D]
        return self._square(self.q(x) if self.k is None else self.k(x))

    def _square(self, a: Tensor) -> Tensor:
        return a.square() if self.square == "elementwise" else a

    def extra_repr(self) -> str:
        return (
            f"head_dim={self.head_dim}, n_heads={self.n_heads}, norm={self.norm!r}, "
            f"norm_scope={self.norm_scope!r}, affine={self.affine!r}, tie_qk={self.tie_qk}, square={self.square!r}"
        )
