"""Persistence and ridge: against a plain computation on the batches, and on streams whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from linnet.data.baselines import persistence, ridge
from linnet.data.stream import SPLITS, StreamSource, generated_stream

F64, F32 = 1e-10, 2e-5


def parts(series: np.ndarray, **options: object) -> list[StreamSource]:
    return [StreamSource(series, split=split, **options) for split in SPLITS]  # type: ignore[arg-type]


def ar2(n: int) -> np.ndarray:
    """x_t = 1.5 x_{t-1} - 0.8 x_{t-2} + e, and a second column that is the first, one step late."""
    noise = np.random.default_rng(1).normal(0, 1, n)
    x = np.zeros(n)
    for t in range(2, n):
        x[t] = 1.5 * x[t - 1] - 0.8 * x[t - 2] + noise[t]
    return np.stack([x, np.roll(x, 1)], axis=1).astype(np.float32)


@pytest.mark.parametrize("split", SPLITS)
def test_persistence_is_the_last_value_on_the_same_windows(split: str) -> None:
    source = StreamSource(ar2(400), context=13, horizon=4, targets=["1", "0"], split=split)
    batch = source.batch(range(source.length))
    error = batch["values"][:, :, None, [1, 0]] - batch["targets"]
    score = persistence(source)
    assert score.mse == pytest.approx(float(error.square().mean()), rel=F32)
    assert score.mae == pytest.approx(float(error.abs().mean()), rel=F32)
    assert score.size == error.numel()


def test_ridge_finds_the_recursion() -> None:
    series = ar2(6000)
    train, valid, test = parts(series, context=50, targets="0")
    model = ridge(train, valid, lags=2)
    weights = model.weights[:, 0] * np.array([train.std[0] / train.std[c] for c in (0, 1, 0, 1)])
    # columns: x_t, its copy x_{t-1}, then x_{t-1} once more and x_{t-2}; the middle two are the same number
    assert weights[0] == pytest.approx(1.5, abs=0.05)
    assert weights[1] + weights[2] == pytest.approx(-0.8, abs=0.06)
    assert model.score(test).mse * train.std[0] ** 2 == pytest.approx(1.0, abs=0.1)  # the noise, nothing else
    assert persistence(test).mse > 1.5 * model.score(test).mse


def test_ridge_is_the_closed_form() -> None:
    train, valid, test = parts(ar2(300), context=10, horizon=2)
    model = ridge(train, valid, lags=3, penalties=[0.5])
    x = ((train.series - train.mean) / train.std)[train.start : train.stop]
    steps = range(2, len(x) - 2)
    past = np.array([np.concatenate([x[t], x[t - 1], x[t - 2]]) for t in steps])
    ahead = np.array([np.concatenate([x[t + 1], x[t + 2]]) for t in steps])
    p, a = past - past.mean(0), ahead - ahead.mean(0)
    weights = np.linalg.solve(p.T @ p + 0.5 * len(p) * np.eye(6), p.T @ a)
    np.testing.assert_allclose(model.weights, weights, rtol=1e-8, atol=F64)
    np.testing.assert_allclose(model.offset, ahead.mean(0) - past.mean(0) @ weights, rtol=1e-8, atol=F64)
    z = (test.series - test.mean) / test.std
    first = test.start
    wanted = np.concatenate([z[first], z[first - 1], z[first - 2]]) @ model.weights + model.offset
    error = wanted - np.concatenate([z[first + 1], z[first + 2]])
    one = StreamSource(ar2(300), context=1, horizon=2, split="test")
    one.length = 1  # the first step of the part, whose past lies in the part before
    assert model.score(one).mse == pytest.approx(float((error**2).mean()), rel=1e-8)


def test_the_penalty_is_the_best_on_the_valid_part() -> None:
    train, valid, _ = parts(ar2(250), context=5)
    choices = [1e-3, 1e-1, 10.0]
    scores = {p: ridge(train, valid, lags=20, penalties=[p]).score(valid).mse for p in choices}
    assert ridge(train, valid, lags=20, penalties=choices).penalty == min(scores, key=lambda p: scores[p])


def test_generated_stream_is_worth_forecasting() -> None:
    train, valid, test = (StreamSource(generated_stream(3000, 0), context=48, horizon=12, split=s) for s in SPLITS)
    assert ridge(train, valid).score(test).mse < 0.3 * persistence(test).mse


def test_lags_must_fit() -> None:
    train, valid, _ = parts(ar2(100), context=5)
    for lags in (0, 70):
        with pytest.raises(ValueError, match=rf"lags is {lags}; accepted: from 1 to 69"):
            ridge(train, valid, lags=lags)
