"""The copy claim: what its rule finds in made-up rows, and which outcome regime, controls and seeds allow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from linnet.labs.claims.rnn.copy import read
from linnet.labs.core.claim import NO, OPEN, YES, Row
from linnet.labs.core.licence import licence
from linnet.labs.core.verdicts import CLOSE, FAILS, HOLDS, NOT_SEEN, SEEN, UNTESTED
from tests.labs.claims.rnn.variant_rows import STILL, arm_rows

PAPER: dict[str, Any] = {"length": 128, "model": {"d_model": 256, "n_layers": 4}, "train": {"steps": 10_000}}
SMALL: dict[str, Any] = {"length": 32, "model": {"d_model": 64, "n_layers": 2}, "train": {"steps": 800}}
EQUAL, APART, WIDE = [0.011, 0.010, 0.012, 0.011, 0.010], [0.05, 0.06, 0.05, 0.05, 0.06], [0.01, 0.01, 0.05, 0.01, 0.07]


def rows(
    linear: Sequence[float] = EQUAL,
    *,
    config: dict[str, Any] = PAPER,
    seeds: int = 5,
    softmax_right: float = 1.0,
    falls: Sequence[float] = STILL,
) -> list[Row]:
    """Softmax ends at a loss of 0.01 and LSH at 0.05."""
    losses = {"linear": linear[:seeds], "softmax": [0.01] * seeds, "lsh": [0.05] * seeds}
    made = arm_rows("copy", "loss", losses, config, falls=falls)
    for row in made:
        right = softmax_right if row["config"]["arm"] == "softmax" else 0.995
        row["metrics"] |= {"accuracy": right, "curve": [[*point, right] for point in row["metrics"]["curve"]]}
    return made


@pytest.mark.parametrize(
    ("made", "state", "outcome"),
    [
        (rows(), YES, HOLDS),
        (rows(APART), NO, FAILS),
        (rows(WIDE), OPEN, CLOSE),
        (rows(seeds=3), YES, UNTESTED),
        (rows(config=SMALL, seeds=3), YES, SEEN),
        (rows(APART, config=SMALL, seeds=3), NO, NOT_SEEN),
        (rows(WIDE, config=SMALL), OPEN, UNTESTED),
        (rows(softmax_right=0.98), YES, UNTESTED),
        (rows(APART, softmax_right=0.98, config=SMALL), NO, UNTESTED),
        (rows(APART, falls=(4, 3, 2, 1)), NO, UNTESTED),
        (rows(APART, falls=(4, 3, 2, 1), config=SMALL), NO, NOT_SEEN),
    ],
)
def test_outcomes(made: list[Row], state: str, outcome: str) -> None:
    finding = read(made)
    assert (finding.evidence.state, finding.outcome) == (state, outcome)


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (rows(softmax_right=0.98), "softmax did not learn"),
        (rows(falls=(4, 3, 2, 1)), "softmax had not converged"),
        (rows(seeds=4), "4 seeds, 5 needed"),
    ],
)
def test_what_a_verdict_lacks_is_named(made: list[Row], why: str) -> None:
    assert licence(read(made).evidence).short == why


def test_what_a_reader_sees() -> None:
    finding = read(rows())
    assert finding.numbers[0].ours == pytest.approx((1.1 * 1.0 * 1.2 * 1.1 * 1.0) ** (1 / 5))  # decides
    assert finding.numbers[1].ours == pytest.approx(finding.numbers[0].ours / 5)
    assert [one.ours for one in finding.numbers[2:]] == pytest.approx([99.5, 100, 99.5])
    assert finding.scope == "128 tokens, d = 256, 4 layers, 10,000 steps, 5 seeds"
    assert finding.tables[0].rows[1][:4] == ("128", "linear", "99.5 %", "0.0108")
    assert finding.charts[0].series["linear"][-1][:2] == [100, pytest.approx(finding.numbers[0].ours / 100)]  # type: ignore[union-attr]


def test_two_seeds_or_a_missing_variant_say_nothing() -> None:
    assert read(rows(seeds=2)).outcome == UNTESTED
    missing = read([row for row in rows() if row["config"]["arm"] != "lsh"])
    assert missing.outcome == UNTESTED
    assert "lsh" in missing.sentence


@pytest.mark.parametrize(("seeds", "judged"), [(1, "32 tokens"), (3, "128 tokens")])
def test_the_longest_words_with_enough_seeds_are_judged_and_all_are_in_the_table(seeds: int, judged: str) -> None:
    finding = read(rows(config=SMALL) + rows(APART, seeds=seeds))
    assert finding.scope.startswith(judged)
    assert [line[0] for line in finding.tables[0].rows] == ["32"] * 3 + ["128"] * 3
