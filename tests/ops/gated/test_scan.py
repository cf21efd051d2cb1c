"""The two ways of a linear scan against a plain loop: numbers, gradients, decays of 0 and 1."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from linnet.ops.gated.scan import doubling, linear_scan
from tests.ops import rules

WAYS = {"in order": linear_scan, "doubling": doubling}


def loop(a: Tensor, b: Tensor, start: Tensor) -> Tensor:
    found, h = [], start
    for t in range(b.shape[0]):
        h = a[t] * h + b[t]
        found.append(h)
    return torch.stack(found)


def draw(length: int) -> list[Tensor]:
    """a [T,2,1,4], the same for the three rows of b [T,2,3,4]; every third a is 0 or 1."""
    g = torch.Generator().manual_seed(length)
    a = torch.rand(length, 2, 1, 4, generator=g, dtype=torch.float64)
    a[::3] = a[::3].round()
    b, start = (torch.randn(*shape, generator=g, dtype=torch.float64) for shape in ((length, 2, 3, 4), (2, 3, 4)))
    return [a, b, start]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("length", [1, 2, 7, 16])
def test_equals_the_loop(way: str, length: int) -> None:
    found, want = rules.leaves(draw(length)), rules.leaves(draw(length))
    h, known = WAYS[way](*found), loop(*want)
    rules.assert_close([h], [known])
    rules.assert_close(rules.slopes((h,), found), rules.slopes((known,), want))


def test_second_derivatives() -> None:
    found, want = rules.leaves(draw(5)), rules.leaves(draw(5))
    first = rules.slopes((linear_scan(*found),), found, create_graph=True)
    known = rules.slopes((loop(*want),), want, create_graph=True)
    square = [tuple(x.square() for x in parts) for parts in (first, known)]
    rules.assert_close(rules.slopes(square[0], found), rules.slopes(square[1], want))


def test_inputs_are_left_as_they_were() -> None:
    given = draw(6)
    kept = [x.clone() for x in given]
    linear_scan(*rules.leaves(given)).sum().backward()
    for x, y in zip(given, kept, strict=True):
        assert torch.equal(x, y)
