"""Forecasting baselines: the last value repeated, and ridge regression on the last `lags` values.

    W = (X^T X + lambda n I)^-1 X^T Y,   X [n, lags C] the recent past, Y [n, h C_out] the values that follow; float64

Both are scored on the windows and targets of a StreamSource, every step of every window, on standardised values. Ridge
sees its full past even where it lies before the window, which a model does not: any bias is in its favour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .csv_file import Array
from .stream import StreamSource

PENALTIES = tuple(10.0**i for i in range(-6, 2))
BLOCK = 2048  # time steps processed at a time


class Score(NamedTuple):
    """Mean errors over all steps, horizons and target columns."""

    mse: float
    mae: float
    size: int  # number of errors averaged


@dataclass(frozen=True)
class Ridge:
    """Ridge regression with the penalty that was best on the valid part."""

    weights: Array  # [lags C, h C_out]
    offset: Array  # [h C_out]
    lags: int
    penalty: float

    def score(self, source: StreamSource) -> Score:
        return _score(source, lambda x: _past(source, x, self.lags) @ self.weights + self.offset)


def persistence(source: StreamSource) -> Score:
    """Score the forecast that every future value equals the present one."""
    return _score(source, lambda x: np.tile(_rows(source, x)[:, source.targets], source.horizon))


def ridge(train: StreamSource, valid: StreamSource, *, lags: int = 48, penalties: Sequence[float] = PENALTIES) -> Ridge:
    """Fit on every step of the train part whose past and future lie in it; choose the penalty on `valid`."""
    steps = train.stop - train.start - train.horizon - lags + 1
    if lags < 1 or steps < 1:
        raise ValueError(f"lags is {lags}; accepted: from 1 to {train.stop - train.start - train.horizon}")
    mean_x, mean_y, gram, cross = _moments(train, lags)
    values, vectors = np.linalg.eigh(gram)  # one decomposition serves every penalty
    rotated = vectors.T @ cross

    def fit(penalty: float) -> Ridge:
        weights = vectors @ (rotated / (values.clip(min=0) + penalty)[:, None])
        return Ridge(weights, mean_y - mean_x @ weights, lags, penalty)

    return min((fit(penalty) for penalty in penalties), key=lambda model: model.score(valid).mse)


def _moments(train: StreamSource, lags: int) -> tuple[Array, Array, Array, Array]:
    """Return the means of x and y and their centred second moments x x^T, x y^T, per step."""
    at = np.arange(train.start + lags - 1, train.stop - train.horizon)
    blocks = [at[i : i + BLOCK] for i in range(0, len(at), BLOCK)]
    mean_x = sum(_past(train, b, lags).sum(0) for b in blocks) / len(at)
    mean_y = sum(_future(train, b).sum(0) for b in blocks) / len(at)
    gram, cross = np.zeros((len(mean_x), len(mean_x))), np.zeros((len(mean_x), len(mean_y)))
    for b in blocks:
        x, y = _past(train, b, lags) - mean_x, _future(train, b) - mean_y
        gram += x.T @ x
        cross += x.T @ y
    return mean_x, mean_y, gram / len(at), cross / len(at)


def _score(source: StreamSource, forecast: Callable[[Array], Array]) -> Score:
    """Score over the steps of all windows; `forecast` maps positions in the series [n] to [n, h C_out]."""
    squares, sizes, count = 0.0, 0.0, 0
    for at in _places(source):
        error = forecast(at) - _future(source, at)
        squares, sizes, count = (
            squares + float((error**2).sum()),
            sizes + float(np.abs(error).sum()),
            count + error.size,
        )
    return Score(squares / count, sizes / count, count)


def _places(source: StreamSource) -> Iterator[Array]:
    """Yield the positions of the windows' steps in the series, about BLOCK at a time."""
    windows = max(1, BLOCK // source.context)
    for first in range(0, source.length, windows):
        starts = [source.position(row) for row in range(first, min(first + windows, source.length))]
        yield (np.array(starts)[:, None] + np.arange(source.context)).reshape(-1)


def _rows(source: StreamSource, at: Array) -> Array:  # [...] -> [...,C] float64
    return (source.series[at] - source.mean) / source.std


def _past(source: StreamSource, at: Array, lags: int) -> Array:  # [n] -> [n, lags C], the newest first
    places = np.maximum(at[:, None] - np.arange(lags), 0)  # before the start of the series: its first value
    return _rows(source, places).reshape(len(at), -1)


def _future(source: StreamSource, at: Array) -> Array:  # [n] -> [n, h C_out]
    ahead = _rows(source, at[:, None] + 1 + np.arange(source.horizon))
    return ahead[:, :, source.targets].reshape(len(at), -1)
