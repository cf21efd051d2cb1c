"""Adaptation to real data: the NumPy layers equal the model, units do not matter, bad results fall back to ridge."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from linnet.regress.adapt import Layers, Problem, adaptive_ridge, answer, distrust, solve, strongest
from linnet.regress.model import ICLConfig, ICLTransformer
from linnet.regress.moments import Array, Moments
from tests.regress.spec_models import diag_u5

EXACT = 1e-10


def data(n: int, d: int = 10, noise: float = 1.0, seed: int = 0, mix: float = 0.0) -> tuple[Array, Array, Array]:
    """Draw (x, y, w); `mix` makes columns share one direction."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) + mix * rng.normal(size=(n, 1))
    w = rng.normal(size=d)
    return x, x @ w + noise * rng.normal(size=n), w


def problem(n: int, mix: float = 0.0) -> Problem:
    x, y, _ = data(n, mix=mix)
    e = np.column_stack([x, y])
    s = e.T @ e * 20 / n
    return Problem(s[:-1, :-1], s[:-1, -1], float(s[-1, -1]), n)


@pytest.mark.parametrize("kind", ["diag", "full", "gd++"])
def test_numpy_layers_equal_the_model(kind: str) -> None:
    config = ICLConfig(kind, layers=3, d=4, n=9, heads=2)
    model = ICLTransformer(config, torch.Generator().manual_seed(1))
    s = torch.randn(5, 9, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    s = s @ s.T
    np.testing.assert_allclose(Layers(model).weights(s.numpy()), model.weights(s).detach().numpy(), atol=EXACT)


@pytest.mark.parametrize("n", [8, 20, 60, 1000])
def test_units_and_origin_do_not_matter(n: int) -> None:
    x, y, _ = data(n)
    layers = Layers(diag_u5())
    plain = answer(layers, Moments.of(x, y))
    moved = answer(layers, Moments.of(x * 1000 - 7, 50 * y + 3))
    np.testing.assert_allclose(moved.coef, plain.coef * 50 / 1000, rtol=1e-6)
    assert moved.intercept == pytest.approx(50 * plain.intercept + 3 + 7 * moved.coef.sum(), rel=1e-6)
    assert plain.fallback is None


def test_few_features_are_the_same_as_features_of_zeros() -> None:
    x, y, _ = data(30, d=4)
    layers = Layers(diag_u5())
    few, padded = (answer(layers, Moments.of(z, y)).coef for z in (x, np.column_stack([x, np.zeros((30, 3))])))
    np.testing.assert_allclose(padded[4:], 0, atol=EXACT)
    assert np.linalg.norm(padded[:4] - few) < 0.1 * np.linalg.norm(few)  # three features fewer to spend examples on


@pytest.mark.parametrize(("n", "most"), [(20, 1.2), (50, 1.2), (400, 1.08), (5000, 1.02)])
def test_close_to_the_ridge_that_knows_the_noise_at_any_number_of_examples(n: int, most: float) -> None:
    """Without steps 4 and 5 of adapt.py the shrinkage of 20 examples stays, and the ratio grows with n."""
    lost, best = [], []
    for seed in range(40):
        x, y, w = data(n, noise=3.0, seed=seed)
        oracle = np.linalg.solve(x.T @ x + 9.0 * np.eye(10), x.T @ y)
        best.append(((oracle - w) ** 2).sum())
        lost.append(((answer(Layers(diag_u5()), Moments.of(x, y)).coef - w) ** 2).sum())
    assert np.mean(lost) < most * np.mean(best)


def test_correlated_columns_are_brought_into_range() -> None:
    """Features that share a direction ten times stronger than the rest: unshrunk, the model's answer explodes."""
    x, y, _ = data(200, mix=3.0)
    result = answer(Layers(diag_u5()), Moments.of(x, y))
    assert result.fallback is None
    assert np.var(y - x @ result.coef) < 0.2 * np.var(y)
    assert not np.abs(Layers(diag_u5()).weights(np.corrcoef(np.column_stack([x, 4 * y]).T) * 20 * 15)).max() < 10


def test_strongest_is_a_bound_and_close() -> None:
    sigma = problem(40, mix=2.0).sigma
    top = np.linalg.eigvalsh(sigma)[-1]
    assert top <= strongest(sigma) <= top * 10**0.125


def test_a_model_that_diverges_is_set_aside_for_ridge() -> None:
    x, y, w = data(40, noise=0.5)
    for gain in (3.0, 1e3, -1.0):
        result = answer(Layers(diag_u5(gain)), Moments.of(x, y))
        assert result.fallback is not None
        assert ((result.coef - w) ** 2).sum() < 0.05 * (w**2).sum()


def test_each_reason_of_the_guard() -> None:
    given = problem(40)
    right = np.linalg.solve(given.sigma, given.alpha)
    assert distrust(given, right) is None
    assert "not finite" in str(distrust(given, right * np.nan))
    assert "worse than zero weights" in str(distrust(given, 2.5 * right))
    assert "less than a quarter" in str(distrust(given, 0.01 * right))
    assert distrust(given, 0.5 * right) is None


def test_ridge_of_the_fallback_is_close_to_the_truth_with_many_and_modest_with_few() -> None:
    layers = Layers(diag_u5())
    many = problem(2000)
    np.testing.assert_allclose(adaptive_ridge(layers, many), np.linalg.solve(many.sigma, many.alpha), rtol=0.05)
    few = problem(5)  # singular
    assert 0.01 * few.lam < few.residual(adaptive_ridge(layers, few)) < few.lam  # neither the mean nor an overfit


def test_nothing_to_learn_from_gives_the_mean() -> None:
    layers = Layers(diag_u5())
    for x, y in ((np.ones((5, 2)), np.arange(5.0)), (np.arange(10.0).reshape(5, 2), np.full(5, 2.0))):
        result = answer(layers, Moments.of(x, y))
        assert (result.coef == 0).all()
        assert result.intercept == y.mean()
        assert result.fallback is None


def test_a_perfect_fit_ends_the_rounds() -> None:
    x, y, w = data(500, noise=0.0)
    np.testing.assert_allclose(answer(Layers(diag_u5()), Moments.of(x, y)).coef, w, atol=0.02)
    zero = problem(500)._replace(alpha=np.zeros(10))
    result, reason = solve(Layers(diag_u5()), zero)
    assert reason is None
    assert (result == 0).all()
