"""Compare InContextRegressor with scikit-learn's linear regressors: accuracy from few rows and on a stream, and speed.

    few rows   n random rows, R² on up to 2,000 others: mean of the draws, and the gap to the best learner on the same
               draws, each with 1.96 standard errors
    whole set  the same from four fifths of the rows
    stream     every row is predicted, then learned, with a forget factor of 0.99; R² after the first 100 rows
    speed      microseconds to learn one more row, and to learn it and predict one

Every learner of linnet/labs/bench/regressor_learners.py gets the same rows. An R² below -1 counts as -1 in the means,
so that a single outlier cannot hide all other draws.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .regressor_data import Array, RegressionSet
from .regressor_learners import FADE, batch_learners, stream_learners
from .timing import interleave, summary

SIZES = (20, 50, 200)
WHOLE = 0.8
TEST_ROWS = 2000
FLOOR = -1.0
START = 100
QUICK: dict[str, Any] = {"draws": 20, "stream_rows": 2000, "rounds": 5}


@dataclass(frozen=True)
class RegressorSettings:
    draws: int = 200
    stream_rows: int | None = None
    rounds: int = 15
    seed: int = 0
    data: Path | None = None
    models: tuple[str, ...] = ("diag", "full")

    def __post_init__(self) -> None:
        for name, least in (("draws", 2), ("rounds", 3)):
            value = getattr(self, name)
            if value < least:
                raise ValueError(f"{name} is {value}; accepted: {least} or more")
        if self.stream_rows is not None and self.stream_rows <= START:
            raise ValueError(f"--rows is {self.stream_rows}; accepted: more than {START}, the initial rows")


def r2(y: Array, predicted: Array) -> float:
    """Return 1 - residual / variance, at least FLOOR; FLOOR if it is not finite."""
    left = float(((y - predicted) ** 2).sum() / ((y - y.mean()) ** 2).sum())
    return max(FLOOR, 1 - left) if np.isfinite(left) else FLOOR


def few_rows(given: RegressionSet, n: int, makers: Mapping[str, Callable[[], Any]], draws: int, seed: int) -> Any:
    """Return {learner: R² and its gap to the best, both with 95 % intervals, and the share of draws that fell back}."""
    rng = np.random.default_rng([seed, n])
    scores: dict[str, list[float]] = {name: [] for name in makers}
    fallbacks = dict.fromkeys(makers, 0)
    for _ in range(draws):
        order = rng.permutation(len(given.y))
        train, test = order[:n], order[n : n + TEST_ROWS]
        for name, make in makers.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # fallbacks to ridge are counted below
                learner = make().fit(given.x[train], given.y[train])
                scores[name].append(r2(given.y[test], learner.predict(given.x[test])))
            fallbacks[name] += getattr(learner, "fallback_", None) is not None
    means = {name: mean(np.array(values)) for name, values in scores.items()}
    best = max(means, key=lambda name: means[name][0])
    return {
        name: {
            **dict(zip(("r2", "interval"), means[name], strict=True)),
            **dict(zip(("behind", "behind_interval"), mean(np.subtract(scores[best], values)), strict=True)),
            "fallback": fallbacks[name] / draws,
        }
        for name, values in scores.items()
    }


def mean(values: Array) -> tuple[float, float]:
    """Return (mean, 1.96 standard errors)."""
    return float(values.mean()), float(1.96 * values.std(ddof=1) / len(values) ** 0.5)


def table_rows(given: RegressionSet, settings: RegressorSettings) -> list[dict[str, Any]]:
    """Return a row for each number of examples, the last with four fifths of the set and a tenth of the draws."""
    makers = batch_learners(settings.models)
    whole = int(WHOLE * len(given.y))
    rows = []
    for n in [*(n for n in SIZES if n < whole), whole]:
        draws = settings.draws if n < whole else max(2, settings.draws // 10)
        names = makers if n < whole else {name: make for name, make in makers.items() if name != "RLS"}
        scores = few_rows(given, n, names, draws, settings.seed)
        rows.append({"set": given.name, "d": given.x.shape[1], "n": n, "draws": draws, "learners": scores})
    return rows


def stream_row(given: RegressionSet, settings: RegressorSettings) -> dict[str, Any]:
    """Return the row of a stream: each row is predicted, then learned."""
    x, y = given.x[: settings.stream_rows], given.y[: settings.stream_rows]
    if len(y) <= START:
        raise ValueError(f"{given.name} has {len(y)} rows here; accepted: more than {START}, the initial rows")
    scores = {}
    for name, make in stream_learners(settings.models).items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scores[name] = _stream(make(), x, y)
    return {"set": given.name, "about": given.about, "d": x.shape[1], "rows": len(y), "fade": FADE, "learners": scores}


def _stream(learner: Any, x: Array, y: Array) -> dict[str, float]:
    learner.fit(x[:START], y[:START])
    predicted, fallbacks = np.empty(len(y) - START), 0
    for i in range(START, len(y)):
        predicted[i - START] = learner.predict(x[i : i + 1])[0]
        fallbacks += getattr(learner, "fallback_", None) is not None
        learner.partial_fit(x[i : i + 1], y[i : i + 1])
    return {"r2": r2(y[START:], predicted), "fallback": fallbacks / (len(y) - START)}


def speed(settings: RegressorSettings, d: int = 10, n: int = 200) -> dict[str, Any]:
    """Return microseconds to learn one more row, and to learn it and predict one; some learners have to refit."""
    rng = np.random.default_rng(settings.seed)
    x = rng.normal(size=(n, d))
    y = x @ rng.normal(size=d) + rng.normal(size=n)
    calls: dict[str, Callable[[], Any]] = {}
    for name, make in batch_learners(settings.models).items():
        learner = make().fit(x, y)
        streams = hasattr(getattr(learner, "inner", learner), "partial_fit")
        learn = _learning(learner, x, y, streams)
        if streams:
            calls[f"{name}|learn"] = learn
        calls[f"{name}|refresh"] = _refreshing(learner, learn, x)
    seconds = interleave(calls, settings.rounds)
    learners: dict[str, Any] = {}
    for key, values in seconds.items():
        name, what = key.split("|")
        times = summary(values)
        learners.setdefault(name, {})[what] = {"us": times["min_s"] * 1e6, "median_us": times["median_s"] * 1e6}
    return {"d": d, "n": n, "learners": learners}


def _learning(learner: Any, x: Array, y: Array, streams: bool) -> Callable[[], Any]:
    return (lambda: learner.partial_fit(x[:1], y[:1])) if streams else (lambda: learner.fit(x, y))


def _refreshing(learner: Any, learn: Callable[[], Any], x: Array) -> Callable[[], Any]:
    def refresh() -> Any:
        learn()
        return learner.predict(x[:1])

    return refresh
