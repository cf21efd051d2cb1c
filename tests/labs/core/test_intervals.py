"""Intervals, paired differences, windows and expected best: against arithmetic and simulation."""

from __future__ import annotations

import itertools
from statistics import fmean

import numpy as np
import pytest

from linnet.labs.core.intervals import expected_best, interval, paired, share, window


def test_the_interval_covers_the_mean_as_often_as_it_says() -> None:
    """Of 300 samples of 20 normal numbers, 95 % less the few per cent by which a percentile bootstrap is too short."""
    rng = np.random.default_rng(0)
    inside = [(lambda i: i.low <= 0 <= i.high)(interval(rng.normal(size=20).tolist())) for _ in range(300)]
    assert 0.88 <= fmean(inside) <= 0.98


def test_an_interval_is_the_same_when_it_is_made_again_and_knows_its_seeds() -> None:
    result = interval([0.1, 0.5, 0.9])
    assert result == interval([0.1, 0.5, 0.9])
    assert (result.mean, result.seeds) == (0.5, 3)
    assert 0.1 <= result.low < 0.5 < result.high <= 0.9
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
