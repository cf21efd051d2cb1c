"""The speech claim: what its rule finds in made-up rows, and which outcome regime, controls and seeds allow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from linnet.labs.claims.rnn.speech import read
from linnet.labs.core.claim import NO, OPEN, YES, Row
from linnet.labs.core.licence import licence
from linnet.labs.core.verdicts import CLOSE, FAILS, HOLDS, NOT_SEEN, SEEN, UNTESTED
from tests.labs.claims.rnn.variant_rows import STEPS, STILL, arm_rows

HOW = {"steps": STEPS, "batch_size": 8}
WSJ: dict[str, Any] = {"data": {"name": "wsj"}, "model": {}, "train": HOW}  # without sizes, the paper's
AN4: dict[str, Any] = {"data": {"name": "an4"}, "model": {"d_model": 64, "n_heads": 4, "n_layers": 3}, "train": HOW}
PACE = {"softmax": [0.3, 0.31, 0.32], "linear": [0.1, 0.1, 0.1], "lsh": [0.2, 0.2, 0.2], "bilstm": [0.4, 0.4, 0.4]}
SCORES = {
    "softmax": [0.050, 0.051, 0.049, 0.050, 0.050],
    "linear": [0.080, 0.081, 0.079, 0.080, 0.080],
    "lsh": [0.09] * 5,
    "bilstm": [0.110, 0.112, 0.108, 0.110, 0.110],
}
AHEAD, NEAR, DEAF = {"bilstm": [0.05] * 5}, {"linear": [0.04, 0.06, 0.05, 0.04, 0.06]}, {"softmax": [0.28] * 5}


def rows(
    changed: dict[str, list[float]] | None = None,
    *,
    config: dict[str, Any] = WSJ,
    seeds: int = 5,
    frames: int = 800,
    falls: Sequence[float] = STILL,
    pace: dict[str, list[float]] | None = PACE,
) -> list[Row]:
    scores = {variant: values[:seeds] for variant, values in {**SCORES, **(changed or {})}.items()}
    made = arm_rows("speech", "per", scores, config, {"utterances": 800, "units": frames * 8 * STEPS}, falls)
    if pace is not None:
        made.append({"config": {"experiment": "speech-pace"}, "metrics": {"seconds": {"800": pace, "100": pace}}})
    return made


@pytest.mark.parametrize(
    ("made", "state", "outcome"),
    [
        (rows(), YES, HOLDS),
        (rows(AHEAD), NO, FAILS),
        (rows(NEAR), OPEN, CLOSE),
        (rows(seeds=3), YES, UNTESTED),
        (rows(config=AN4, seeds=3, frames=66), YES, SEEN),
        (rows(AHEAD, config=AN4, seeds=3, frames=66), NO, NOT_SEEN),
        (rows(AHEAD | DEAF, config=AN4, frames=66), NO, UNTESTED),
        (rows({"bilstm": [0.28] * 5}), YES, UNTESTED),
        (rows({"linear": [0.7] * 5}), NO, FAILS),  # linear is what is tested: it has no floor
        (rows(AHEAD, falls=(4, 3, 2, 1)), NO, UNTESTED),
        (rows(AHEAD, frames=66), NO, NOT_SEEN),
        (rows(AHEAD, config={**WSJ, "data": {"name": "an4"}}), NO, NOT_SEEN),
    ],
)
def test_outcomes(made: list[Row], state: str, outcome: str) -> None:
    finding = read(made)
    assert (finding.evidence.state, finding.outcome) == (state, outcome)


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (rows(DEAF), "softmax has a phone error rate of 0.28; 0.22 or less is accepted"),
        (rows(falls=(4, 3, 2, 1)), "the share of phones right of softmax rises by"),
        (rows(config=AN4, frames=66), "AN4 (the paper has WSJ); frames 66 (the paper has 800); layers 3"),
    ],
)
def test_what_a_verdict_lacks_is_named(made: list[Row], why: str) -> None:
    assert why in licence(read(made).evidence).reason


def test_what_a_reader_sees() -> None:
    finding = read(rows())
    assert [n.ours for n in finding.numbers[:2]] == pytest.approx([3, 3])
    assert [n.ours for n in finding.numbers[2:6]] == pytest.approx([5, 8, 9, 11])
    assert finding.numbers[6].ours == pytest.approx(3.1)
    assert "softmax 5.0 %, linear 8.0 %, hashed 9.0 %, the Bi-LSTM 11.0 %" in finding.sentence
    assert finding.scope == "WSJ, d = 192, 9 layers, 100 steps, 5 seeds"
    line = finding.tables[0].rows[1]
    assert line[:4] == ("linear", "4,321", "8.08 %", "8 %")
    assert line[5:] == ("824", "2.0", "100")
    assert len(finding.charts) == 2


@pytest.mark.parametrize(
    ("changed", "first", "ours"),
    [(AHEAD, "the Bi-LSTM minus that of linear", -3), ({"softmax": [0.10] * 5}, "linear minus that of softmax", -2)],
)
def test_the_pair_that_decides_comes_first(changed: dict[str, list[float]], first: str, ours: float) -> None:
    number = read(rows(changed)).numbers[0]
    assert first in number.what
    assert number.ours == pytest.approx(ours)


def test_missing_rows_say_nothing() -> None:
    assert "time of a training step" in read(rows(pace=None)).sentence
    assert read(rows({"lsh": []})).outcome == UNTESTED
    assert read(rows({"linear": [0.3, 0.3]})).outcome == UNTESTED
