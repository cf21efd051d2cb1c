"""Profiles against sigma and distances to known methods, beside the spec's numbers and methods run step by step."""

from __future__ import annotations

import pytest
import torch

from linnet.labs.icl.baselines import Spectrum, spectrum
from linnet.labs.icl.explain_profiles import Profiles, baselines, distances, filtered, relative, sigma_grid, step_sizes
from linnet.labs.icl.noise import Noise
from linnet.labs.icl.recursion import from_omega
from linnet.labs.icl.regression import Regression
from linnet.regress.gram import Gram
from tests.labs.icl.explained import small, solution

EXACT = 1e-9
SPEC = 0.02  # what the spec's third decimals and 4,000 sequences can differ by


@pytest.fixture(scope="module")
def gram() -> Gram:
    return Regression(Noise.parse("U2"), d=4, n=9).sample(25, torch.Generator().manual_seed(0)).gram


@pytest.fixture(scope="module")
def basis(gram: Gram) -> Spectrum:
    return spectrum(gram)


@pytest.mark.parametrize(
    ("name", "first", "last", "count"), [("U5", 0, 10, 17), ("1,3", 0, 6, 11), ("U0", 0, 1, 5), ("U1", 0, 2, 9)]
)
def test_grid_runs_past_the_training_range_to_twice_its_top(name: str, first: float, last: float, count: int) -> None:
    grid = sigma_grid(Noise.parse(name))
    assert (grid[0], grid[-1], len(grid)) == (first, last, count)
    assert grid == sorted(set(grid))
    assert Noise.parse(name).largest in grid


def test_profile_of_the_spec_solution() -> None:
    """Section 7: mean and median at sigma 1, 3, 4 and the share that exceeds 50 at 5 and 6."""
    profiles = Profiles(solution("1,3"), Noise.parse("1,3"), 4000, 0)
    for sigma, mean, median in ((1.0, 0.024, 0.009), (3.0, 0.061, 0.027), (4.0, 0.14, 0.087)):
        score = profiles.at(sigma)["model"]
        assert score.sharp == pytest.approx(mean, abs=SPEC / 2)
        assert score.median == pytest.approx(median, abs=SPEC / 2)
    far = profiles.at(6.0)["model"]
    assert far.diverged == pytest.approx(0.067, abs=SPEC)
    assert far.sharp > 1e3
    assert far.median == pytest.approx(0.58, abs=0.1)


@pytest.mark.parametrize(
    ("sigma", "spec"),
    [
        (1.0, {"ConstRR": 0.595, "AdaRR": 0.011, "TunedRR": 0.016, "Bayes": 0.018}),
        (3.0, {"ConstRR": 0.002, "AdaRR": 0.090, "TunedRR": 0.083, "Bayes": 0.054}),
        (5.0, {"ConstRR": 0.847, "AdaRR": 0.146, "TunedRR": 0.116, "Bayes": 0.075}),
    ],
)
def test_baselines_of_the_spec(sigma: float, spec: dict[str, float]) -> None:
    result = Profiles(solution("U5"), Noise.parse("U5"), 4000, 0).at(sigma)
    for name, loss in spec.items():
        assert result[name].sharp == pytest.approx(loss, abs=2 * SPEC), name


def test_layers_are_scored_and_the_last_is_the_model() -> None:
    result = Profiles(small(layers=3), Noise.parse("U2"), 50, 0).at(1.0)
    assert [name for name in result if name.startswith("after")] == ["after 1", "after 2", "after 3"]
    assert result["after 3"] == result["model"]
    assert result["after 1"] != result["model"]


def test_noise_is_not_estimated_from_too_few_examples() -> None:
    assert list(baselines(Noise.parse("U0"), d=5, n=4, seed=0)) == []
    assert list(baselines(Noise.parse("U2"), d=5, n=5, seed=0)) == ["ConstRR", "Bayes"]
    assert list(baselines(Noise.parse("U2"), d=5, n=6, seed=0)) == ["ConstRR", "AdaRR", "TunedRR", "Bayes"]


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_filters_are_gradient_descent_and_newton(steps: int, gram: Gram, basis: Spectrum) -> None:
    size = 0.01
    w = torch.zeros_like(gram.alpha)
    inverse = size * torch.eye(gram.d, dtype=torch.float64).expand_as(gram.sigma)
    for _ in range(steps):
        w = w + size * (gram.alpha - (gram.sigma @ w.unsqueeze(-1)).squeeze(-1))
        inverse = inverse @ (2 * torch.eye(gram.d) - gram.sigma @ inverse)
    newton = (inverse @ gram.alpha.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(filtered(basis, size, steps), w, rtol=EXACT, atol=EXACT)
    torch.testing.assert_close(filtered(basis, size, 2**steps), newton, rtol=EXACT, atol=EXACT)


def test_filter_of_a_direction_without_examples_is_finite() -> None:
    few = Regression(Noise.parse("U2"), d=4, n=2).sample(10, torch.Generator().manual_seed(0)).gram
    w = sum(0.01 * (torch.eye(4) - 0.01 * few.sigma).matrix_power(k) @ few.alpha.unsqueeze(-1) for k in range(3))
    torch.testing.assert_close(filtered(spectrum(few), 0.01, 3), w.squeeze(-1), rtol=EXACT, atol=EXACT)


def test_a_layer_that_is_gradient_descent_is_found_to_be_it(basis: Spectrum) -> None:
    """One layer with a step of the grid: distance 0 to gradient descent, at that very step."""
    batch = Regression(Noise.parse("U2"), d=4, n=9).sample(200, torch.Generator().manual_seed(5))
    size = step_sizes(spectrum(batch.gram))[40]
    model = from_omega(torch.tensor([[[0.0, 0.0], [-size, 0.0]]], dtype=torch.float64), d=4, n=9)
    (result,) = distances(model, Noise.parse("U2"), 200, 5)
    assert result["gd"] < EXACT
    assert result["gd step"] == size
    assert result["newton"] > 0.01
    assert result["ridge"] > 0.1
    assert result["bayes"] > 0.1


def test_relative_distance() -> None:
    w = torch.tensor([[2.0, 0.0], [0.0, 3.0], [1.0, 0.0]])
    assert relative(w, torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])) == 1.0
