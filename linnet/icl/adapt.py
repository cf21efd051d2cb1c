"""Real data for a model that was trained on Gaussian examples: bring the sums into its range, ask it, check the answer.

A model has seen n0 examples of d0 features of spread 1, |w|² about d0, and knows the noise only by lambda = sum y². So

1. features and label are centred and scaled to spread 1, the sums to n0 examples, features beyond d filled with 0;
2. features shrink until no direction is stronger than TOP n0: correlated columns are, independent ones hardly ever;
3. labels are scaled to mean square LEVEL, between a clean problem of the training set and a noisy one;
4. n examples with noise v tell as much as n0 with noise v n0/n, and those would leave less behind: lambda is lowered
   by the part of the residual that n0 examples would not have, the residual taken from the model's own answer (PASSES);
5. with many examples the model is asked again about what its answer leaves (ROUNDS): its own shrinkage goes away.

Only multiplications, additions and a few roots and quotients of single numbers: no system is solved. If the answer is
not finite, leaves more than w = 0 does, or explains less than WORTH of what one gradient step would, ridge takes over.
LEVEL, TOP, PASSES, ROUNDS were chosen by measurement on 14 tabular sets; docs/guide/in-context-regressor.md has it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from ..models import ICLTransformer
from ..tasks import Gram
from .baselines import ridge
from .moments import Array, Moments

TOP = 2.75  # largest eigenvalue of sum x xᵀ / n0; (1 + sqrt(d0 / n0))² = 2.9 is usual in training
LEVEL = 15.0  # mean square of the labels; training has |w|² + sigma², 10 to 35
PASSES = 3
ROUNDS, ROUND_EVERY = 3, 50  # one more round for every 50 examples, 3 at most
MOST_NOISE = 2.0  # few examples: how much more residual than seen may be supposed
WORTH = 0.25


class Problem(NamedTuple):
    """sum x xᵀ [d,d], sum y x [d], sum y² of the examples as the model will see them, and how many they were."""

    sigma: Array
    alpha: Array
    lam: float
    n: float

    def residual(self, w: Array) -> float:
        """sum (y - <w, x>)², from the sums."""
        return float(self.lam - 2 * w @ self.alpha + w @ self.sigma @ w)


class Answer(NamedTuple):
    """Weights of the examples as they came, y = <coef, x> + intercept, and why ridge had to give them, if it did."""

    coef: Array
    intercept: float
    fallback: str | None


class Layers:
    """A model's matrices as NumPy: for one small problem at a time several times quicker than through torch."""

    def __init__(self, model: ICLTransformer) -> None:
        p, q = model.matrices()
        self.p, self.q = (m.detach().double().numpy() for m in (p, q))  # [L,K,E,E]
        self.n, self.d = model.config.n, model.config.d

    def weights(self, s: Array) -> Array:
        """w [d] from the sums s [E,E]; ICLTransformer.weights says the same."""
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
    """The model's answer, or that of ridge with the reason."""
    d = moments.d
    spread = moments.spread  # [E]
    if spread[-1] == 0 or not spread[:-1].any():
        return Answer(np.zeros(d), float(moments.mean[-1]), None)  # nothing to learn from: the mean
    scale = np.where(spread > 0, spread, 1.0)
    varies = np.outer(spread > 0, spread > 0)
    unit = varies * moments.scatter * (layers.n / moments.n) / np.outer(scale, scale)  # [E,E]
    problem = Problem(unit[:-1, :-1], unit[:-1, -1], float(unit[-1, -1]), moments.n)
    w, fallback = ask(layers, problem)
    if fallback is not None:
        w = adaptive_ridge(layers, problem)
    coef = w * scale[-1] / scale[:-1]
    return Answer(coef, float(moments.mean[-1] - moments.mean[:-1] @ coef), fallback)


def ask(layers: Layers, problem: Problem) -> tuple[Array, str | None]:
    """(w [d], None), or (w, why it is not to be trusted)."""
    shrink = min(1.0, (TOP * layers.n / strongest(problem.sigma)) ** 0.5)
    inner = problem._replace(sigma=problem.sigma * shrink**2, alpha=problem.alpha * shrink)
    w = np.zeros(len(problem.alpha))
    with np.errstate(over="ignore", invalid="ignore"):
        for turn in range(int(min(ROUNDS, max(1, problem.n // ROUND_EVERY)))):
            left = inner._replace(alpha=inner.alpha - inner.sigma @ w, lam=inner.residual(w))
            if left.lam <= 1e-12 * inner.lam:
                break
            step = one_round(layers, left)
            trouble = distrust(left, step)
            if trouble is not None:
                return w * shrink, trouble if turn == 0 else None
            w = w + step
    return w * shrink, None


def one_round(layers: Layers, problem: Problem) -> Array:
    """The model's w [d]: labels scaled to LEVEL, lambda as n0 examples would have it."""
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
    """A bound on the largest eigenvalue, (trace sigma⁸)^(1/8): at most d^(1/8) too large, with two products."""
    squared = sigma @ sigma
    fourth = squared @ squared
    return float((fourth * fourth).sum() ** 0.125)


def distrust(problem: Problem, w: Array) -> str | None:
    """Why an answer is not to be used, or None."""
    if not np.isfinite(w).all():
        return "the model's answer is not finite"
    explained = problem.lam - problem.residual(w)
    if not explained >= 0:
        return "the model's answer fits the examples worse than none"
    alpha, curved = problem.alpha, problem.sigma @ problem.alpha
    descent = float(alpha @ alpha) ** 2 / max(float(alpha @ curved), 1e-300)  # explained by the best gradient step
    if explained < WORTH * descent:
        return "the model's answer explains less than a quarter of what one gradient step does"
    return None


def adaptive_ridge(layers: Layers, problem: Problem) -> Array:
    """Ridge whose penalty is the noise over the mean square of a weight; half the labels are noise where n <= d + 1."""
    d, n = len(problem.alpha), problem.n
    s = np.block([[problem.sigma, problem.alpha[:, None]], [problem.alpha, np.array([problem.lam])]])
    gram = Gram(torch.from_numpy(s), torch.tensor(float(layers.n), dtype=torch.float64))
    noise = 0.5
    if n > d + 1:
        fitted = ridge(gram, 1e-9 * layers.n).numpy()
        noise = max(problem.residual(fitted), 0.0) / layers.n * n / (n - d - 1)
    return ridge(gram, (noise * d / n + 1e-9) * layers.n).numpy()
