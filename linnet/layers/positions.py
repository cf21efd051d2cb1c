"""Position encodings: learned, sinusoidal or rotary, functions of a token's position alone.

    sinusoidal   p[2i] = sin(t / base^(2i/E)),  p[2i+1] = cos(...)      Vaswani et al. 2017, arXiv:1706.03762
    rotary       (x1, x2) -> (x1 cos - x2 sin, x1 sin + x2 cos)         Su et al. 2021, arXiv:2104.09864

The pairs of a head of width D are (i, i + D/2). A rotary `fraction` turns the first fraction D/2 of them, with the
frequencies of a head of width fraction D, and leaves the others: the same numbers as in models that turn the first
fraction D numbers of a head, in another order, which an importer accounts for in the weights (decision 0045).

Positions count real tokens from the start of the sequence and are part of the state, so every form, split and padding
of a sequence sees the same ones. Rotary rotates q and k before the feature map (ops/fused/projection.py). The score
then depends on t - s alone if the kernel is a function of q . k (Taylor, polynomial, softmax).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .rope_scaling import attention_factor, scale_frequencies

BASE = 10_000.0


def angles(
    positions: Tensor,
    width: int,
    base: float = BASE,
    scaling: Mapping[str, Any] | None = None,
    fraction: float | None = None,
) -> Tensor:
    """Return t / base^(2i/width) for i < width/2, [..., width/2], in float64 since t may be in the millions.

    `scaling` changes the frequencies; see rope_scaling.py. With a `fraction`, the last angles are zero.
    """
    turned = turned_width(width, fraction)
    i = torch.arange(0, turned, 2, dtype=torch.float64, device=positions.device)
    plain = base ** (-i / turned)
    frequencies = plain if scaling is None else scale_frequencies(plain, base, scaling)
    if turned < width:
        frequencies = torch.cat([frequencies, frequencies.new_zeros((width - turned + 1) // 2)])
    return positions.to(torch.float64)[..., None] * frequencies


def turned_width(width: int, fraction: float | None) -> int:
    """Return how many numbers of a head of that width rotary positions turn; raise ValueError unless it is even."""
    if fraction is None:
        return width
    turned = int(width * fraction)
    if turned < 2 or turned % 2 or width % 2:
        raise ValueError(
            f"rotary_fraction is {fraction!r}, which turns {turned} of the {width} numbers of a head; accepted: a "
            "fraction that makes both even, and at least 2 of them"
        )
    return turned


class Rotation(NamedTuple):
    """The rotation at each position, the same for all heads; computed once for all layers."""

    cos: Tensor  # [...,1,D/2]
    sin: Tensor


def rotation(
    positions: Tensor,
    width: int,
    dtype: torch.dtype,
    base: float = BASE,
    scaling: Mapping[str, Any] | None = None,
    fraction: float | None = None,
) -> Rotation:
    """Return the rotation at positions [B,T], [T] or [B] for heads of even `width` D; yarn also scales q and k."""
    turn, factor = angles(positions, width, base, scaling, fraction).unsqueeze(-2), attention_factor(scaling)
    cos, sin = turn.cos(), turn.sin()
    if factor != 1.0:
        size = turn_sizes(turn, width, factor, fraction)
        cos, sin = cos * size, sin * size
    return Rotation(cos.to(dtype), sin.to(dtype))


def turn_sizes(like: Tensor, width: int, factor: float, fraction: float | None) -> Tensor:  # [D/2]
    """Return `factor` for the pairs that turn, 1 for the others."""
    sizes = like.new_ones(width // 2)
    sizes[: turned_width(width, fraction) // 2] = factor
    return sizes


class Rotary(NamedTuple):
    """What the rotations of a model have in common; a layer adds the width of its heads."""

    base: float = BASE
    scaling: Mapping[str, Any] | None = None
    fraction: float | None = None

    def at(self, positions: Tensor, width: int, dtype: torch.dtype) -> Rotation:
        """Return the rotation at these positions for heads of `width`."""
        return rotation(positions, width, dtype, self.base, self.scaling, self.fraction)

    def of(self, x: Tensor, positions: Tensor | Rotation | None, width: int) -> Rotation:
        """Return `positions` as a rotation for x [B,T,E] or [B,E]; None: x begins a sequence."""
        if isinstance(positions, Rotation):
            return positions
        if positions is None:
            positions = torch.arange(x.shape[1], device=x.device) if x.ndim == 3 else x.new_zeros(x.shape[0])
        return self.at(positions, width, x.dtype)


class LearnedPositions(nn.Module):
    """A learned vector for each position below `max_length`."""

    def __init__(self, max_length: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(max_length, d_model))

    def forward(self, positions: Tensor, dtype: torch.dtype) -> Tensor:  # [...] -> [...,E]
        last, most = _last(positions), self.weight.shape[0]
        if last >= most:
            raise beyond_learned(last, most)
        return nn.functional.embedding(positions, self.weight).to(dtype)


class SinusoidalPositions(nn.Module):
    """Sines and cosines of geometrically spaced frequencies, without a last position; only the amplitude is learned.

    It starts at `gain`: an amplitude of 1 would drown embeddings of standard deviation 0.02.
    """

    def __init__(self, d_model: int, base: float = BASE, gain: float = 1.0) -> None:
        super().__init__()
        self.d_model, self.base = d_model, base
        self.gain = nn.Parameter(torch.tensor(gain))

    def forward(self, positions: Tensor, dtype: torch.dtype) -> Tensor:  # [...] -> [...,E]
        turn = angles(positions, self.d_model, self.base)
        both = torch.stack((turn.sin(), turn.cos()), dim=-1).flatten(-2)  # sin, cos, sin, cos ...
        return both[..., : self.d_model].to(dtype) * self.gain.to(dtype)


def beyond_learned(last: int, most: int) -> ValueError:
    """Return the error for a position beyond the learned ones."""
    return ValueError(
        f"position {last} is beyond the {most} learned positions; use a model with max_length > {last}, "
        "or positions 'sinusoidal', 'rotary' or 'none', which have no limit"
    )


def _last(positions: Tensor) -> int:
    if torch.compiler.is_compiling() or positions.numel() == 0 or positions.is_meta:
        return -1
    return int(positions.max())
