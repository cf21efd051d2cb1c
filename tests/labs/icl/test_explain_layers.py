"""Layers read as optimiser steps: every number against the formula it stands for."""

from __future__ import annotations

from dataclasses import asdict

import pytest
import torch

from linnet.labs.icl.explain_layers import (
    dead_omegas,
    left_over,
    measured_omega,
    noise_levels,
    read_layers,
    run_at,
)
from linnet.labs.icl.noise import Noise
from linnet.labs.icl.recursion import apply, from_omega
from linnet.regress.model import ICLConfig, ICLTransformer
from tests.labs.icl.explained import SOLUTIONS, small, solution

EXACT = 1e-9  # relative; sums over sequences in float64


@pytest.mark.parametrize("name", SOLUTIONS)
def test_measured_omegas_of_a_diag_model_are_its_own(name: str) -> None:
    model = solution(name)
    layers = read_layers(model, [run_at(model, sigma, 50, 0) for sigma in noise_levels(Noise.parse(name))])
    for layer, omega in zip(layers, SOLUTIONS[name], strict=True):
        assert layer.omega == pytest.approx(omega, rel=EXACT, abs=1e-15)
        assert (layer.nearest, layer.residual) == (None, None)


def test_full_weights_have_a_nearest_diag_and_a_residual() -> None:
    own = solution("U5")
    model = ICLTransformer(ICLConfig("full", 3, heads=2))
    p, q = (value.detach() for value in own.matrices())
    model.load_state_dict({"p": p, "q": q})
    exact = read_layers(model, [run_at(model, 1.0, 50, 0)])
    assert exact[1].nearest == pytest.approx(SOLUTIONS["U5"][1], rel=EXACT)
    assert max(layer.residual or 0 for layer in exact) < 1e-6
    other = 0.01 * torch.randn(p.shape, generator=torch.Generator().manual_seed(0), dtype=p.dtype)
    other[-1, :, :-1] = 100.0  # rows of the last layer that no answer uses
    model.load_state_dict({"p": p + other, "q": q})
    off = read_layers(model, [run_at(model, 1.0, 50, 0)])
    assert all(0.01 < (layer.residual or 0) < 0.9 for layer in off[:2])
    assert 0 < (off[2].residual or 0) < 0.2
    assert off[2].omega[2] == pytest.approx(SOLUTIONS["U5"][2][2], rel=0.2)


def test_sums_are_those_of_the_tokens() -> None:
    model = small("full", layers=3)
    run = run_at(model, 1.0, 20, 0)
    with torch.no_grad():
        tokens = model.tokens(run.batch.x, run.batch.y, run.batch.query.unsqueeze(1))[:, :, :-1]
    torch.testing.assert_close(run.s, tokens.mT @ tokens, rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_step_and_momentum_are_the_two_parts_of_lemma_4_4(layer: int) -> None:
    """One sequence, so that medians are the numbers themselves: step = along(-Pi Sigma (a w* - w)) + momentum."""
    model = solution("U5")
    run = run_at(model, 5.0, 1, 3)
    at = read_layers(model, [run])[layer].at[0]
    m, u, a, w = (value[layer, 0] for value in run.trace)
    sigma, alpha = run.gram.sigma[0], run.gram.alpha[0]
    star = torch.linalg.solve(sigma, alpha)
    yx, yy = SOLUTIONS["U5"][layer][2:]
    g = sigma @ (a * star - w)
    direct = -yx * m.T @ (m + torch.outer(u, star)) @ g
    rho = (run.batch.y[0] - run.batch.x[0] @ star).square().sum()
    by_u = -a * rho * yx * m.T @ u
    assert at.step == pytest.approx(float((direct + by_u) @ g / (g @ g)), rel=EXACT)
    assert at.momentum == pytest.approx(float(by_u @ g / (g @ g)), rel=EXACT)
    assert at.rescale == pytest.approx(1 + yy * float(run.s[layer, 0, -1, -1]), rel=EXACT)
    after = at.rescale * w + direct + by_u
    torch.testing.assert_close(after, run.trace.w[layer + 1, 0], rtol=EXACT, atol=EXACT)
    assert at.gap == pytest.approx(float((after - run.oracle[0]).square().sum() / 2), rel=EXACT)
    assert at.moved == pytest.approx(float((after - w).norm() / run.oracle[0].norm()), rel=EXACT)


def test_first_layer_reads_off_its_omegas() -> None:
    model = solution("U5")
    run = run_at(model, 2.0, 101, 0)
    at = read_layers(model, [run])[0].at[0]
    xx, xy, yx, yy = SOLUTIONS["U5"][0]
    values = torch.linalg.eigvalsh(run.gram.sigma)
    assert at.step == pytest.approx(-yx, rel=EXACT)
    assert at.momentum == 0
    assert at.adapt == pytest.approx(1 + xy * float(run.gram.lam.median()), rel=EXACT)
    assert at.rescale == at.a == pytest.approx(1 + yy * float(run.gram.lam.median()), rel=EXACT)
    assert at.condition == pytest.approx(float(torch.linalg.cond(run.gram.sigma).median()), rel=1e-6)
    assert at.condition_after < at.condition
    most, least = values[:, -1].median(), values[:, 0].median()
    assert at.spectrum[0] == pytest.approx(float(1 + xx * most), rel=EXACT)
    assert at.spectrum[2] == pytest.approx(float(1 + xx * least), rel=EXACT)
    assert at.w == pytest.approx(float(-yx * run.gram.alpha.norm(dim=-1).median()), rel=EXACT)


def test_what_ols_leaves_over() -> None:
    run = run_at(small(), 1.5, 20, 0)
    star = torch.linalg.solve(run.gram.sigma, run.gram.alpha)
    squares = (run.batch.y - apply(run.batch.x, star)).square().sum(-1)
    torch.testing.assert_close(left_over(run.gram), squares, rtol=1e-7, atol=1e-9)
    few = run_at(small(d=5, n=3), 1.5, 20, 0)
    assert float(left_over(few.gram).max()) < 1e-8
    assert read_layers(small(d=5, n=3), [few])[0].at[0].condition < 1e6  # of the 3 directions that there are


@pytest.mark.parametrize("layers", [1, 3])
def test_dead_omegas_change_no_answer_and_the_others_do(layers: int) -> None:
    omega = -0.01 * torch.ones(layers, 2, 2, dtype=torch.float64)
    s = run_at(from_omega(omega), 1.0, 5, 0).gram.s
    for index in range(layers):
        dead = dead_omegas(layers, index)
        for place, name in enumerate(("xx", "xy", "yx", "yy")):
            other = omega.clone()
            other[index].view(-1)[place] += 0.002
            with torch.no_grad():
                same = torch.allclose(from_omega(other).weights(s), from_omega(omega).weights(s), rtol=1e-10)
            assert same == (name in dead)


def test_runs_of_several_noise_levels_count_together() -> None:
    runs = [run_at(small("full"), sigma, 30, 0) for sigma in (0.0, 2.0)]
    together = measured_omega(runs)
    assert not torch.allclose(together, measured_omega(runs[:1]))
    for layer in read_layers(small("full"), runs):
        assert [at.sigma for at in layer.at] == [0.0, 2.0]
        assert len(asdict(layer)["at"]) == 2


@pytest.mark.parametrize(("name", "levels"), [("U5", (0, 5)), ("1,3,5", (1, 5)), ("=2", (2,)), ("U0", (0,))])
def test_noise_levels(name: str, levels: tuple[float, ...]) -> None:
    assert noise_levels(Noise.parse(name)) == levels


def test_sequences_that_overflow_are_left_out_or_named() -> None:
    model = from_omega(1e30 * torch.ones(8, 2, 2, dtype=torch.float64), d=2, n=3)
    with pytest.raises(ValueError, match="all 20 sequences overflow at sigma = 1; explain this model with less noise"):
        run_at(model, 1.0, 20, 0)
