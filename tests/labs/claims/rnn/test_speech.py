"""The speech claim: its rule on made-up rows."""

from __future__ import annotations

from typing import Any

import pytest

from linnet.labs.claims.rnn.speech import read
from linnet.labs.core.claim import CONFIRMED, REFUTED, UNCLEAR, UNTESTED, Row
from tests.labs.claims.rnn.variant_rows import STEPS, arm_rows

CONFIG: dict[str, Any] = {"data": {"name": "an4"}, "train": {"steps": STEPS, "batch_size": 8}}
PACE = {"softmax": [0.3, 0.31, 0.32], "linear": [0.1, 0.1, 0.1], "lsh": [0.2, 0.2, 0.2], "bilstm": [0.4, 0.4, 0.4]}
SCORES = {
    "softmax": [0.20, 0.21, 0.19],
    "linear": [0.30, 0.29, 0.31],
    "lsh": [0.33, 0.33, 0.33],
    "bilstm": [0.40, 0.45, 0.41],
}


def rows(pace: dict[str, list[float]] | None = PACE, **scores: list[float]) -> list[Row]:
    result = arm_rows("speech", "per", {**SCORES, **scores}, CONFIG, {"utterances": 800})
    if pace is not None:
        result.append({"config": {"experiment": "speech-pace"}, "metrics": {"seconds": {"800": pace, "100": pace}}})
    return result


def test_the_order_of_the_paper_confirms() -> None:
    finding = read(rows())
    assert finding.outcome == CONFIRMED
    assert finding.numbers[0].ours == pytest.approx((0.30 / 0.20 + 0.29 / 0.21 + 0.31 / 0.19) / 3)
    assert [n.ours for n in finding.numbers[1:5]] == pytest.approx([20, 30, 33, 42])
    assert finding.numbers[5].ours == pytest.approx(3.1)
    assert "3.1" in finding.meaning
    line = finding.tables[0].rows[1]
    assert line[:3] == ("linear", "4,321", "8.08 %")
    assert line[3].startswith("30")
    assert line[5:] == ("824", "2.0", "100")
    assert len(finding.charts) == 2


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"softmax": [0.35, 0.36, 0.35]}, "softmax before linear"),
        ({"bilstm": [0.1, 0.1, 0.1]}, "linear before bilstm"),
        ({"pace": PACE | {"softmax": [0.05] * 3}}, "linear faster than softmax"),
    ],
)
def test_what_is_turned_round_refutes(changed: dict[str, Any], why: str) -> None:
    finding = read(rows(**changed))
    assert finding.outcome == REFUTED
    assert why in finding.sentence


def test_equal_error_rates_are_unclear() -> None:
    finding = read(rows(softmax=[0.30, 0.28, 0.32]))
    assert finding.outcome == UNCLEAR
    assert "softmax before linear" in finding.sentence


def test_a_network_that_has_not_learnt_is_not_judged() -> None:
    finding = read(rows(bilstm=[0.8, 0.8, 0.8]))
    assert finding.outcome == UNCLEAR
    assert "not judged: bilstm" in finding.sentence
    nobody = {variant: [0.9, 0.8, 0.7] for variant in SCORES} | {"softmax": [0.99, 0.99, 0.99]}
    assert read(rows(**nobody)).outcome == UNCLEAR


def test_missing_rows_say_nothing() -> None:
    assert "time of a training step" in read(rows(pace=None)).sentence
    assert read(rows(lsh=[])).outcome == UNTESTED
    assert read(rows(linear=[0.3, 0.3])).outcome == UNTESTED
