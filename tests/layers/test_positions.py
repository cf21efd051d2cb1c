"""Positions: the formulas of the papers, and the one property rotary is chosen for."""

from __future__ import annotations

import math

import pytest
import torch

from linnet.layers.positions import LearnedPositions, SinusoidalPositions, rotation
from linnet.ops.fused.projection import turn

CLOSE = {"atol": 1e-10, "rtol": 1e-10}


def test_sinusoidal_is_the_formula() -> None:
    table = SinusoidalPositions(6)(torch.tensor([0, 3, 1_000_000]), torch.float64)
    for row, t in enumerate((0, 3, 1_000_000)):
        for i in range(3):
            angle = t / 10_000 ** (2 * i / 6)
            assert table[row, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-9)
            assert table[row, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-9)


def test_an_odd_width_is_cut() -> None:
    assert SinusoidalPositions(5)(torch.arange(4), torch.float32).shape == (4, 5)


def turned(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """x [B,T,H,D] with the heads of all tokens turned."""
    cos, sin = (t.flatten(0, -2) for t in rotation(positions, x.shape[-1], x.dtype))
    return turn(x.flatten(2), (cos, sin)).view(x.shape)


def test_rotary_scores_depend_on_the_distance_alone() -> None:
    q, k = torch.randn(2, 1, 1, 3, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    scores = [(turned(q, torch.tensor([t + 7])) * turned(k, torch.tensor([t]))).sum() for t in (0, 5, 100_000)]
    torch.testing.assert_close(scores[1], scores[0], **CLOSE)
    torch.testing.assert_close(scores[2], scores[0], **CLOSE)
    assert abs((turned(q, torch.tensor([8])) * turned(k, torch.tensor([0]))).sum() - scores[0]) > 1e-3


def test_rotation_keeps_the_length() -> None:
    x = torch.randn(2, 5, 3, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(turned(x, torch.arange(5)).norm(dim=-1), x.norm(dim=-1), **CLOSE)


def test_learned_positions_end() -> None:
    table = LearnedPositions(4, 3)
    assert table(torch.tensor([[0, 3]]), torch.float32).shape == (1, 2, 3)
    with pytest.raises(ValueError, match="position 4 is beyond the 4 learned positions"):
        table(torch.tensor([4]), torch.float32)
