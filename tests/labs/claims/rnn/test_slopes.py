"""Slopes of curves that are known; rows put together."""

from __future__ import annotations

import pytest

from linnet.labs.claims.rnn.slopes import Curves, slope


def test_slope() -> None:
    assert slope([1, 2, 4], [3, 12, 48]) == pytest.approx(2)


def test_curves_take_the_slope_from_the_longest_row_and_shared_lengths_from_the_shorter() -> None:
    def row(times: dict[int, float]) -> dict[str, object]:
        return {"metrics": {"arms": {"a": {str(n): {"ms": [ms, 2 * ms], "bytes": n} for n, ms in times.items()}}}}

    long, short = row({40: 1.0, 80: 4.0, 160: 16.0}), row({10: 7.0, 20: 7.0, 40: 7.0})
    curves = Curves([long, short])
    assert curves.time_slopes("a") == [pytest.approx(2), pytest.approx(2)]
    assert list(curves.ms["a"]) == [10, 20, 40, 80, 160]
    assert curves.middle("a")[40] == 10.5
    assert curves.memory_slope("a") == pytest.approx(1)
