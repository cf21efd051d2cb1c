"""Intervals, paired differences, windows and expected best: against arithmetic and simulation."""

from __future__ import annotations

import itertools
from statistics import fmean

import numpy as np
import pytest

from linnet.labs.core.intervals import (
    expected_best,
    interval,
    median_interval,
    paired,
    share,
    share_interval,
    t_point,
    window,
)


def test_the_interval_covers_the_mean_as_often_as_it_says() -> None:
    """Of 2,000 samples of three and of five normal numbers; a percentile bootstrap of three covers 75 %."""
    rng = np.random.default_rng(0)
    for size in (3, 5):
        inside = [(lambda i: i.low <= 0 <= i.high)(interval(rng.normal(size=size).tolist())) for _ in range(2000)]
        assert 0.93 <= fmean(inside) <= 0.97


def test_points_of_student_s_t() -> None:
    """Against scipy, in the table and beyond it."""
    exact = pytest.importorskip("scipy.stats").t
    for freedom in (1, 2, 4, 9, 29, 30, 31, 50, 200, 10_000):
        assert t_point(freedom) == pytest.approx(exact.ppf(0.975, freedom), rel=1e-4)


def test_the_interval_of_a_median_covers_it_whatever_the_distribution() -> None:
    rng = np.random.default_rng(1)
    inside = [
        (lambda i: i.low <= 1 <= i.high)(median_interval(np.exp(rng.normal(size=9)).tolist())) for _ in range(2000)
    ]
    assert 0.95 <= fmean(inside) <= 0.98


def test_an_interval_is_the_same_when_it_is_made_again_and_knows_its_seeds() -> None:
    result = interval([0.1, 0.5, 0.9])
    assert result == interval([0.1, 0.5, 0.9])
    assert (result.mean, result.seeds) == (0.5, 3)
    assert result.low < 0.5 < result.high
    assert 0.5 - result.low == pytest.approx(result.high - 0.5)
    assert interval([0.7]) == (0.7, 0.7, 0.7, 1)
    with pytest.raises(ValueError, match="no value"):
        interval([])


def test_apart_needs_three_seeds() -> None:
    low, high = interval([0.1, 0.2, 0.15]), interval([0.8, 0.9, 0.85])
    assert low.apart(high)
    assert high.apart(low)
    assert not low.apart(interval([0.1, 0.3, 0.2]))
    assert not interval([0.1]).apart(interval([0.9]))


def test_paired_differences_use_common_seeds_only() -> None:
    result = paired({0: 0.9, 1: 0.7, 5: 0.0}, {0: 0.8, 1: 0.5, 2: 1.0})
    assert result.mean == pytest.approx(0.15)
    assert result.seeds == 2
    with pytest.raises(ValueError, match="no seed in common"):
        paired({0: 1.0}, {1: 1.0})


def test_window_is_the_longest_unbroken_run_of_rates() -> None:
    by_rate = {1e-3: 0.96, 3e-3: 0.2, 1e-2: 0.97, 3e-2: 0.99, 1e-1: 0.96, 1.0: 0.1}
    assert window(by_rate, 0.95) == pytest.approx(1.0)
    assert window({1e-3: 0.99}, 0.95) == 0.0
    assert window({1e-3: 0.9}, 0.95) is None


def test_expected_best_is_the_mean_over_all_choices() -> None:
    values = [0.3, 0.1, 0.9, 0.4, 0.9]
    for n in range(1, 6):
        wanted = fmean(max(choice) for choice in itertools.combinations(values, n))
        assert expected_best(values, n) == pytest.approx(wanted)
    with pytest.raises(ValueError, match="accepted: 1 to 5"):
        expected_best(values, 6)


def test_share() -> None:
    assert share([0.99, 1.0, 0.5], 0.99) == pytest.approx(2 / 3)


def test_the_interval_of_shares_stays_from_0_to_1() -> None:
    wide, narrow = [0.9, 0.5, 1.0], [0.5, 0.51, 0.52]
    assert interval(wide).high > 1
    assert share_interval(wide) == interval(wide)._replace(high=1.0)
    assert share_interval([1 - x for x in wide]).low == 0
    assert share_interval(narrow) == interval(narrow)
