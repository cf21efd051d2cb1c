"""Short sequences: the timing has every round, the crossing is where it should be, every outcome of the rule."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from linnet.labs.claims.open.short import CLAIM, crossing
from linnet.labs.core.claim import CONFIRMED, REFUTED, UNCLEAR, UNTESTED, Chart
from linnet.labs.core.results import Row, make_row

from .made_up import arm_rows

LENGTHS = [8, 32, 128, 512]


def timed(what: str, ratios: Sequence[float], noise: float = 0.0, threads: int = 2) -> Row:
    """Softmax takes a second, linear the ratio; odd rounds are faster and even ones slower by the noise."""
    linear = [[ratio * (1 + noise * (-1) ** i) for i in range(6)] for ratio in ratios]
    config = {"experiment": "short speed", "what": what, "lengths": LENGTHS, "threads": threads}
    return make_row(config, {"linear": linear, "softmax": [[1.0] * 6 for _ in LENGTHS]}, 0.1)


def rows(
    step: Sequence[float] = (1.0, 0.9, 0.9, 0.5), bits: float = 3.0, recall: float = 0.99, noise: float = 0.0
) -> list[Row]:
    quality = arm_rows("text", "elu", [bits] * 3, length=32) + arm_rows("text", "softmax", [3.0] * 3, length=32)
    quality += arm_rows("recall", "elu", [recall] * 3, length=8) + arm_rows("recall", "softmax", [1.0] * 3, length=8)
    return [timed("op", (4.0, 2.0, 0.5, 0.1)), timed("step", step, noise), *quality]


@pytest.mark.parametrize(
    ("made", "outcome"),
    [
        (rows(), CONFIRMED),
        (rows(step=(1.2, 1.0, 1.0, 0.5)), REFUTED),
        (rows(step=(1.0, 1.0, 1.0, 2.0)), CONFIRMED),  # 512 tokens are not short
        (rows(bits=3.1), REFUTED),
        (rows(recall=0.9), REFUTED),
        (rows(step=(1.05, 1.0, 1.0, 1.0), noise=0.1), UNCLEAR),
        (rows()[1:], UNTESTED),
        (rows()[:2], UNTESTED),
        ([row for row in rows() if row["seed"] != 2], UNTESTED),
        ([], UNTESTED),
    ],
)
def test_outcomes(made: list[Row], outcome: str) -> None:
    assert CLAIM.read(made).outcome == outcome


@pytest.mark.parametrize(
    ("ratios", "where"),
    [
        ({8: 2.0, 32: 0.5, 128: 0.1}, 16.0),  # half way between the logarithms
        ({8: 0.9, 32: 0.5, 128: 0.1}, 8.0),  # never slower: the shortest is a bound
        ({8: 2.0, 32: 1.5, 128: 1.2}, 128.0),  # never faster: the longest is
        ({8: 0.9, 32: 4.0, 128: 0.25}, 64.0),  # only what stays under 1 counts
    ],
)
def test_crossing(ratios: dict[int, float], where: float) -> None:
    assert crossing({n: [7.0, ratio] for n, ratio in ratios.items()}, 1) == pytest.approx(where)


def test_what_a_reader_sees() -> None:
    finding = CLAIM.read(rows(bits=3.03))
    first = finding.numbers[0]
    assert first.what == "tokens from which the linear op is faster than fused softmax, 2 threads"
    assert first.ours == pytest.approx(64.0)
    assert first.of == "6 rounds"
    shown = {number.what: number.ours for number in finding.numbers}
    assert shown["time of the linear op over fused softmax, 8 tokens"] == pytest.approx(4.0)
    assert shown["time of a training step, linear over softmax, 128 tokens"] == pytest.approx(0.9)
    assert shown["bits per character that linear loses to softmax, as a share, worst length (32 tokens)"] == (
        pytest.approx(0.01)
    )
    assert shown["recall lost to softmax, worst length (8 tokens)"] == pytest.approx(0.01)
    assert "Below about 64 tokens use softmax" in finding.meaning
    chart = finding.charts[0]
    assert isinstance(chart, Chart)
    assert [point[0] for point in chart.series["op, 2 threads"]] == LENGTHS


def test_the_most_threads_decide_and_both_are_shown() -> None:
    slow = timed("op", (4.0, 4.0, 4.0, 4.0), threads=1)
    finding = CLAIM.read([slow, *rows()])
    assert finding.numbers[0].ours == pytest.approx(64.0)
    assert len(finding.charts[0].series) == 3  # type: ignore[union-attr]
