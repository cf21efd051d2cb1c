"""The crossover of linear and softmax attention: where it is, its interval over rounds, and its one number."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import pytest

from linnet.labs.claims.open.crossover import (
    ROUNDS,
    crossing,
    crossover,
    crossover_number,
    crossover_unit,
    deciding,
    in_words,
)
from linnet.labs.core.results import Row, make_row

LENGTHS = [8, 32, 128]


def timed(*rounds: Sequence[float], what: str = "op", threads: int = 2) -> Row:
    """Softmax takes a second at every length, and linear the ratio of each round."""
    linear = [list(by_length) for by_length in zip(*rounds, strict=True)]
    config = {"experiment": "short speed", "what": what, "lengths": LENGTHS, "threads": threads}
    return make_row(config, {"linear": linear, "softmax": [[1.0] * len(rounds) for _ in LENGTHS]}, 0.1)


@pytest.mark.parametrize(
    ("ratios", "where"),
    [
        ({8: 2.0, 32: 0.5, 128: 0.1}, 16.0),  # half way between the logarithms
        ({8: 0.9, 32: 0.5, 128: 0.1}, 8.0),  # never slower: the shortest is a bound
        ({8: 2.0, 32: 1.5, 128: 1.2}, inf),  # never faster
        ({8: 0.9, 32: 4.0, 128: 0.25}, 64.0),  # only what stays below 1 counts
    ],
)
def test_crossing(ratios: dict[int, float], where: float) -> None:
    assert crossing(ratios) == pytest.approx(where)


def test_the_interval_is_of_the_rounds_own_crossovers() -> None:
    early, late = (2.0, 0.5, 0.1), (4.0, 2.0, 0.5)  # 16 and 64 tokens
    middle = crossover(timed(early, late, late))
    assert middle[:3] == pytest.approx((64.0, 16.0, 64.0))
    assert middle.seeds == 3


@pytest.mark.parametrize(
    ("ratios", "value", "ending"),
    [
        ((2.0, 0.5, 0.1), 16.0, "stays so"),
        ((0.5, 0.5, 0.1), 8.0, "(or fewer: 8 is the shortest timed)"),
        ((2.0, 2.0, 2.0), inf, "none up to 128"),
    ],
)
def test_the_number_names_what_was_not_reached(ratios: tuple[float, ...], value: float, ending: str) -> None:
    row = timed(ratios, ratios)
    number = crossover_number(row)
    assert number.ours == pytest.approx(value)
    assert number.what.endswith(ending)
    assert "inf" not in number.shown() + in_words(crossover(row), LENGTHS)


def test_the_operation_with_the_most_threads_decides() -> None:
    ratios = (2.0, 0.5, 0.1)
    one, two, step = timed(ratios, threads=1), timed(ratios), timed(ratios, what="step", threads=4)
    assert deciding([one, step, two]) is two
    assert deciding([step]) is None


def test_a_measurement_keeps_every_round_of_every_length() -> None:
    unit = crossover_unit("smoke")
    (row,) = unit.function(unit.work)
    assert row["config"] == unit.configs[0]
    for name in ("linear", "softmax"):
        assert [len(rounds) for rounds in row["metrics"][name]] == [ROUNDS["smoke"]] * 2
        assert min(min(rounds) for rounds in row["metrics"][name]) > 0
