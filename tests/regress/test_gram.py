"""Gram: adding, removing, merging and fading equal the sums of the resulting examples."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from linnet.regress.gram import Gram

EXACT = {"rtol": 1e-12, "atol": 1e-12}


def draw(*lead: int, n: int = 7, d: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    return (
        torch.randn(*lead, n, d, generator=g, dtype=torch.float64),
        torch.randn(*lead, n, generator=g, dtype=torch.float64),
    )


def close(left: Gram, right: Gram) -> None:
    torch.testing.assert_close(left.s, right.s, **EXACT)
    torch.testing.assert_close(left.n, right.n, **EXACT)


def test_the_sums_of_two_examples_by_hand() -> None:
    """(1, 1) and (2, 3): Sigma = 5, alpha = 7, lambda = 10."""
    gram = Gram.of(torch.tensor([[1.0], [2.0]]), torch.tensor([1.0, 3.0]))
    assert gram.s.tolist() == [[5.0, 7.0], [7.0, 10.0]]
    assert (gram.sigma.tolist(), gram.alpha.tolist(), float(gram.lam)) == ([[5.0]], [7.0], 10.0)
    assert (gram.d, float(gram.n)) == (1, 2.0)


def test_the_parts_are_the_sums_they_are_named_for() -> None:
    x, y = draw(4, 2)
    gram = Gram.of(x, y)
    torch.testing.assert_close(gram.sigma, torch.einsum("abni,abnj->abij", x, x), **EXACT)
    torch.testing.assert_close(gram.alpha, torch.einsum("abn,abni->abi", y, x), **EXACT)
    torch.testing.assert_close(gram.lam, y.square().sum(-1), **EXACT)
    assert gram.n.tolist() == [[7.0, 7.0]] * 4
    assert gram.d == 3


@pytest.mark.parametrize("lead", [(), (5,)])
def test_one_by_one_is_all_at_once(lead: tuple[int, ...]) -> None:
    x, y = draw(*lead)
    gram = Gram.zeros(3)
    for i in range(7):
        gram = gram.add(x[..., i : i + 1, :], y[..., i : i + 1])
    close(gram, Gram.of(x, y))


def test_a_window_forgets_its_oldest() -> None:
    x, y = draw()
    close(Gram.of(x, y).remove(x[:3], y[:3]), Gram.of(x[3:], y[3:]))


def test_two_devices_are_one() -> None:
    x, y = draw()
    close(Gram.of(x[:2], y[:2]).merge(Gram.of(x[2:], y[2:])), Gram.of(x, y))


def test_fading_weighs_the_past() -> None:
    x, y = draw()
    weight = torch.cat([torch.full((4,), 0.5), torch.ones(3)]).double()
    faded = Gram.of(x[:4], y[:4]).decay(0.5).add(x[4:], y[4:])
    close(faded, Gram(Gram.of(weight.sqrt()[:, None] * x, weight.sqrt() * y).s, weight.sum()))


def test_values_are_never_changed_in_place() -> None:
    x, y = draw()
    gram = Gram.of(x, y)
    before = gram.s.clone()
    gram.add(x, y), gram.remove(x, y), gram.decay(0.1), gram.merge(gram)
    assert torch.equal(gram.s, before)


def test_single_precision_examples_are_added_in_the_precision_of_the_sums() -> None:
    x, y = draw()
    gram = Gram.zeros(3).add(x.float(), y.float())
    assert gram.s.dtype == torch.float64
    close(gram, Gram.of(x.float().double(), y.float().double()))


@pytest.mark.parametrize(
    ("x", "y"),
    [((3,), (3,)), ((3, 2), (4,)), ((0, 2), (0,)), ((3, 0), (3,)), ((3, 2), (3, 1))],
)
def test_wrong_shapes_are_named(x: tuple[int, ...], y: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"accepted: x \[...,n,d\] and y \[...,n\]"):
        Gram.of(torch.ones(x), torch.ones(y))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_are_refused(bad: float) -> None:
    x, y = draw()
    with pytest.raises(ValueError, match="y holds NaN or infinity"):
        Gram.of(x, y.clone().fill_(bad))
    with pytest.raises(ValueError, match="x holds NaN or infinity"):
        Gram.zeros(3).add(x.clone().fill_(bad), y)


def test_other_refusals() -> None:
    x, y = draw()
    gram = Gram.of(x, y)
    with pytest.raises(ValueError, match="7 examples cannot be removed from 2"):
        Gram.of(x[:2], y[:2]).remove(x, y)
    with pytest.raises(ValueError, match="2 features and the sums 3"):
        gram.add(x[:, :2], y)
    with pytest.raises(ValueError, match="2 features and the sums 3"):
        gram.merge(Gram.zeros(2))
    for factor in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match=f"the factor is {factor}"):
            gram.decay(factor)
    with pytest.raises(ValueError, match="d is 0; accepted: one feature or more"):
        Gram.zeros(0)
