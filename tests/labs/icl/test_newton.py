"""Levenberg-Marquardt: it finds the known minimum, never goes up, and a tempered loss is what it says."""

from __future__ import annotations

import math

import pytest
import torch

from linnet.labs.icl.engine import Pool, pool
from linnet.labs.icl.newton import each_loss, mean_loss, minimise
from linnet.labs.icl.noise import Noise
from linnet.labs.icl.recipes import frozen
from linnet.labs.icl.regression import Regression

PROBLEM = Regression(Noise.parse("U1"), d=3, n=12)


def one_layer(eta: float) -> tuple[torch.Tensor, torch.Tensor]:
    p = torch.full((1, 1, 2), -math.sqrt(eta), dtype=torch.float64)
    return p, -p


def test_one_layer_finds_the_least_squares_step() -> None:
    many = pool(PROBLEM, 2000, 1)
    p, q = one_layer(0.01)
    minimum = minimise(many, p, q, tolerance=1e-12)
    alpha = many.s[:, :3, 3]  # w = eta alpha: the best eta is a ratio of two sums
    best = float((alpha * many.target).sum() / alpha.square().sum())
    assert -float(minimum.p[0, 0, 1] * minimum.q[0, 0, 0]) == pytest.approx(best, rel=1e-6)
    assert minimum.loss == pytest.approx(mean_loss(many, minimum.p, minimum.q))


def test_it_never_goes_up_and_keeps_what_is_frozen() -> None:
    few = pool(PROBLEM, 200, 2)
    p, q = torch.full((2, 1, 2), -0.2, dtype=torch.float64), torch.full((2, 1, 2), 0.2, dtype=torch.float64)
    q[..., 1] = 0.0
    minimum = minimise(few, p, q, frozen=frozen(p), iterations=10)
    assert minimum.loss < mean_loss(few, p, q)
    assert bool((minimum.q[..., 1] == 0).all())


def test_weights_count() -> None:
    plain = pool(PROBLEM, 200, 3)
    twice = Pool(torch.cat([plain.s, plain.s[:50]]), torch.cat([plain.target, plain.target[:50]]))
    weighted = Pool(plain.s, plain.target, torch.tensor([2.0] * 50 + [1.0] * 150, dtype=torch.float64))
    a, b = (minimise(x, *one_layer(0.02), iterations=3, tolerance=0) for x in (twice, weighted))
    assert torch.allclose(a.p, b.p, atol=1e-12)
    assert a.loss == pytest.approx(b.loss)


def test_a_tempered_loss_is_a_logarithm_above_its_limit() -> None:
    few = pool(PROBLEM, 100, 4)
    p, q = one_layer(0.5)
    each, limit = each_loss(few, p, q), 1.0
    wanted = torch.tensor([x if x <= limit else limit * (1 + math.log(x / limit)) for x in each.tolist()])
    assert mean_loss(few, p, q, limit) == pytest.approx(float(wanted.mean()), rel=1e-6)
    assert mean_loss(few, p, q) == pytest.approx(float(each.mean()))


def test_one_exploding_sequence_does_not_hide_the_rest() -> None:
    few = pool(PROBLEM, 200, 5)
    s, target = few.s.clone(), few.target.clone()
    s[0] *= 1e4
    spoilt = Pool(s, target)
    minimum = minimise(spoilt, *one_layer(0.02), temper=30, tolerance=1e-9, iterations=50)
    clean = minimise(few, *one_layer(0.02), tolerance=1e-9)
    assert mean_loss(few, minimum.p, minimum.q) < 1.5 * clean.loss


def test_answers_that_are_no_numbers_are_a_loss_of_infinity() -> None:
    few = pool(PROBLEM, 20, 6)
    p = torch.full((5, 1, 2), 1e80, dtype=torch.float64)
    assert mean_loss(few, p, p) == math.inf
