"""Checks of optimal predictors: least squares and ridge, one layer, and the filter that no GD++ model can beat.

    one layer     w = η α is the best form, η = -yx = 1 / (n + d + 1 + E[σ²]), with E|w - task|² = d (1 - n η)
    GD++          w = g(Σ) α, one fixed function of the eigenvalues:  m' = m (1 + xx z m²),  g' = g - yx m² (1 - z g)
                  the best g is 1 / (z + E[σ²]): ridge with one penalty, "ConstRR". So GD++ never beats it, at any depth
    DIAG          is not such a function: three layers beat it

d = 10, n = 20, w, x ~ N(0, I), σ ~ U(0, 5), as in the paper's table (arXiv:2402.14180); the two bounds are ours.
The loss is ½|w - task|², the expectation of ½(prediction - target)² over the query.
Sampled numbers are compared in standard errors.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ...regress.gram import Gram
from ...regress.model import ICLConfig, ICLTransformer
from .noise import Noise
from .recursion import apply, from_omega
from .regression import Batch, Regression
from .verify_check import EXACT, Check, drawn, error
from .verify_updates import least_squares

D, N = 10, 20
NOISE = Noise.parse("U5")
SEQUENCES = 20_000
ERRORS = 5.0  # standard errors: exceeded by chance once in a million
U5_DIAG = (  # three layers fitted to U5: (xx, xy, yx, yy) of each
    (-0.01349, -0.00037, -0.01555, -0.00043),
    (-0.03191, -0.00293, -0.01163, -0.00107),
    (0.0, 0.0, -0.28246, 0.00326),
)


def ridge(gram: Gram, penalty: float) -> Tensor:
    """Return (Σ + penalty I)⁻¹ α."""
    return torch.linalg.solve(gram.sigma + penalty * torch.eye(gram.d, dtype=gram.s.dtype), gram.alpha)


def losses(w: Tensor, batch: Batch) -> Tensor:
    """Return ½|w - task|² [B]."""
    return (w - batch.weights).square().sum(-1) / 2


def mean(values: Tensor) -> tuple[float, float]:
    """Return the mean and its standard error."""
    return float(values.mean()), float(values.std() / len(values) ** 0.5)


def squares(generator: torch.Generator) -> list[Check]:
    """Check the definitions of w*, ρ and ridge, and that no query needs to be drawn."""
    model, batch = drawn("full", generator)
    residuals = batch.y - apply(batch.x, least_squares(batch).w)
    scale = float(batch.gram.alpha.abs().max())
    with torch.enable_grad():
        w = ridge(batch.gram, 0.7).requires_grad_()
        loss = (batch.y - apply(batch.x, w)).square().sum() + 0.7 * w.square().sum()
        (gradient,) = torch.autograd.grad(loss, w)
    crossed, steep = (float(value.abs().max()) / scale for value in (apply(batch.x.mT, residuals), gradient))
    queries = torch.randn(SEQUENCES, batch.x.shape[2], generator=generator, dtype=torch.float64)
    away = model.weights(batch.gram.s)[0] - batch.weights[0]
    off, se = mean((queries @ away).square() - away.square().sum())
    return [
        Check("squares", "residuals of least squares: sum r x = 0", crossed, EXACT),
        Check("squares", "ridge: the gradient of sum (y - <w, x>)² + σ²|w|² is 0", steep, EXACT),
        Check("squares", "mean (answer - target)² over queries is |w - task|²: off, in errors", abs(off) / se, ERRORS),
    ]


def best_step(n: int, d: int, mean_square: float) -> float:
    """Return η of one layer."""
    return 1 / (n + d + 1 + mean_square)


def one_layer(generator: torch.Generator, best_step: Callable[[int, int, float], float] = best_step) -> list[Check]:
    """Check that the closed form is the minimum, and that nothing else in S would help."""
    batch = Regression(NOISE, D, N).sample(SEQUENCES, generator)
    step = best_step(N, D, NOISE.mean_square)
    w = step * batch.gram.alpha
    off, se = mean(losses(w, batch) - D * (1 - N * step) / 2)
    slope, slope_se = mean(((w - batch.weights) * batch.gram.alpha).sum(-1))
    worse = [mean(losses(factor * w, batch) - losses(w, batch)) for factor in (0.9, 1.1)]
    rows, columns = torch.triu_indices(D + 1, D + 1)
    s = batch.gram.s[:, rows, columns]  # [B,66]
    far = float(_steepness(w - batch.weights, s).max())
    return [
        Check("one-layer", "η = 1/(n + d + 1 + E[σ²]) has loss d (1 - n η)/2: off, in errors", abs(off) / se, ERRORS),
        Check("one-layer", "the loss has no slope in η there: in errors", abs(slope) / slope_se, ERRORS),
        Check("one-layer", "η ± 10 % is worse: by how many errors", min(m / e for m, e in worse), ERRORS, ">="),
        Check("one-layer", "no entry of S, which is all FULL sees, would help: slopes, in errors", far, 6.0),
    ]


def _steepness(away: Tensor, s: Tensor) -> Tensor:
    """Return the slope of the loss in s_j as a part of w_i, in standard errors: [B,d], [B,m] -> [d,m]."""
    slope = away.mT @ s / len(s)
    square = away.square().mT @ s.square() / len(s)
    return slope.abs() / ((square - slope.square()) / len(s)).sqrt()


def gd_filter(model: ICLTransformer, values: Tensor) -> Tensor:
    """Return g of a GD++ model at eigenvalues z of any shape."""
    return _filter(model.omega()[:, :, 0], values)


def _filter(numbers: Tensor, values: Tensor) -> Tensor:
    """Return g from (xx, yx) of each layer, [L,2]."""
    m, g = torch.ones_like(values), torch.zeros_like(values)
    for xx, yx in numbers:
        m, g = m * (1 + xx * values * m**2), g - yx * m**2 * (1 - values * g)
    return g


def gd_bound(
    generator: torch.Generator, gd_filter: Callable[[ICLTransformer, Tensor], Tensor] = gd_filter
) -> list[Check]:
    """Check that GD++ is a filter, that ConstRR is the best filter, and that only DIAG beats it."""
    model, batch = drawn("gd++", generator, layers=4)
    values, basis = torch.linalg.eigh(batch.gram.sigma)
    filtered = apply(basis, gd_filter(model, values) * apply(basis.mT, batch.gram.alpha))
    off = error(filtered, model.weights(batch.gram.s))
    batch = Regression(NOISE, D, N).sample(SEQUENCES // 4, generator)
    const = ridge(batch.gram, NOISE.mean_square)
    below = losses(const, batch)
    fitted = [mean(losses(one.weights(batch.gram.s), batch) - below) for one in fit_gd(4, generator)]
    diag = from_omega(torch.tensor(U5_DIAG, dtype=torch.float64).view(-1, 2, 2), D, N).requires_grad_(False)
    gain, _ = mean(losses(diag.weights(batch.gram.s), batch) - below)
    least = min(excess / se for excess, se in fitted)
    return [
        Check("gd++-bound", "a GD++ model is w = g(Σ) α, with g by the recursion", off, EXACT),
        Check("gd++-bound", "no filter improves on 1/(z + E[σ²]): slopes, in errors", _slopes(const, batch), ERRORS),
        Check("gd++-bound", "GD++ fitted, 1 to 4 layers: loss above ConstRR, in errors", least, -ERRORS, ">="),
        Check("gd++-bound", "GD++ fitted, 3 layers: loss above ConstRR", fitted[2][0], 0.005),
        Check("gd++-bound", "a DIAG model of 3 layers: loss above ConstRR", gain, -0.1),
    ]


def _slopes(w: Tensor, batch: Batch) -> float:
    """Return the steepest change of the loss of w along h(Σ) α, h(z) = z^k, in standard errors."""
    change, slopes = batch.gram.alpha, []
    for _ in range(4):
        m, se = mean(((w - batch.weights) * change).sum(-1))
        slopes.append(abs(m) / se)
        change = apply(batch.gram.sigma, change)
    return max(slopes)


def fit_gd(layers: int, generator: torch.Generator) -> list[ICLTransformer]:
    """Return GD++ models of 1 to `layers` layers, fitted to the exact loss over the eigenvalues of 500 sequences."""
    x = torch.randn(500, N, D, generator=generator, dtype=torch.float64)
    z = torch.linalg.eigvalsh(x.mT @ x)
    numbers, models = torch.empty(0, 2, dtype=torch.float64), []
    for _ in range(layers):
        grown = torch.cat([torch.full((1, 2), -0.01, dtype=torch.float64), numbers])
        numbers = _lowest(grown, z)
        model = ICLTransformer(ICLConfig("gd++", len(numbers), D, N)).requires_grad_(False)
        model.load_state_dict({"p": numbers.unsqueeze(1), "q": torch.ones(len(numbers), 1, 1, dtype=torch.float64)})
        models.append(model)
    return models


def _lowest(numbers: Tensor, z: Tensor) -> Tensor:
    """Return (xx, yx) [L,2] after L-BFGS on E ½|g(Σ) α - task|² = ½ sum (z² + z E[σ²]) g² - 2 z g + 1."""
    with torch.enable_grad():
        numbers = numbers.clone().requires_grad_()
        optimiser = torch.optim.LBFGS([numbers], max_iter=60, line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            optimiser.zero_grad()
            g = _filter(numbers, z)
            value = ((z**2 + z * NOISE.mean_square) * g**2 - 2 * z * g + 1).sum(-1).mean() / 2
            value.backward()
            return value

        optimiser.step(loss)
    return numbers.detach()
