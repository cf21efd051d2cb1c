"""Checks of convergence rates: Newton-like preconditioning by GD++ layers, and two noise levels by two DIAG layers.

    theorem 5.1   layers with xx = -1/(3 ν), ν the largest eigenvalue of Σ^l, map eigenvalues z -> z (1 - z/(3ν))²;
                  one gradient layer then solves least squares, in O(log κ + log log 1/ε) layers, κ = ν / μ
    lemma A.2     eigenvalues in [1, 1 + ε]  =>  |sum y_i x_i - w*| <= ε |w*|
    lemma A.3     κ' = (4/9) κ / (1 - 1/(3κ))²: at most .915 κ for κ >= 1.1, at most 1 + 2 ε² for κ = 1 + ε below
    theorem 5.2   x_i ~ N(0, I/n), noise s or t: yx, then yy, is ridge for both as n grows, with
                  yx = -(1 + s² + t²) / ((1 + s²)(1 + t²)),  yy = -1 / (n (1 + s² + t²))

Vladymyrov et al. 2024 (arXiv:2402.14180), section 5 and appendix; the closed form of theorem 5.2 and the counts of
theorem 5.1 are ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ...regress.gram import Gram
from ...regress.model import ICLConfig, ICLTransformer
from .recursion import from_omega
from .verify_check import EXACT, Check, error

COUNTS = {1.1: 4, 10.0: 8, 100.0: 11, 1e4: 16, 1e6: 22}  # κ -> preconditioning layers until κ - 1 < 1e-12
D, N = 10, 20
SIGMAS = (1.0, 3.0)
LENGTHS = {100: 200, 10_000: 50, 100_000: 5}  # theorem 5.2: examples -> sequences to average over
NEAR = {1.0: 0.02, 3.0: 0.05}  # theorem 5.2: relative distance to ridge at the largest n, by noise


def shrink(kappa: float) -> float:
    """Return the condition number after a layer with xx = -1/(3 ν), by lemma A.3."""
    return kappa * 4 / 9 / (1 - 1 / (3 * kappa)) ** 2


def layers_needed(kappa: float, to: float = 1e-12) -> int:
    """Return the number of preconditioning layers until κ - 1 < to."""
    count = 0
    while kappa - 1 >= to:
        kappa, count = shrink(kappa), count + 1
    return count


def with_eigenvalues(values: Tensor, generator: torch.Generator) -> Tensor:
    """Return examples x [N,d] whose Σ has these eigenvalues, in a random basis."""
    d = len(values)
    draw = [torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((N, d), (d, d))]
    left, basis = (torch.linalg.qr(value)[0] for value in draw)
    return (left * values.sqrt()) @ basis.mT


def lemma_a_2(generator: torch.Generator) -> list[Check]:
    """Check that for nearly white examples one plain sum solves least squares, up to ε."""
    worst = 0.0
    for epsilon in (0.5, 0.1, 1e-3):
        values = 1 + epsilon * torch.rand(D, generator=generator, dtype=torch.float64)
        x = with_eigenvalues(values, generator)
        y = torch.randn(N, generator=generator, dtype=torch.float64)
        gram = Gram.of(x, y)
        w = torch.linalg.solve(gram.sigma, gram.alpha)
        worst = max(worst, float((gram.alpha - w).norm() / w.norm()) / epsilon)
    return [Check("lemma-a.2", "|sum y x - w*| / (ε |w*|) for eigenvalues in [1, 1 + ε], the largest", worst, 1.0)]


def lemma_a_3(generator: torch.Generator, shrink: Callable[[float], float] = shrink) -> list[Check]:
    """Check the formula for one preconditioning layer against a network."""
    kappas = (1.05, 1.1, 3.0, 30.0, 1e4)
    measured = torch.tensor([_after_layer(kappa, generator) for kappa in kappas], dtype=torch.float64)
    stated = torch.tensor([shrink(kappa) for kappa in kappas], dtype=torch.float64)
    far = max(shrink(kappa) / kappa for kappa in torch.logspace(math.log10(1.1), 8, 500, dtype=torch.float64).tolist())
    near = max((shrink(1 + e) - 1) / e**2 for e in torch.linspace(1e-3, 0.1, 500, dtype=torch.float64).tolist())
    limit = (shrink(1 + 1e-4) - 1) / 1e-8
    return [
        Check("lemma-a.3", "κ' of a GD++ layer with xx = -1/(3 ν) is the formula's", error(measured, stated), 1e-9),
        Check("lemma-a.3", "κ'/κ for κ from 1.1 to 10⁸, the largest", far, 0.915),
        Check("lemma-a.3", "(κ' - 1)/ε² for κ = 1 + ε, ε up to 0.1, the largest", near, 2.0),
        Check("lemma-a.3", "its limit for small ε is 3/4: the distance from that", abs(limit - 0.75), 1e-3),
    ]


def _after_layer(kappa: float, generator: torch.Generator) -> float:
    """Return the condition number of the tokens' Σ after one layer, from examples with condition number κ."""
    values = torch.logspace(0, math.log10(kappa), D, dtype=torch.float64)
    x = with_eigenvalues(values, generator)
    y = torch.randn(1, N, generator=generator, dtype=torch.float64)
    omega = torch.tensor([[[-1 / (3 * kappa), 0.0], [0.0, 0.0]]], dtype=torch.float64)
    model = from_omega(omega, D, N).requires_grad_(False)
    after = model.tokens(x.unsqueeze(0), y, x[:1].unsqueeze(0))[1, 0, :N, :D]
    ends = torch.linalg.svdvals(after).square()
    return float(ends[0] / ends[-1])


def newton(kappa: float, largest: float, layers: int) -> ICLTransformer:
    """Return theorem 5.1's GD++ model: `layers` of preconditioning, then one gradient layer of step 2 / (ν' + μ')."""
    model = ICLTransformer(ICLConfig("gd++", layers + 1, D, N)).requires_grad_(False)
    model.q.fill_(1.0)
    model.p.zero_()
    low, high = largest / kappa, largest
    for layer in range(layers):
        gamma = 1 / (3 * high)
        model.p[layer, 0, 0] = -gamma
        low, high = (value * (1 - gamma * value) ** 2 for value in (low, high))
    model.p[layers, 0, 1] = -2 / (high + low)
    return model


def theorem_5_1(generator: torch.Generator) -> list[Check]:
    """Check how many layers reach least squares, by the formula and by a network, for the worst w*."""
    off = max(abs(layers_needed(kappa) - count) for kappa, count in COUNTS.items())
    kappa, largest = 30.0, 40.0
    x = with_eigenvalues(largest / torch.logspace(0, math.log10(kappa), D, dtype=torch.float64), generator)
    s = Gram.of(x.expand(D, N, D), x.mT).s  # one sequence for each w* = e_j
    eye = torch.eye(D, dtype=torch.float64)
    far = [float(torch.linalg.matrix_norm(newton(kappa, largest, k).weights(s) - eye, 2)) for k in range(10)]
    stated = [kappa]
    for _ in range(9):
        stated.append(shrink(stated[-1]))
    apart = max(abs(reached * (k + 1) / (k - 1) - 1) for reached, k in zip(far[:9], stated[:9], strict=True))
    counts = ", ".join(f"{count}" for count in COUNTS.values())
    return [
        Check("theorem-5.1", f"κ = 1.1, 10, 100, 10⁴, 10⁶: κ - 1 < 1e-12 after {counts} layers; off by", off, 0),
        Check("theorem-5.1", "κ = 30, l < 9 layers and a step: the distance is (κ^l - 1)/(κ^l + 1) |w*|", apart, 1e-5),
        Check("theorem-5.1", "κ = 30, 9 layers and a step: distance to least squares over |w*|", far[9], 1e-12),
        Check("theorem-5.1", "second order: distance of 8 layers over that of 7, squared", far[8] / far[7] ** 2, 2.0),
    ]


def two_noises(n: int, first: float, second: float) -> ICLTransformer:
    """Return theorem 5.2's two-layer DIAG model."""
    a, b = first**2, second**2
    omega = torch.zeros(2, 2, 2, dtype=torch.float64)
    omega[0, 1, 0] = -(1 + a + b) / ((1 + a) * (1 + b))
    omega[1, 1, 1] = -1 / (n * (1 + a + b))
    return from_omega(omega, D, n).requires_grad_(False)


def theorem_5_2(
    generator: torch.Generator, build: Callable[[int, float, float], ICLTransformer] = two_noises
) -> list[Check]:
    """Check that the closed form meets both conditions, and that the network approaches ridge as 1/sqrt(n)."""
    omega = build(N, *SIGMAS).omega()
    factors = [-omega[0, 1, 0] * (1 + N * sigma**2 * omega[1, 1, 1]) * (1 + sigma**2) for sigma in SIGMAS]
    exact = max(abs(float(factor) - 1) for factor in factors)
    far = {}
    for sigma in SIGMAS:
        far[sigma] = [_to_ridge(build(n, *SIGMAS), n, sigma, count, generator) for n, count in LENGTHS.items()]
    slope = max(abs(math.log(away[1] / away[0]) / math.log(100) + 0.5) for away in far.values())
    statement = "n = 100,000: relative distance to ridge at σ ="
    return [
        Check("theorem-5.2", "-yx (1 + n σ² yy) = 1/(1 + σ²) at both σ: relative error", exact, EXACT),
        *(Check("theorem-5.2", f"{statement} {sigma:g}", far[sigma][-1], near) for sigma, near in NEAR.items()),
        Check("theorem-5.2", "its exponent of n, from 100 to 10,000, is -1/2: off by", slope, 0.15),
    ]


def _to_ridge(model: ICLTransformer, n: int, sigma: float, sequences: int, generator: torch.Generator) -> float:
    """Return mean |w - ridge| over mean |ridge|, for sequences with x_i ~ N(0, I/n)."""
    away = size = 0.0
    for _ in range(sequences):
        x = torch.randn(n, D, generator=generator, dtype=torch.float64) / math.sqrt(n)
        task = torch.randn(D, generator=generator, dtype=torch.float64)
        y = x @ task + sigma * torch.randn(n, generator=generator, dtype=torch.float64)
        gram = Gram.of(x, y)
        ridge = torch.linalg.solve(gram.sigma + sigma**2 * torch.eye(D, dtype=torch.float64), gram.alpha)
        away += float((model.weights(gram.s) - ridge).norm())
        size += float(ridge.norm())
    return away / size
