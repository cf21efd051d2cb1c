"""Ridge in all its forms: against definitions and brute force on small problems, and by known losses on large ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from math import hypot

import pytest
import torch
from torch import Tensor

from linnet.labs.icl import baselines
from linnet.labs.icl.baselines import (
    CAPS,
    MULTIPLIERS,
    ada_rr,
    bayes,
    const_rr,
    gd_ada_rr,
    noise_estimate,
    ols,
    one_step,
    ridge,
    ridge_gcv,
    tune,
    tuned_rr,
)
from linnet.labs.icl.evaluate import Score, score
from linnet.labs.icl.noise import PAPER_NOISE, Noise
from linnet.labs.icl.regression import Batch, Regression
from linnet.regress.gram import Gram

EXACT = {"rtol": 1e-9, "atol": 1e-11}
BRUTE = {"rtol": 1e-5, "atol": 1e-5}  # of integrals on grids
ERRORS = 3  # standard errors that a loss may be off the known one
COUNT = 10_000  # sequences of an everyday comparison

# ½ oracle loss, and adjusted ½ losses over 100 000 sequences (Bayes 40 000):
# one step, OLS, ConstRR, AdaRR, TunedRR, Bayes.
KNOWN = {
    "U0": (0.0, 1.774, 0.0, 0.0, 0.0, 0.0, 0.0),
    "U1": (0.162, 1.646, 0.023, 0.0087, 0.0029, 0.0019, 0.0014),
    "U2": (0.506, 1.401, 0.237, 0.064, 0.0155, 0.0111, 0.0097),
    "U3": (0.882, 1.177, 0.780, 0.155, 0.033, 0.0234, 0.0220),
    "U4": (1.239, 1.009, 1.717, 0.262, 0.053, 0.0375, 0.0310),
    "U5": (1.564, 0.895, 3.065, 0.360, 0.069, 0.0500, 0.0396),
    "U6": (1.843, 0.830, 4.830, 0.453, 0.083, 0.0600, 0.0452),
    "U7": (2.086, 0.798, 7.000, 0.527, 0.097, 0.0693, 0.0466),
    "{1,3}": (1.230, 0.995, 1.564, 0.219, 0.053, 0.0217, 0.0059),
    "{1,3,5}": (1.847, 0.813, 4.671, 0.425, 0.083, 0.0552, 0.0281),
}
KNOWN_TUNING = {"U1": (1.3, 0.7), "U2": (1.2, 3.2), "U5": (1.3, 17.5), "{1,3}": (1.5, 9.0)}
# GD-AdaRR on U5 by steps: with each sequence's best step, and with 1/60.
KNOWN_DESCENT = {5: (0.182, 0.322), 10: (0.095, 0.136), 20: (0.071, 0.078), 50: (0.069, 0.068)}
DESCENT_DIGIT = 0.0005
# Fixed sigma on the U5 answers: Const 25/3, AdaRR, Tuned(1.3, 17.5), Bayes.
KNOWN_PROFILE = {0: (0.925, 0, 0, 0), 1: (0.595, 0.011, 0.016, 0.018), 3: (0.002, 0.090, 0.083, 0.054),
                 6: (1.799, 0.152, 0.403, 0.221)}  # fmt: skip


def draw(name: str = "U5", count: int = 50, d: int = 10, n: int = 20, seed: int = 0) -> Batch:
    return Regression(Noise.parse(name), d, n).sample(count, torch.Generator().manual_seed(seed))


def hat(x: Tensor, penalty: float) -> Tensor:
    """X (XᵀX + p I)⁻¹ Xᵀ of one sequence."""
    return x @ torch.linalg.solve(x.mT @ x + penalty * torch.eye(x.shape[-1], dtype=x.dtype), x.mT)


def close_to(known: float, result: Score, digit: float, count: int = 100_000) -> None:
    """Within the errors of both: ours by the sharp estimator, the known one by the plain estimator on `count`."""
    error = hypot(result.sharp_se, result.se * (result.count / count) ** 0.5)
    assert abs(result.sharp - known) <= ERRORS * error + digit, f"{result.sharp:.5f} ± {error:.5f} for {known}"


def check_problem(noise: Noise, count: int) -> None:
    batch = draw(noise.name, count, seed=11)
    gram = batch.gram
    pair = tune(gram, batch.weights, noise)
    oracle, *known = KNOWN[noise.name]
    answers = (one_step(gram, noise), ols(gram), const_rr(gram, noise), ada_rr(gram), tuned_rr(gram, *pair))
    scores = [score(w, batch) for w in answers]
    for want, result in zip(known, scores, strict=False):
        close_to(want, result, digit=0.0005 if want > 0.03 else 0.00005)
    best = score(bayes(gram, noise), batch)
    close_to(known[-1], best, digit=0.00005, count=40_000)
    floor = 0.5 * (ridge(gram, batch.sigma**2) - batch.weights).square().sum(-1)
    error = float(floor.std()) * hypot(count**-0.5, 100_000**-0.5)
    assert abs(float(floor.mean()) - oracle) <= ERRORS * error + 0.0005
    if noise.name in KNOWN_TUNING:
        c, cap = KNOWN_TUNING[noise.name]
        assert abs(pair[0] - c) < 0.25  # the loss is flat around the best pair
        assert abs(pair[1] - cap) < 0.25 * noise.largest**2


@pytest.mark.parametrize("name", ["U0", "U2", "U5", "{1,3}"])
def test_known_losses(name: str) -> None:
    check_problem(Noise.parse(name), COUNT)


@pytest.mark.slow
@pytest.mark.parametrize("noise", PAPER_NOISE, ids=lambda noise: noise.name)
def test_known_losses_of_all_problems(noise: Noise) -> None:
    check_problem(noise, 40_000)


@pytest.mark.parametrize("steps", [5, 10, 20, 50])
def test_gradient_steps_instead_of_inversions(steps: int) -> None:
    batch = draw("U5", COUNT, seed=12)
    for known, step in zip(KNOWN_DESCENT[steps], (None, 1 / 60), strict=True):
        close_to(known, score(gd_ada_rr(batch.gram, steps, step), batch), DESCENT_DIGIT)


def test_many_gradient_steps_are_the_inversion() -> None:
    gram = draw(count=20).gram
    torch.testing.assert_close(gd_ada_rr(gram, 20_000, 1 / 200), ada_rr(gram), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("sigma", sorted(KNOWN_PROFILE))
def test_known_profile_at_one_sigma(sigma: int) -> None:
    noise = Noise.parse("U5")
    batch = draw(f"={sigma}", COUNT, seed=13)
    gram = batch.gram
    answers = (const_rr(gram, noise), ada_rr(gram), tuned_rr(gram, 1.3, 17.5), bayes(gram, noise))
    for known, w in zip(KNOWN_PROFILE[sigma], answers, strict=True):
        close_to(known, score(w, batch), digit=0.0005, count=COUNT)


def test_bayes_is_below_all_others_and_const_rr_is_the_best_constant() -> None:
    for noise in (Noise.parse("U3"), Noise.parse("1,3,5")):
        batch = draw(noise.name, COUNT, seed=14)
        gram = batch.gram
        best = ridge(gram, batch.sigma**2)

        def gap(w: Tensor, best: Tensor = best) -> Tensor:
            return 0.5 * (w - best).square().sum(-1)

        def above(left: Tensor, right: Tensor) -> bool:
            more = left - right
            return float(more.mean()) > ERRORS * float(more.std()) / COUNT**0.5

        tuned = tuned_rr(gram, *tune(gram, batch.weights, noise))
        least = gap(bayes(gram, noise))
        others = (ols(gram), ada_rr(gram), const_rr(gram, noise), tuned, ridge_gcv(gram))
        assert all(above(gap(w), least) for w in others)
        constant = gap(const_rr(gram, noise))
        assert all(above(gap(ridge(gram, share * noise.mean_square)), constant) for share in (0.7, 1.4))


def test_ridge_solves_its_equations() -> None:
    batch = draw(count=7)
    penalty = torch.linspace(0, 30, 7, dtype=torch.float64)
    w = ridge(batch.gram, penalty)
    for x, y, p, result in zip(batch.x, batch.y, penalty, w, strict=True):
        rows = torch.cat([x, p.sqrt() * torch.eye(10, dtype=torch.float64)])  # least squares with d examples more
        want = torch.linalg.lstsq(rows, torch.cat([y, y.new_zeros(10)]).unsqueeze(-1)).solution.squeeze(-1)
        torch.testing.assert_close(result, want, **EXACT)


def test_the_noise_estimate_is_the_residual_over_what_is_spare() -> None:
    batch = draw(count=COUNT, name="=2")
    residual = batch.y - torch.einsum("bnd,bd->bn", batch.x, ols(batch.gram))
    result = noise_estimate(batch.gram)
    torch.testing.assert_close(result, residual.square().sum(-1) / 10, **EXACT)
    assert abs(float(result.mean()) - 4) < ERRORS * float(result.std()) / COUNT**0.5
    assert (noise_estimate(draw("U0").gram) >= 0).all()


def test_the_named_penalties() -> None:
    gram = draw().gram
    estimate = noise_estimate(gram)
    torch.testing.assert_close(ada_rr(gram), ridge(gram, estimate), **EXACT)
    torch.testing.assert_close(tuned_rr(gram, 1.5, 9.0), ridge(gram, torch.clamp(1.5 * estimate, max=9.0)), **EXACT)
    torch.testing.assert_close(const_rr(gram, Noise.parse("1,3")), ridge(gram, 5.0), **EXACT)
    torch.testing.assert_close(one_step(gram, Noise.parse("1,3")), gram.alpha / 36, **EXACT)
    assert float((1.5 * estimate).min()) < 9 < float((1.5 * estimate).max())


def test_tuning_finds_the_least_loss_on_its_grid() -> None:
    noise, batch = Noise.parse("1,3"), draw("1,3", 100)
    pairs = [(c, share * 9.0) for c, share in itertools.product(MULTIPLIERS, CAPS)]
    losses = [float((tuned_rr(batch.gram, *pair) - batch.weights).square().sum(-1).mean()) for pair in pairs]
    result = tune(batch.gram, batch.weights, noise)
    assert losses[pairs.index(result)] == pytest.approx(min(losses), rel=1e-9)
    assert tune(batch.gram, batch.weights, Noise.parse("U0")) == (1.0, 0.0)


def test_gcv_is_the_least_score_of_the_hat_matrix() -> None:
    batch, choices = draw(count=30, d=3, n=8), torch.logspace(-2, 2, 9, dtype=torch.float64)
    result, chosen = ridge_gcv(batch.gram, choices), set()
    for x, y, w in zip(batch.x, batch.y, result, strict=True):
        rest = [torch.eye(8, dtype=torch.float64) - hat(x, float(p)) for p in choices]
        scores = [float(8 * (r @ y).square().sum() / r.trace().square()) for r in rest]
        best = min(range(9), key=scores.__getitem__)
        chosen.add(best)
        torch.testing.assert_close(w, ridge(Gram.of(x, y), float(choices[best])), **EXACT)
    assert len(chosen) > 3


def test_gcv_needs_no_more_examples_than_features() -> None:
    batch = draw("=1", count=200, n=6)
    assert ridge_gcv(batch.gram).isfinite().all()
    assert score(ridge_gcv(batch.gram), batch).loss < 3


def brute_posterior_mean(x: Tensor, y: Tensor, sigma: Tensor, weight: Tensor) -> Tensor:
    """Prior times likelihood on a grid of w in each dimension and of sigma, of one sequence [n,d]."""
    axis = torch.linspace(-6, 6, 1201 if x.shape[-1] == 1 else 161, dtype=torch.float64)
    w = torch.cartesian_prod(*[axis] * x.shape[-1]).reshape(-1, x.shape[-1])  # [W,d]
    rss = (y - w @ x.mT).square().sum(-1)  # [W]
    log = -0.5 * w.square().sum(-1)[:, None] - 0.5 * rss[:, None] / sigma**2 - len(y) * sigma.log() + weight.log()
    share = torch.softmax(log.flatten(), 0).reshape(log.shape).sum(-1)
    return share @ w


@pytest.mark.parametrize("name", ["U2", "U5", "1,3", "=2"])
@pytest.mark.parametrize("d", [1, 2])
def test_bayes_against_integration_over_weights_and_sigma(name: str, d: int) -> None:
    noise, batch = Noise.parse(name), draw("=1.5", count=2, d=d, n=3, seed=5)
    result = bayes(batch.gram, noise)
    if noise.kind == "uniform":
        sigma = noise.largest * (torch.arange(200, dtype=torch.float64) + 0.5) / 200
        weight = torch.ones_like(sigma)
    else:
        sigma = torch.tensor(noise.values, dtype=torch.float64)
        weight = torch.ones_like(sigma)
    want = torch.stack([brute_posterior_mean(x, y, sigma, weight) for x, y in zip(batch.x, batch.y, strict=True)])
    torch.testing.assert_close(result, want, **BRUTE)


@pytest.mark.parametrize(("sigma", "n"), [(0.0, 20), (0.05, 20), (2.0, 20), (8.0, 20), (0.5, 400), (1.0, 10), (1.0, 4)])
def test_bayes_has_enough_points(sigma: float, n: int) -> None:
    gram, noise = draw(f"={sigma}", count=500, n=n).gram, Noise.parse("U5")
    torch.testing.assert_close(bayes(gram, noise), bayes(gram, noise, points=512), rtol=1e-5, atol=1e-6)


def test_bayes_without_noise_is_least_squares() -> None:
    quiet = draw("U0", count=200)
    for name in ("U0", "U5", "0,1"):
        torch.testing.assert_close(bayes(quiet.gram, Noise.parse(name)), quiet.weights, rtol=0, atol=1e-7)
    batch = draw("=2", count=200)
    torch.testing.assert_close(bayes(batch.gram, Noise.parse("=2")), ridge(batch.gram, 4.0), **EXACT)
    torch.testing.assert_close(bayes(batch.gram, Noise.parse("0,2")), ridge(batch.gram, 4.0), **EXACT)


def test_bayes_in_pieces_is_bayes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    gram, noise = draw(count=50).gram, Noise.parse("U5")
    whole = bayes(gram, noise)
    monkeypatch.setattr(baselines, "CHUNK", 7)
    torch.testing.assert_close(bayes(gram, noise), whole, **EXACT)


ALL: dict[str, Callable[[Gram], Tensor]] = {
    "ridge": lambda gram: ridge(gram, 2.0),
    "ols": ols,
    "const_rr": lambda gram: const_rr(gram, Noise.parse("U5")),
    "ada_rr": ada_rr,
    "tuned_rr": lambda gram: tuned_rr(gram, 1.3, 17.5),
    "gd_ada_rr": lambda gram: gd_ada_rr(gram, 5),
    "ridge_gcv": ridge_gcv,
    "one_step": lambda gram: one_step(gram, Noise.parse("U5")),
    "bayes": lambda gram: bayes(gram, Noise.parse("U5")),
}


@pytest.mark.parametrize("name", ALL)
def test_leading_axes_and_single_precision(name: str) -> None:
    answer, batch = ALL[name], draw(count=6)
    flat = answer(batch.gram)
    grid = answer(Gram(batch.gram.s.reshape(2, 3, 11, 11), batch.gram.n.reshape(2, 3)))
    torch.testing.assert_close(grid, flat.reshape(2, 3, 10), **EXACT)
    torch.testing.assert_close(answer(Gram.of(batch.x[0], batch.y[0])), flat[0], **EXACT)
    single = answer(Gram.of(batch.x.float(), batch.y.float()))
    assert single.dtype == torch.float64
    torch.testing.assert_close(single, flat, rtol=1e-2, atol=1e-2)


def test_refusals() -> None:
    gram, few = draw(count=2).gram, draw(count=2, n=10).gram
    for call in (noise_estimate, ada_rr, lambda g: tuned_rr(g, 1.0, 1.0), lambda g: gd_ada_rr(g, 3)):
        with pytest.raises(ValueError, match="10 examples of 10 features leave nothing to estimate the noise from"):
            call(few)
    for seed in range(20):  # rounding makes about half of them look solvable
        with pytest.raises(ValueError, match="9 examples do not fix 10 weights without a penalty"):
            ols(draw(count=1, n=9, seed=seed).gram)
    with pytest.raises(ValueError, match=r"20 examples do not fix 2 weights without a penalty \(Sigma is singular\)"):
        ols(Gram.of(torch.ones(20, 2), torch.ones(20)))
    with pytest.raises(ValueError, match="0 examples do not fix 3 weights"):
        ols(Gram.zeros(3))
    for penalty in (-1.0, float("nan")):
        with pytest.raises(ValueError, match=f"the penalty is {penalty}; accepted: numbers of 0 or more"):
            ridge(gram, penalty)
    with pytest.raises(ValueError, match="steps is 0"):
        gd_ada_rr(gram, 0)
    with pytest.raises(ValueError, match=r"the step size is -0\.1"):
        gd_ada_rr(gram, 3, -0.1)
    with pytest.raises(ValueError, match="accepted: a list of numbers above 0"):
        ridge_gcv(gram, torch.tensor([0.0, 1.0]))
    with pytest.raises(ValueError, match="points is 1"):
        bayes(gram, Noise.parse("U5"), points=1)
