"""What the trained claims share: mixers of the arms, paired ratios, mean curves."""

from __future__ import annotations

import pytest

from linnet.labs.claims.rnn.variants import (
    at_most,
    common,
    geometric,
    mean_curve,
    mixer_of,
    ratio,
    ratio_number,
    rows_of,
    share_number,
)
from tests.labs.claims.rnn.variant_rows import arm_rows


def test_linear_is_the_papers_map_and_lsh_has_more_buckets_for_longer_sequences() -> None:
    assert mixer_of("linear", 64) == {"mixer": "elu"}
    assert mixer_of("softmax", 64) == {"mixer": "softmax"}
    buckets = [mixer_of("lsh", length)["mixer_options"]["lsh"]["n_buckets"] for length in (20, 64, 128, 196)]
    assert buckets == [4, 8, 16, 24]
    assert mixer_of("lsh", 64, rounds=1)["mixer_options"]["lsh"]["rounds"] == 1


def test_ratios_are_of_the_same_seed() -> None:
    above, below = {0: 2.0, 1: 9.0, 2: 4.0, 3: 1.0}, {0: 1.0, 1: 9.0, 2: 1.0}
    result = ratio(above, below)
    assert (result.mean, result.seeds) == (pytest.approx(2.0), 3)  # the geometric mean of 2, 1 and 4
    assert 0 < result.low < 1 < result.mean < result.high
    assert result.low * result.high == pytest.approx(result.mean**2)
    one = ratio_number("a over b", "1.5", above, below)
    assert (one.ours, one.of, one.paper) == (result.mean, "3 seeds", "1.5")
    assert common({"a": above, "b": below}) == 3
    assert common({"a": above, "b": {}}) == 0


def test_an_interval_of_shares_stays_within_0_and_100() -> None:
    high = share_number("right", None, {0: 1.0, 1: 0.97, 2: 1.0})
    assert (high.ours, high.high, high.unit) == (pytest.approx(99), 100.0, "%")
    assert (high.low or 0) < 97
    assert share_number("wrong", None, {0: 0.0, 1: 0.03}).low == 0


def test_a_score_that_falls_has_a_floor() -> None:
    passed, failed = (at_most("softmax", bits, 6.0, "needs {} bits") for bits in (6.0, 6.5))
    assert passed.passed
    assert not failed.passed
    assert failed.always
    assert failed.detail == "softmax needs 6.5 bits; 6 or less is accepted"


def test_rows_of_an_arm_are_those_with_a_score() -> None:
    rows = arm_rows("digits", "bits_per_dim", {"linear": [1.0, 2.0], "lsh": [3.0]}, {"length": 8})
    rows[1]["metrics"] = {"curve": [], "ending": "diverged"}
    assert rows_of(rows, "linear") == [rows[0]]
    assert rows_of(rows, "lsh", length=9) == []


def test_a_mean_curve_has_the_steps_of_all_seeds() -> None:
    rows = arm_rows("digits", "bits_per_dim", {"linear": [1.0, 3.0]}, {})
    rows[1]["metrics"]["curve"] = rows[1]["metrics"]["curve"][1:]
    assert [point[:2] for point in mean_curve(rows)] == [[50, 6.0], [75, 4.0], [100, 2.0]]
    assert mean_curve(rows)[-1][2] < 0 < mean_curve(rows, over=geometric)[-1][2]  # of two seeds, 1 and 3
    assert mean_curve([]) == []
