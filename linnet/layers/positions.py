"""Position encodings: learned, sinusoidal or rotary, functions of a token's position alone.

    sinusoidal   p[2i] = sin(t / base^(2i/E)),  p[2i+1] = cos(...)      Vaswani et al. 2017, arXiv:1706.03762
    rotary       (x1, x2) -> (x1 cos - x2 sin, x1 sin + x2 cos)         Su et al. 2021, arXiv:2104.09864

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


def angles(positions: Tensor, width: int, base: float = BASE, scaling: Mapping[str, Any] | None = None) -> Tensor:
    """Return t / base^(2i/width) for i < width/2, [..., width/2], in float64 since t may be in the millions.

    `scaling` changes the frequencies; see rope_scaling.py.
    """
    i = torch.arange(0, width, 2, dtype=torch.float64, device=positions.device)
    plain = base ** (-i / width)
    frequencies = plain if scaling is None else scale_frequencies(plain, base, scaling)
    return positions.to(torch.float64)[..., None] * frequencies


class Rotation(NamedTuple):
    """The rotation at each position, the same for all heads; computed once for all layers."""

    cos: Tensor  # [...,1,D/2]
    sin: Tensor


def rotation(
    positions: Tensor, width: int, dtype: torch.dtype, base: float = BASE, scaling: Mapping[str, Any] | None = None
) -> Rotation:
    """Return the rotation at positions [B,T], [T] or [B] for heads of even `width` D; yarn also scales q and k."""
    turn, factor = angles(positions, width, base, scaling).unsqueeze(-2), attention_factor(scaling)
    cos, sin = (turn.cos(), turn.sin()) if factor == 1.0 else (turn.cos() * factor, turn.sin() * factor)
    return Rotation(cos.to(dtype), sin.to(dtype))


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
