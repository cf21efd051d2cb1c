"""The learners of `linnet bench regressors`, each with fit, predict and, if it can stream, partial_fit.

InContextRegressor standardises by itself; the others see features and labels standardised by the training rows. RLS,
recursive least squares, is the cheapest baseline:

    g = P e / (f + eᵀ P e)     w <- w + g (y - eᵀ w)     P <- (P - g eᵀ P) / f       e = (x, 1), P = I first, f fading
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .regressor_data import Array

FADE = 0.99  # of the streams: an effective window of 100 rows
WINDOW = 100  # rows, for learners without a forget factor
Makers = dict[str, Callable[[], Any]]


class RLS:
    """Recursive least squares with an initial penalty of 1 on each weight and almost none on the intercept."""

    def __init__(self, fade: float = 1.0) -> None:
        self.fade = fade

    def fit(self, x: Array, y: Array) -> RLS:
        self.p, self.w = np.eye(x.shape[1] + 1), np.zeros(x.shape[1] + 1)
        self.p[-1, -1] = 1e6
        return self.partial_fit(x, y)

    def partial_fit(self, x: Array, y: Array) -> RLS:
        for row, label in zip(x, y, strict=True):
            e = np.append(row, 1.0)
            gain = self.p @ e / (self.fade + e @ self.p @ e)
            self.w = self.w + gain * (label - e @ self.w)
            self.p = (self.p - np.outer(gain, e @ self.p)) / self.fade
        return self

    def predict(self, x: Array) -> Array:
        return x @ self.w[:-1] + self.w[-1]


class Standardised:
    """`inner` sees features and labels standardised by the moments of the rows so far."""

    def __init__(self, inner: Any, fade: float = 1.0) -> None:
        self.inner, self.fade = inner, fade

    def fit(self, x: Array, y: Array) -> Standardised:
        self.n, self.sums, self.squares = 0.0, np.zeros(x.shape[1] + 1), np.zeros(x.shape[1] + 1)
        self._see(x, y)
        self.inner.fit(*self._scaled(x, y))
        return self

    def partial_fit(self, x: Array, y: Array) -> Standardised:
        self._see(x, y)
        self.inner.partial_fit(*self._scaled(x, y))
        return self

    def predict(self, x: Array) -> Array:
        scaled = self.inner.predict((x - self.centre[:-1]) / self.scale[:-1])
        return scaled * self.scale[-1] + self.centre[-1]

    def _see(self, x: Array, y: Array) -> None:
        e, kept = np.column_stack([x, y]), self.fade ** len(y)
        self.n = self.n * kept + len(y)
        self.sums, self.squares = self.sums * kept + e.sum(0), self.squares * kept + (e**2).sum(0)
        self.centre = self.sums / self.n
        spread = np.sqrt(np.maximum(self.squares / self.n - self.centre**2, 0))
        self.scale = np.where(spread > 1e-6 * np.abs(self.centre), spread, 1.0)

    def _scaled(self, x: Array, y: Array) -> tuple[Array, Array]:
        return (x - self.centre[:-1]) / self.scale[:-1], (y - self.centre[-1]) / self.scale[-1]


class Window:
    """A learner that cannot stream, refitted on the last WINDOW rows at every row."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def fit(self, x: Array, y: Array) -> Window:
        self.x, self.y = x[-WINDOW:], y[-WINDOW:]
        self.inner.fit(self.x, self.y)
        return self

    def partial_fit(self, x: Array, y: Array) -> Window:
        return self.fit(np.concatenate([self.x, x]), np.concatenate([self.y, y]))

    def predict(self, x: Array) -> Array:
        return self.inner.predict(x)


def batch_learners(models: tuple[str, ...]) -> Makers:
    """Return name -> constructor of the learners that fit a table."""
    from sklearn.linear_model import BayesianRidge, Ridge, RidgeCV, SGDRegressor

    others: Makers = {
        "Ridge": lambda: Standardised(Ridge()),
        "RidgeCV": lambda: Standardised(RidgeCV(np.logspace(-3, 3, 13))),
        "BayesianRidge": lambda: Standardised(BayesianRidge()),
        "SGD": lambda: Standardised(SGDRegressor(random_state=0)),
        "RLS": lambda: Standardised(RLS()),
    }
    return _ours(models, 1.0) | others


def stream_learners(models: tuple[str, ...]) -> Makers:
    """Return name -> constructor of the learners that learn row by row and forget."""
    from sklearn.linear_model import BayesianRidge, Ridge, SGDRegressor

    others: Makers = {
        "Ridge, window": lambda: Window(Standardised(Ridge())),
        "BayesianRidge, window": lambda: Window(Standardised(BayesianRidge())),
        "SGD": lambda: Standardised(SGDRegressor(random_state=0), FADE),
        "RLS": lambda: RLS(FADE),
    }
    return _ours(models, FADE) | others


def _ours(models: tuple[str, ...], fade: float) -> Makers:
    from ...regress import InContextRegressor

    def maker(model: str) -> Callable[[], Any]:
        return lambda: InContextRegressor(model, forget_factor=fade)

    return {f"linnet {Path(model).stem}": maker(model) for model in models}
