"""Random features: phi(q) . phi(k) estimates a kernel that has no finite features, with error about 1 / sqrt(F).

    FAVOR+          phi(x) = exp(W u - |u|^2 / 2) / sqrt(F)               ->  exp(scale q . k)
    random Fourier  phi(x) = [cos(W u), sin(W u)] sqrt(2 / F)             ->  exp(-scale |q - k|^2 / 2)

with u = sqrt(scale) x and scale = 1 / sqrt(D) unless given. D head width, F features. The rows of W are Gaussian,
orthogonal in blocks of D (Yu et al. 2016, arXiv:1610.09072): each estimate stays unbiased, its variance is lower.
W is drawn when the map is built, kept in the state dict, shared by q, k and all heads; only `redraw` changes it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log
from typing import Any

import torch
from torch import Tensor

from ..errors import whole
from .base import FeatureMap
from .common import check_width, positive_float, product
from .core import Core


class RandomMap(FeatureMap):
    """A map with a drawn matrix W [rows, D].

    The first draw comes from `generator`, or from `seed` if None. `redraw(generator)` draws from that generator;
    `redraw()` takes the next draw of `seed`, counted by the buffer `draws`, so a reloaded map continues where it
    stopped.
    """

    projection: Tensor
    draws: Tensor

    def __init__(
        self,
        head_dim: int,
        *,
        rows: int,
        feature_dim: int,
        scale: float | None,
        orthogonal: bool,
        seed: int,
        generator: torch.Generator | None,
    ) -> None:
        super().__init__(head_dim, feature_dim=feature_dim)
        whole("seed", seed, 0, 2**63 - 1, hint="pass a torch.Generator as generator=")
        self.scale = head_dim**-0.5 if scale is None else positive_float("scale", scale)
        self.orthogonal, self.seed = orthogonal, seed
        self.register_buffer("projection", torch.empty(rows, head_dim))
        self.register_buffer("draws", torch.zeros((), dtype=torch.long))
        if not self.projection.is_meta:  # on the meta device W comes with the state dict
            self.redraw(generator)

    @torch.no_grad()
    def redraw(self, generator: torch.Generator | None = None) -> None:
        """Redraw W. The features of every later call change, so an existing state becomes invalid."""
        if generator is None:
            generator = nth_generator(self.seed, int(self.draws))
        draw = orthogonal_rows if self.orthogonal else gaussian_rows
        # a new tensor, not an in-place update: a pending backward pass keeps the old one
        rows, dim = self.projection.shape
        self.projection = draw(rows, dim, generator).to(self.projection)
        self.draws = self.draws + 1

    def project(self, x: Tensor) -> Tensor:  # [..., D] -> [..., rows], W sqrt(scale) x in float32 or wider
        check_width(x, self.head_dim, type(self).__name__)
        return product("...d,rd->...r", x, self.projection) * self.scale**0.5

    def prepare_k(self, x: Tensor) -> Tensor:
        return self.prepare_q(x)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        # .half() and .bfloat16() would round W and thus every feature: it stays float32 or wider
        kept = self.projection
        super()._apply(fn, recurse)
        if self.projection.dtype in (torch.float16, torch.bfloat16):
            self.projection = kept.to(self.projection.device)
        return self

    def extra_repr(self) -> str:
        return f"head_dim={self.head_dim}, feature_dim={self.feature_dim}, scale={self.scale:.4g}, seed={self.seed}"


class Favor(RandomMap):
    """FAVOR+, positive orthogonal random features of the softmax kernel exp(scale q . k).

    Choromanski et al. 2020 (Performer), arXiv:2009.14794, lemma 1. `antithetic` uses exp(+W u) and exp(-W u) for half
    as many rows, the paper's hyperbolic form; it needs an even `num_features` (2 D when None). With independent rows
    the relative variance is (e^z - 1) / F, z = scale |q + k|^2, and 1 - e^-z times that when antithetic.

    There is no stabiliser: the usual maximum over the sequence lets the future change the past, and a maximum per token
    would change phi. Overflow needs none, since W u - |u|^2 / 2 <= |w|^2 / 2, about D / 2. But the features of a token
    with |u|^2 / 2 far above 87 (10 in float16) vanish: keep |x|^2 below about 100 sqrt(D).
    """

    core = Core("exp")

    def __init__(
        self,
        head_dim: int,
        *,
        num_features: int | None = None,
        scale: float | None = None,
        orthogonal: bool = True,
        antithetic: bool = False,
        seed: int = 0,
        generator: torch.Generator | None = None,
    ) -> None:
        width = 2 * whole("head_dim", head_dim, 1) if num_features is None else num_features
        whole("num_features", width, 1)
        rows = even_half(width, "antithetic features") if antithetic else width
        super().__init__(
            head_dim,
            rows=rows,
            feature_dim=width,
            scale=scale,
            orthogonal=orthogonal,
            seed=seed,
            generator=generator,
        )
        self.antithetic = antithetic

    def prepare_q(self, x: Tensor) -> Tensor:  # [..., D] -> [..., F], the logarithm of phi
        w = self.project(x)
        if self.antithetic:
            w = torch.cat([w, -w], dim=-1)
        square = x.to(w.dtype).square().sum(-1, keepdim=True) * self.scale
        return (w - (square + log(self.feature_dim)) / 2).to(x.dtype)

    def kernel(self, q: Tensor, k: Tensor) -> Tensor:  # [..., D], [..., D] -> [...]
        """Return exp(scale q . k), the mean of phi(q) . phi(k) over draws."""
        return ((q * k).sum(-1) * self.scale).exp()


class RandomFourier(RandomMap):
    """Random Fourier features of the Gaussian kernel exp(-scale |q - k|^2 / 2).

    Rahimi and Recht, NeurIPS 2007; as attention, Peng et al. 2021, arXiv:2103.02143. Bounded for any input, but a
    weight, and so the normaliser, can be negative. `num_features` is even (2 D when None): a cosine and a sine per row.
    """

    def __init__(
        self,
        head_dim: int,
        *,
        num_features: int | None = None,
        scale: float | None = None,
        orthogonal: bool = True,
        seed: int = 0,
        generator: torch.Generator | None = None,
    ) -> None:
        width = 2 * whole("head_dim", head_dim, 1) if num_features is None else num_features
        super().__init__(
            head_dim,
            rows=even_half(width, "a cosine and a sine per row"),
            feature_dim=width,
            scale=scale,
            orthogonal=orthogonal,
            seed=seed,
            generator=generator,
        )

    def prepare_q(self, x: Tensor) -> Tensor:  # [..., D] -> [..., F]
        w = self.project(x)
        return (torch.cat([w.cos(), w.sin()], dim=-1) * (2 / self.feature_dim) ** 0.5).to(x.dtype)

    def kernel(self, q: Tensor, k: Tensor) -> Tensor:  # [..., D], [..., D] -> [...]
        """Return exp(-scale |q - k|^2 / 2), the mean of phi(q) . phi(k) over draws."""
        return ((q - k).square().sum(-1) * (-self.scale / 2)).exp()


def even_half(num_features: int, why: str) -> int:
    """Return num_features / 2; raise ValueError if it is odd or not positive."""
    if whole("num_features", num_features, 1) % 2:
        raise ValueError(f"num_features ({num_features}) must be even: {why}")
    return num_features // 2


def nth_generator(seed: int, n: int) -> torch.Generator:
    """Return the generator of the n-th draw of `seed`; unlike with seed + n, streams of nearby seeds do not overlap."""
    seeds = torch.randint(2**62, (n + 1,), generator=torch.Generator().manual_seed(seed), device="cpu")
    return torch.Generator().manual_seed(int(seeds[-1]))


def gaussian_rows(rows: int, dim: int, generator: torch.Generator) -> Tensor:
    """Return [rows, dim] independent standard normals, drawn in float64."""
    return torch.randn(rows, dim, dtype=torch.float64, generator=generator, device=generator.device)


def orthogonal_rows(rows: int, dim: int, generator: torch.Generator) -> Tensor:
    """Return [rows, dim] standard normal rows, orthogonal within blocks of `dim`."""
    blocks = []
    for start in range(0, rows, dim):
        q, r = torch.linalg.qr(gaussian_rows(dim, dim, generator))
        q = q * r.diagonal().sign()  # without the signs q is not uniform over rotations and phi is biased
        lengths = gaussian_rows(dim, dim, generator).norm(dim=1, keepdim=True)
        blocks.append((q * lengths)[: rows - start])
    return torch.cat(blocks)
