"""Score a prediction w: its loss above the oracle's, with standard errors and statistics robust to outliers.

    loss    ½|w - w_true|² - ½|w_oracle - w_true|²       the paper's adjusted loss, averaged over the query analytically
    sharp   ½|w - w_oracle|²                             the same expectation, never negative, a smaller error

The oracle is ridge with the sequence's own sigma², w_oracle = (Sigma + sigma² I)⁻¹ alpha. The paper draws one query
x_t ~ N(0, I) for each sequence; its mean over the query is |w - w_true|², so no query is needed (Rao-Blackwell).
Given the examples and sigma, w_true is Gaussian around w_oracle. Any w computed from the examples alone then has
E|w - w_true|² = |w - w_oracle|² + E|w_oracle - w_true|²: `sharp` is the part of `loss` that w can change.

The ½ is in the paper's table though not in its text. A linear transformer is a polynomial of its examples, of degree up
to 3^layers, and rare sequences can explode: median, trimmed mean and the share that diverged accompany the mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from ...regress.gram import Gram, ridge
from ...regress.model import ICLTransformer
from .noise import Noise
from .regression import Batch, Regression

TEST_SEED = 240_214_180  # the test stream: training uses other seeds, so that no sequence is in both
COUNT = 100_000  # sequences, as in the paper
CHUNK = 10_000  # sequences per draw; part of the definition of the test stream
DIVERGED = 50.0  # ½|w - w_true|² above this is not a prediction: w = 0 has d / 2
TRIMMED = 0.01  # the worst share that the trimmed mean leaves out
ROUNDED = 1e-20  # an oracle loss below this is rounding
Predict = Callable[[Gram], Tensor]


@dataclass(frozen=True)
class Score:
    """Means over `count` sequences with their standard errors; infinite where w is not finite in some sequence."""

    loss: float
    se: float
    sharp: float
    sharp_se: float
    median: float  # median, trimmed: of the loss, sequence by sequence
    trimmed: float
    diverged: float  # the share of sequences with ½|w - w_true|² over DIVERGED, or not finite
    oracle: float  # ½|w_oracle - w_true|²
    query_se: float  # the standard error of `loss` had one query been drawn per sequence, as the paper does
    count: int

    @property
    def relative(self) -> float:
        """Return loss / oracle; without noise the oracle has no error, and this is infinite or NaN."""
        if self.oracle < ROUNDED:
            return math.inf if self.loss > 0 else math.nan
        return self.loss / self.oracle


def score(w: Tensor, batch: Batch) -> Score:
    """Score the predictions w [B,d] of the sequences of the batch."""
    return _summary(_losses(w, batch))


def measure(predict: Predict, problem: Regression, count: int = COUNT, seed: int = TEST_SEED) -> Score:
    """Score a function from sums to predictions w [B,d] on `count` sequences of the problem, CHUNK at a time."""
    if count < 1:
        raise ValueError(f"{count} sequences were requested; accepted: 1 or more")
    generator = torch.Generator().manual_seed(seed)
    parts = []
    for start in range(0, count, CHUNK):
        batch = problem.sample(min(CHUNK, count - start), generator)
        with torch.no_grad():
            parts.append(_losses(predict(batch.gram), batch))
    return _summary(torch.cat(parts, dim=-1))


def evaluate_model(model: ICLTransformer, noise: Noise, count: int = COUNT, seed: int = TEST_SEED) -> Score:
    """Score a model with its own d and n, at this noise."""
    return measure(predictor(model), Regression(noise, model.config.d, model.config.n), count, seed)


def predictor(model: ICLTransformer) -> Predict:
    """Return the model as a function from sums to predictions w [...,d], in the model's precision."""
    return lambda gram: model.weights(gram.s.to(model.p.dtype))


def profile(
    predict: Predict, sigmas: Iterable[float], d: int = 10, n: int = 20, count: int = 20_000, seed: int = TEST_SEED
) -> list[Score]:
    """Return one score per fixed sigma, all on the same inputs, weights and noise before scaling."""
    problems = [Regression(Noise("fixed", (float(sigma),)), d, n) for sigma in sigmas]
    return [measure(predict, problem, count, seed) for problem in problems]


def oracle(batch: Batch) -> Tensor:
    """Return ridge with each sequence's sigma² [B,d]; for too few examples without noise, the minimum-norm fit."""
    n, d = batch.x.shape[-2:]
    return ridge(batch.gram, batch.sigma.double().square().clamp(min=0.0 if n >= d else 1e-8))


def _losses(w: Tensor, batch: Batch) -> Tensor:
    """Return [5,B]: loss, sharp, loss by one query, ½|w - w_true|², ½|w_oracle - w_true|²; inf if w is not finite."""
    if w.shape != batch.weights.shape:
        raise ValueError(f"w is {list(w.shape)}; accepted: {list(batch.weights.shape)}, one prediction per sequence")
    best, true, query = oracle(batch), batch.weights.double(), batch.query.double()
    off, least = w.double() - true, best - true  # [B,d]
    error, floor = 0.5 * off.square().sum(-1), 0.5 * least.square().sum(-1)
    asked = 0.5 * ((off * query).sum(-1).square() - (least * query).sum(-1).square())
    rows = torch.stack([error - floor, 0.5 * (w.double() - best).square().sum(-1), asked, error, floor])
    return torch.where(rows.isfinite(), rows, torch.inf)


def _summary(rows: Tensor) -> Score:
    excess, _, _, error, _ = rows
    count = len(excess)
    (loss, se), (sharp, sharp_se), (_, query_se), _, (floor, _) = (_mean(row) for row in rows)
    kept = excess.sort().values[: count - int(TRIMMED * count)]
    return Score(
        loss=loss,
        se=se,
        sharp=sharp,
        sharp_se=sharp_se,
        median=float(excess.median()),
        trimmed=float(kept.mean()),
        diverged=float((error > DIVERGED).double().mean()),
        oracle=floor,
        query_se=query_se,
        count=count,
    )


def _mean(row: Tensor) -> tuple[float, float]:
    """Return the mean and its standard error, both infinite if a value is."""
    mean = float(row.mean())
    if not math.isfinite(mean):
        return math.inf, math.inf
    return mean, float(row.std() / math.sqrt(len(row))) if len(row) > 1 else math.inf
