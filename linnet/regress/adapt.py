"""Apply a model trained on Gaussian examples to real data: scale the sums into its range, run it, check the result.

A model has seen n0 examples of d0 features of spread 1, |w|² about d0, and knows the noise only by lambda = sum y². So

1. features and label are centred and scaled to spread 1, the sums to n0 examples, missing features filled with 0;
2. features are shrunk until no direction exceeds TOP n0: correlated columns do, independent ones hardly ever;
3. labels are scaled to mean square LEVEL, between a clean problem of the training set and a noisy one;
4. n examples with noise v carry as much information as n0 with noise v n0/n, which have a smaller residual: lambda is
   lowered by the part of the residual that n0 examples would not have, estimated from the model's answer (PASSES);
5. with many examples the model is run again on the residual of its answer (ROUNDS), which removes its shrinkage.

Only multiplications, additions and a few roots and quotients of scalars: no system is solved. If the answer is not
finite, has a larger residual than w = 0, or explains less than WORTH of what one gradient step would, ridge is used.
LEVEL, TOP, PASSES, ROUNDS were chosen by measurement on 14 tabular sets: see docs/guide/in-context-regressor.md.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from .gram import Gram, ridge
from .model import ICLTransformer
from .moments import Array, Moments

TOP = 2.75  # largest eigenvalue of sum x xᵀ / n0; (1 + sqrt(d0 / n0))² = 2.9 is usual in training
LEVEL = 15.0  # mean square of the labels; training has |w|² + sigma², 10 to 35
PASSES = 3
ROUNDS, ROUND_EVERY = 3, 50  # one more round for every 50 examples, 3 at most
MOST_NOISE = 2.0  # with few examples: the largest factor by which the residual may be scaled up
WORTH = 0.25


class Problem(NamedTuple):
    """sum x xᵀ [d,d], sum y x [d], sum y² of the examples as the model sees them, and their number."""

    sigma: Array
    alpha: Array
    lam: float
    n: float

    def residual(self, w: Array) -> float:
        """Return sum (y - <w, x>)², computed from the sums."""
        return float(self.lam - 2 * w @ self.alpha + w @ self.sigma @ w)


class Answer(NamedTuple):
    """Weights in the original units, y = <coef, x> + intercept, and why ridge computed them, if it did."""

    coef: Array
    intercept: float
    fallback: str | None


class Layers:
    """A model's matrices as NumPy arrays: several times faster than torch for one small problem at a time."""

    def __init__(self, model: ICLTransformer) -> None:
        p, q = model.matrices()
        self.p, self.q = (m.detach().double().numpy() for m in (p, q))  # [L,K,E,E]
        self.n, self.d = model.config.n, model.config.d

    def weights(self, s: Array) -> Array:
        """Return w [d] from the sums s [E,E]; equals ICLTransformer.weights."""
        maps: list[Array] = []
        for p, q in zip(self.p, self.q, strict=True):
            if maps:
                s = s + maps[-1] @ s
                s = s + s @ maps[-1].T
            maps.append((p @ s @ q).sum(0))
        row = np.zeros(len(s))
        row[-1] = 1.0
        for g in reversed(maps):
            row = row + row @ g
        return -row[:-1]


def answer(layers: Layers, moments: Moments) -> Answer:
    """Return the weights of the model, or those of ridge with the reason."""
    d = moments.d
    spread = moments.spread  # [E]
    if spread[-1] == 0 or not spread[:-1].any():
        return Answer(np.zeros(d), float(moments.mean[-1]), None)  # nothing to learn from: the mean
    scale = np.where(spread > 0, spread, 1.0)
    varies = np.outer(spread > 0, spread > 0)
    unit = varies * moments.scatter * (layers.n / moments.n) / np.outer(scale, scale)  # [E,E]
    problem = Problem(unit[:-1, :-1], unit[:-1, -1], float(unit[-1, -1]), moments.n)
    w, fallback = solve(layers, problem)
    if fallback is not None:
        w = adaptive_ridge(layers, problem)
    coef = w * scale[-1] / scale[:-1]
    return Answer(coef, float(moments.mean[-1] - moments.mean[:-1] @ coef), fallback)


def solve(layers: Layers, problem: Problem) -> tuple[Array, str | None]:
    """Return (w [d], None), or (w, the reason not to trust it)."""
    shrink = min(1.0, (TOP * layers.n / strongest(problem.sigma)) ** 0.5)
    inner = problem._replace(sigma=problem.sigma * shrink**2, alpha=problem.alpha * shrink)
    w = np.zeros(len(problem.alpha))
    with np.errstate(over="ignore", invalid="ignore"):
        for turn in range(int(min(ROUNDS, max(1, problem.n // ROUND_EVERY)))):
            left = inner._replace(alpha=inner.alpha - inner.sigma @ w, lam=inner.residual(w))
            if left.lam <= 1e-12 * inner.lam:
                break
            step = one_round(layers, left)
            reason = distrust(left, step)
            if reason is not None:
                return w * shrink, reason if turn == 0 else None
            w = w + step
    return w * shrink, None


def one_round(layers: Layers, problem: Problem) -> Array:
    """Return the model's w [d], with labels scaled to LEVEL and lambda as for n0 examples."""
    d = len(problem.alpha)
    y = (LEVEL * layers.n / problem.lam) ** 0.5
    lam = problem.lam * y**2
    spare = max(problem.n - 1 - d, 1.0)  # examples beyond those that features and mean use up
    share = min(MOST_NOISE, max(layers.n - layers.d, 1) / spare)  # residual of n0 examples, over that of these
    s = np.zeros((layers.d + 1, layers.d + 1))
    s[:d, :d], s[:d, -1], s[-1, :d], s[-1, -1] = problem.sigma, y * problem.alpha, y * problem.alpha, lam
    for _ in range(PASSES):
        w = layers.weights(s)[:d] / y
        s[-1, -1] = lam + (share - 1) * max(problem.residual(w), 0.0) * y**2
    return w


def strongest(sigma: Array) -> float:
    """Return a bound on the largest eigenvalue, (trace sigma⁸)^(1/8): at most d^(1/8) too large, from two products."""
    squared = sigma @ sigma
    fourth = squared @ squared
    return float((fourth * fourth).sum() ** 0.125)


def distrust(problem: Problem, w: Array) -> str | None:
    """Return the reason not to use an answer, or None."""
    if not np.isfinite(w).all():
        return "the model's answer is not finite"
    explained = problem.lam - problem.residual(w)
    if not explained >= 0:
        return "the model's answer fits the examples worse than zero weights"
    alpha, curved = problem.alpha, problem.sigma @ problem.alpha
    descent = float(alpha @ alpha) ** 2 / max(float(alpha @ curved), 1e-300)  # explained by the best gradient step
    if explained < WORTH * descent:
        return "the model's answer explains less than a quarter of what one gradient step does"
    return None


def adaptive_ridge(layers: Layers, problem: Problem) -> Array:
    """Solve ridge with penalty noise / mean square of a weight; for n <= d + 1 assume that half of y² is noise."""
    d, n = len(problem.alpha), problem.n
    s = np.block([[problem.sigma, problem.alpha[:, None]], [problem.alpha, np.array([problem.lam])]])
    gram = Gram(torch.from_numpy(s), torch.tensor(float(layers.n), dtype=torch.float64))
    noise = 0.5
    if n > d + 1:
        fitted = ridge(gram, 1e-9 * layers.n).numpy()
        noise = max(problem.residual(fitted), 0.0) / layers.n * n / (n - d - 1)
    return ridge(gram, (noise * d / n + 1e-9) * layers.n).numpy()
