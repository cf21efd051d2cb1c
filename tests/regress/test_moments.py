"""Moments against NumPy on the examples themselves: added, removed, faded, merged, and far from zero."""

from __future__ import annotations

import numpy as np
import pytest

from linnet.regress.moments import Array, Moments

EXACT = 1e-10


def examples(n: int, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3)) * [1.0, 5.0, 0.1] + [0.0, 2.0, -3.0]
    return x, x @ [1.0, -0.5, 2.0] + rng.normal(size=n)


def close(result: Moments, wanted: Moments, tolerance: float = EXACT) -> bool:
    return all(np.allclose(a, b, rtol=tolerance, atol=tolerance) for a, b in zip(result, wanted, strict=True))


def test_moments_are_those_of_numpy() -> None:
    x, y = examples(12)
    result, e = Moments.of(x, y), np.column_stack([x, y])
    assert close(result, Moments(12.0, e.mean(0), np.cov(e.T, bias=True) * 12))
    np.testing.assert_allclose(result.spread, e.std(0), rtol=EXACT)


def test_parts_join_and_come_apart() -> None:
    x, y = examples(30)
    parts = Moments.of(x[:11], y[:11]).merge(Moments.of(x[11:], y[11:]))
    assert close(parts, Moments.of(x, y))
    assert close(parts.remove(Moments.of(x[:11], y[:11])), Moments.of(x[11:], y[11:]))
    assert close(Moments.zeros(3).merge(Moments.of(x, y)), Moments.of(x, y))
    assert close(parts.remove(Moments.of(x, y)), Moments.zeros(3))


def test_a_sliding_window_stays_exact_over_many_rows() -> None:
    x, y = examples(3000)
    window = Moments.of(x[:20], y[:20])
    for i in range(20, 3000):
        window = window.merge(Moments.of(x[i : i + 1], y[i : i + 1])).remove(
            Moments.of(x[i - 20 : i - 19], y[[i - 20]])
        )
    assert close(window, Moments.of(x[-20:], y[-20:]), 1e-9)


def test_fading_is_the_same_in_one_go_and_row_by_row() -> None:
    x, y = examples(9)
    rows = Moments.zeros(3)
    for i in range(9):
        rows = rows.decay(0.8).merge(Moments.of(x[i : i + 1], y[i : i + 1]))
    assert close(rows, Moments.of(x, y, 0.8))
    assert rows.n == pytest.approx(sum(0.8**i for i in range(9)))
    assert close(rows.decay(0.0), Moments.zeros(3))


def test_a_mean_a_million_times_the_spread_costs_no_digits() -> None:
    x, y = examples(400)
    far = Moments.zeros(3)
    for i in range(0, 400, 8):
        far = far.merge(Moments.of(x[i : i + 8] + 1e8, y[i : i + 8]))
    np.testing.assert_allclose(far.scatter, Moments.of(x, y).scatter, rtol=1e-5, atol=1e-4)


def test_a_column_that_is_constant_in_the_window_has_no_spread() -> None:
    x, y = examples(10)
    x[:, 2] = 0.1
    x[0, 2] = 7.0
    assert Moments.of(x[1:], y[1:]).spread[2] == 0
    assert Moments.of(x, y).remove(Moments.of(x[:1], y[:1])).spread[2] == 0


def test_what_was_never_learned_cannot_be_taken_out() -> None:
    x, y = examples(6)
    known = Moments.of(x, y)
    with pytest.raises(ValueError, match=r"^7 examples cannot be removed from 6; forget only what was learned$"):
        known.remove(Moments.of(*examples(7)))
    with pytest.raises(ValueError, match="vary more than all that were learned"):
        known.remove(Moments.of(x[:3] * 100, y[:3]))
    with pytest.raises(ValueError, match="one side has 3 features and the other 2"):
        known.merge(Moments.of(x[:, :2], y))
    with pytest.raises(ValueError, match=r"the factor is 1\.5"):
        known.decay(1.5)
