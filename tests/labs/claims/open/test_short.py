"""Short sequences: every outcome of the rule on made-up timings, and what a reader sees."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from linnet.labs.claims.open.crossover import crossover_number
from linnet.labs.claims.open.short import CLAIM
from linnet.labs.core.claim import Chart
from linnet.labs.core.results import Row, make_row
from linnet.labs.core.verdicts import CLOSE, FAILS, HOLDS, UNTESTED

from .made_up import arm_rows

LENGTHS = [8, 32, 64, 128, 512]
EARLY, LATE = (4.0, 1.5, 0.5, 0.3, 0.1), (4.0, 4.0, 2.0, 0.5, 0.1)  # linear overtakes at 42 and at 91 tokens
JUST, NOT_YET = (4.0, 1.5, 0.95, 0.3, 0.1), (4.0, 1.5, 1.1, 0.3, 0.1)  # at 64 tokens


def timed(what: str, *rounds: Sequence[float], noise: float = 0.0, threads: int = 2) -> Row:
    """Softmax takes a second, linear the ratio of each round; one round in two both are slower by the noise."""
    slower = [1 + noise * (turn % 2) for turn in range(len(rounds))]
    linear = [[one * by for one, by in zip(by_length, slower, strict=True)] for by_length in zip(*rounds, strict=True)]
    config = {"experiment": "short speed", "what": what, "lengths": LENGTHS, "threads": threads}
    metrics = {"linear": linear, "softmax": [slower for _ in LENGTHS]}
    return make_row({**config, "heads": 4, "head_dim": 64}, metrics, 0.1)


def rows(*rounds: Sequence[float], noise: float = 0.0) -> list[Row]:
    quality = arm_rows("text", "elu", [3.03] * 3, length=32) + arm_rows("text", "softmax", [3.0] * 3, length=32)
    quality += arm_rows("recall", "elu", [0.9] * 3, length=8) + arm_rows("recall", "softmax", [1.0] * 3, length=8)
    return [timed("op", *rounds, noise=noise), timed("step", (1.0, 0.9, 0.9, 0.9, 0.5)), *quality]


@pytest.mark.parametrize(
    ("made", "outcome"),
    [
        (rows(*[EARLY] * 6), HOLDS),
        (rows(*[LATE] * 6), FAILS),
        (rows(*[(2.0,) * 5] * 6), FAILS),  # at no length
        (rows(*[JUST, NOT_YET] * 5), CLOSE),
        (rows(*[EARLY] * 4), UNTESTED),  # rounds
        (rows(*[EARLY] * 6, noise=1.0), UNTESTED),  # the ratios are the same, but the machine was busy
        (rows(*[EARLY] * 6)[1:], UNTESTED),
        (rows(*[EARLY] * 6)[:1], UNTESTED),
        ([], UNTESTED),
    ],
)
def test_outcomes(made: list[Row], outcome: str) -> None:
    assert CLAIM.read(made).outcome == outcome


def test_what_a_reader_sees() -> None:
    made = rows(*[LATE] * 6)
    finding = CLAIM.read(made)
    assert finding.numbers[0] == crossover_number(made[0])  # the number that decides is that of every other claim
    assert "from 91 tokens" in finding.sentence
    assert finding.scope == "4 heads of width 64, 8 to 512 tokens, 2 threads, 6 rounds"
    shown = {number.what: number.ours for number in finding.numbers}
    assert shown["time of the operation, linear / fused softmax, 8 tokens"] == pytest.approx(4.0)
    assert shown["time of a training step, linear / softmax, 128 tokens"] == pytest.approx(0.9)
    assert shown["recalled values right, linear, at the worst length for linear (8 tokens)"] == pytest.approx(0.9)
    assert finding.tables[1].rows[1][:4] == ("bits per character", "32", "3.030", "3")
    assert "below about 91 tokens" in finding.meaning
    chart = finding.charts[0]
    assert isinstance(chart, Chart)
    assert [point[0] for point in chart.series["operation, 2 threads"]] == LENGTHS


def test_the_most_threads_decide_and_both_are_shown() -> None:
    finding = CLAIM.read([timed("op", *[(2.0,) * 5] * 6, threads=1), *rows(*[EARLY] * 6)])
    assert finding.outcome == HOLDS
    chart = finding.charts[0]
    assert isinstance(chart, Chart)
    assert set(chart.series) == {"operation, 1 thread", "operation, 2 threads", "training step, 2 threads"}
