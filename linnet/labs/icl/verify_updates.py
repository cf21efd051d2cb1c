"""Checks of a DIAG layer's update of w: gradient, momentum, adaptive step and rescaling.

    lemma 4.4, with w* = Σ⁻¹ α (least squares), ρ its sum of squared residuals, V = M + u w*ᵀ; Σ^l, α^l, λ^l of layer l

    α^l = V Σ (a w* - w) + a ρ u          Σ (a w* - w) = -½ ∇f(w),  f(w) = sum_i (a y_i - <w, x_i>)²
    u' = (I + xy a² ρ + xx Σ^l) u + a xy V Σ (a w* - w)
    w' = (1 + yy λ^l) w - yx Mᵀ V Σ (a w* - w) - yx a ρ Mᵀ u

Vladymyrov et al. 2024 (arXiv:2402.14180), lemma 4.4 and section 5; in the paper's letters I - Λ and Γ multiply u and
the pull Σ (a w* - w) in u', and 1 + s, Π and Φ multiply w, the pull and u in w'. B sequences of d features.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...regress.gram import Gram
from ...regress.model import ICLTransformer
from .recursion import Quantities, apply, from_omega, trace
from .regression import Batch
from .verify_check import EXACT, Check, drawn, error, tokens
from .verify_forms import SEEN

PRINTED = 1e-12  # the worked example has at most six decimals, all given here
EXAMPLE = torch.tensor([[[-0.1, -0.02], [-0.1, -0.02]], [[-0.2, -0.05], [-0.3, -0.05]]], dtype=torch.float64)
EXAMPLE_MAPS = [[-0.5, -0.14, -0.7, -0.2], [-0.0932, -0.0308, -0.1848, -0.0505]]  # A, b, c, e
EXAMPLE_TRACE = [[1, 0, 1, 0], [0.5, -0.14, 0.8, 0.7], [0.47496, -0.151592, 0.785472, 0.75705]]  # M, u, a, w
EXAMPLE_TOKENS = [[[1, 1], [2, 3]], [[0.36, 0.1], [0.58, 1.0]], [[0.323368, 0.028422], [0.495144, 0.842316]]]


class Fit(NamedTuple):
    """Least squares of the examples: Σ [B,d,d], w* [B,d], ρ [B]."""

    sigma: Tensor
    w: Tensor
    rho: Tensor


def least_squares(batch: Batch) -> Fit:
    gram = batch.gram
    w = torch.linalg.solve(gram.sigma, gram.alpha)
    return Fit(gram.sigma, w, (batch.y - apply(batch.x, w)).square().sum(-1))


def mixed(now: Quantities, fit: Fit) -> Tensor:
    """Return V = M + u w*ᵀ."""
    return now.m + now.u.unsqueeze(-1) * fit.w.unsqueeze(-2)


def pull(now: Quantities, fit: Fit) -> Tensor:
    """Return Σ (a w* - w), minus half the gradient."""
    return apply(fit.sigma, now.a.unsqueeze(-1) * fit.w - now.w)


Mixed = Callable[[Quantities, Fit], Tensor]


def layer(omega: Tensor, s: Gram, now: Quantities, fit: Fit, mixed: Mixed, pull: Mixed) -> tuple[Tensor, ...]:
    """Return α^l, u' and w' by lemma 4.4; `s` are the sums of the layer's tokens."""
    xx, xy, yx, yy = omega.flatten()
    v, down = mixed(now, fit), pull(now, fit)
    a_rho = (now.a * fit.rho).unsqueeze(-1)
    a = now.a.unsqueeze(-1)
    alpha = apply(v, down) + a_rho * now.u
    u = now.u + xy * a * a_rho * now.u + xx * apply(s.sigma, now.u) + xy * a * apply(v, down)
    w = (1 + yy * s.lam).unsqueeze(-1) * now.w - yx * apply(now.m.mT @ v, down) - yx * a_rho * apply(now.m.mT, now.u)
    return alpha, u, w


def layer_errors(model: ICLTransformer, batch: Batch, mixed: Mixed = mixed, pull: Mixed = pull) -> list[float]:
    """Return the errors of the lemma's α^l, u', w' over all layers, compared with the network."""
    quantities, fit = trace(model, batch.gram.s), least_squares(batch)
    states = [Quantities(*parts) for parts in zip(*quantities, strict=True)]
    worst = [0.0, 0.0, 0.0]
    for omega, before, after, e in zip(model.omega(), states, states[1:], tokens(model, batch), strict=False):
        s = Gram.of(e[:, :-1, :-1], e[:, :-1, -1])
        predicted = layer(omega, s, before, fit, mixed, pull)
        errors = [error(*pair) for pair in zip(predicted, (s.alpha, after.u, after.w), strict=True)]
        worst = [max(pair) for pair in zip(worst, errors, strict=True)]
    return worst


def lemma_4_4(generator: torch.Generator, mixed: Mixed = mixed, pull: Mixed = pull) -> list[Check]:
    """Check gradient descent with momentum in every layer of a DIAG model."""
    model, batch = drawn("diag", generator, layers=4, heads=2)
    alpha, u, w = layer_errors(model, batch, mixed, pull)
    fit = least_squares(batch)
    now = Quantities(*(part[2] for part in trace(model, batch.gram.s)))
    with torch.enable_grad():
        at = now.w.clone().requires_grad_()
        loss = (now.a.unsqueeze(-1) * batch.y - apply(batch.x, at)).square().sum()
        (gradient,) = torch.autograd.grad(loss, at)
    return [
        Check("lemma-4.4", "α^l = V Σ (a w* - w) + a ρ u in each of 4 layers", alpha, EXACT),
        Check("lemma-4.4", "u' is momentum: (I - Λ) u + Γ Σ (a w* - w)", u, EXACT),
        Check("lemma-4.4", "w' = (1 + s) w - Π Σ (a w* - w) - Φ u", w, EXACT),
        Check("lemma-4.4", "Σ (a w* - w) = -½ ∇f(w)", error(pull(now, fit), -gradient / 2), EXACT),
    ]


def roles(generator: torch.Generator) -> list[Check]:
    """Check that xy before yx shortens the step and yy after yx shrinks the prediction, both by the labels' size λ."""
    batch = drawn("diag", generator)[1]
    s, fit = batch.gram, least_squares(batch)
    xy, yx, yy = (-float(r) / float(s.lam.max()) for r in 0.1 + torch.rand(3, generator=generator))
    adaptive, shrunk = (torch.zeros(2, 2, 2, dtype=torch.float64) for _ in range(2))
    adaptive[0, 0, 1], adaptive[1, 1, 0] = xy, yx
    shrunk[0, 1, 0], shrunk[1, 1, 1] = yx, yy
    models = [from_omega(omega, batch.x.shape[2]).requires_grad_(False) for omega in (adaptive, shrunk)]
    stepped, rescaled = (model.weights(s.s) for model in models)
    labels = tokens(models[1], batch)[1, :, :-1, -1].square().sum(-1)  # λ after the first layer
    wanted = -yx * (1 + xy * s.lam).unsqueeze(-1) * s.alpha
    paper = -yx * (1 + xy * fit.rho).unsqueeze(-1) * s.alpha
    smaller = -yx * (1 + yy * labels).unsqueeze(-1) * s.alpha
    return [
        Check("roles", "xy, then yx: the step is exactly -yx (1 + xy λ)", error(stepped, wanted), EXACT),
        Check("roles", "the paper's -yx (1 + xy ρ) is an approximation: its error", error(paper, stepped), SEEN, ">="),
        Check("roles", "yx, then yy: the answer is multiplied by 1 + yy λ¹", error(rescaled, smaller), EXACT),
        Check("roles", "λ = w*ᵀ Σ w* + ρ", error((fit.w * s.alpha).sum(-1) + fit.rho, s.lam), EXACT),
    ]


def example(generator: torch.Generator) -> list[Check]:
    """Check d = 1, n = 2, examples (1, 1) and (2, 3), query 1, two layers: every number to its last decimal."""
    model = from_omega(EXAMPLE, d=1, n=2).requires_grad_(False)
    x, y = torch.tensor([[[1.0], [2.0]]], dtype=torch.float64), torch.tensor([[1.0, 3.0]], dtype=torch.float64)
    s = Gram.of(x, y).s
    maps = model.maps(s).reshape(2, 4)
    quantities = torch.stack([part.reshape(3) for part in trace(model, s)], -1)
    answers = model.weights(s, layerwise=True).reshape(3)
    seen = model.tokens(x, y, torch.ones(1, 1, 1, dtype=torch.float64))[:, 0, :2]

    def off(actual: Tensor, expected: list[Any]) -> float:
        return float((actual - torch.tensor(expected, dtype=torch.float64)).abs().max())

    return [
        Check("example", "A, b, c, e of both layers", off(maps, EXAMPLE_MAPS), PRINTED),
        Check("example", "M, u, a, w before, between and after", off(quantities, EXAMPLE_TRACE), PRINTED),
        Check("example", "the examples' tokens after each layer", off(seen, EXAMPLE_TOKENS), PRINTED),
        Check("example", "the answers 0, 0.7 and 0.75705", off(answers, [0.0, 0.7, 0.75705]), PRINTED),
    ]
