"""T5: the rule's outcomes; without a compiler nothing is said, and nothing breaks."""

from __future__ import annotations

from typing import Any

import pytest

from linnet.labs.bench import per_token as bench
from linnet.labs.claims.rnn import per_token
from linnet.labs.claims.rnn.per_token import BACKWARD, CHUNKED, FORWARD, LONG, MANY, TOKEN, TUNED
from linnet.labs.core.claim import CONFIRMED, REFUTED, UNCLEAR, UNTESTED
from linnet.native.library import library


def rows(many: float = 3.0, long: float = 4.0, backward: float = 1.0) -> list[dict[str, Any]]:
    collected = []
    for name, ratio in ((MANY, many), (LONG, long)):
        forward = {CHUNKED: [1.0, 2.0, 4.0], TOKEN: [ratio, 2 * ratio, 4 * ratio], TUNED: [0.5, 1.0, 2.0]}
        slow = [backward * ratio * x for x in (1.0, 2.0, 4.0)]
        ms = {FORWARD: forward, BACKWARD: {CHUNKED: [1.0, 2.0, 4.0], TOKEN: slow}}
        collected.append({"config": {"shape": name, **per_token.SHAPES[name]}, "metrics": {"ms": ms}})
    return collected


@pytest.mark.parametrize(
    ("how", "outcome"),
    [
        ({}, CONFIRMED),
        ({"many": 1.9}, UNCLEAR),
        ({"long": 2.9}, UNCLEAR),
        ({"backward": 0.5}, UNCLEAR),
        ({"backward": 0.3}, REFUTED),
    ],
)
def test_outcomes(how: dict[str, float], outcome: str) -> None:
    assert per_token.read(rows(**how)).outcome == outcome


def test_numbers_are_ratios_of_rounds() -> None:
    finding = per_token.read(rows(backward=2.0)).numbers
    assert [one.ours for one in finding] == [pytest.approx(x) for x in (4, 8, 3, 6, 0.5, 0.5)]
    assert finding[0].what == "forward: time per token / chunked, 1 x 65,536 tokens"
    assert finding[2].what.endswith("100 x 1,000 tokens")
    assert finding[0].of == "3 rounds"


def test_a_missing_shape_is_said() -> None:
    assert per_token.read(rows()[:1]).sentence == "there is no row of the shape one long"


def test_without_a_compiler_it_is_not_testable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    bench._compiled.cache_clear()
    metrics = per_token.race({**per_token.SHAPES[MANY], "length": 8, "rounds": 2})
    finding = per_token.read([{"config": {"shape": MANY, **per_token.SHAPES[MANY]}, "metrics": metrics}])
    assert finding.outcome == UNTESTED
    why = "no C compiler found" if library() is not None else "the native library is not there"
    assert why in finding.sentence
