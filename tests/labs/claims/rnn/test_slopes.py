"""Slopes and crossings of curves that are known; rows put together."""

from __future__ import annotations

import pytest

from linnet.labs.claims.rnn.slopes import Curves, crossing, slope


def test_slope() -> None:
    assert slope([1, 2, 4], [3, 12, 48]) == pytest.approx(2)


def test_crossing() -> None:
    linear, square = {n: 32.0 * n for n in (8, 16, 64, 128)}, {n: float(n * n) for n in (8, 16, 64, 128)}
    assert crossing(linear, square) == pytest.approx(32)
    assert crossing(square, linear) is None
    assert crossing(dict.fromkeys(linear, 1.0), square) == 8
    bumpy = {8: 1e3, 16: 1.0, 64: 1e6, 128: 1.0}  # behind, ahead, behind, ahead: what counts is where it stays ahead
    assert 64 < (crossing(bumpy, square) or 0) < 128


def test_curves_take_the_slope_from_the_longest_row_and_shared_lengths_from_the_shorter() -> None:
    def row(times: dict[int, float]) -> dict[str, object]:
        return {"metrics": {"arms": {"a": {str(n): {"ms": [ms, 2 * ms], "bytes": n} for n, ms in times.items()}}}}

    long, short = row({40: 1.0, 80: 4.0, 160: 16.0}), row({10: 7.0, 20: 7.0, 40: 7.0})
    curves = Curves([long, short])
    assert curves.time_slopes("a") == [pytest.approx(2), pytest.approx(2)]
    assert list(curves.ms["a"]) == [10, 20, 40, 80, 160]
    assert curves.middle("a")[40] == 10.5
    assert curves.memory_slope("a") == pytest.approx(1)
