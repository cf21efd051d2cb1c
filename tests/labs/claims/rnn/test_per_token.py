"""T5: the rule's outcomes; without a compiler nothing is said, and nothing breaks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from linnet.labs.bench import per_token as bench
from linnet.labs.claims.rnn import per_token
from linnet.labs.claims.rnn.per_token import BACKWARD, CHUNKED, FORWARD, LONG, MANY, TOKEN, TUNED
from linnet.labs.core.verdicts import CLOSE, FAILS, HOLDS, UNTESTED
from linnet.native.library import library

QUIET = (1.0, 1.1, 1.2, 1.0, 1.1)
NOISY = (1.0, 2.0, 4.0, 8.0, 16.0)


def rows(
    many: float = 3.0,
    long: float = 4.0,
    backward: float = 1.0,
    pace: Sequence[float] = QUIET,
    scatter: float = 0.0,
) -> list[dict[str, Any]]:
    """The machine's pace changes from round to round, and the ratio only by the scatter in the first round."""
    collected = []
    for name, ratio in ((MANY, many), (LONG, long)):
        slow = [ratio * (x - scatter * (turn == 0)) for turn, x in enumerate(pace)]
        forward = {CHUNKED: [*pace], TOKEN: slow, TUNED: [x / 2 for x in pace]}
        ms = {FORWARD: forward, BACKWARD: {CHUNKED: [*pace], TOKEN: [backward * x for x in slow]}}
        collected.append({"config": {"shape": name, **per_token.SHAPES[name]}, "metrics": {"ms": ms}})
    return collected


@pytest.mark.parametrize(
    ("how", "outcome"),
    [
        ({}, HOLDS),
        ({"many": 1.9}, CLOSE),
        ({"long": 2.9}, CLOSE),
        ({"scatter": 0.5}, CLOSE),  # 3 times as the median, and 1.5 times in one round of five
        ({"backward": 0.5}, CLOSE),
        ({"backward": 0.3}, FAILS),
        ({"backward": 0.3, "pace": NOISY}, UNTESTED),
        ({"pace": NOISY}, UNTESTED),
        ({"pace": QUIET[:4]}, UNTESTED),
    ],
)
def test_outcomes(how: dict[str, Any], outcome: str) -> None:
    assert per_token.read(rows(**how)).outcome == outcome


def test_numbers_are_ratios_of_rounds() -> None:
    finding = per_token.read(rows(backward=2.0)).numbers
    assert [one.ours for one in finding] == [pytest.approx(x) for x in (4, 8, 3, 6, 0.5, 0.5)]
    assert finding[0].what == "forward: time per token / chunked, 1 x 65,536 tokens"
    assert finding[2].what.endswith("100 x 1,000 tokens")
    assert finding[0].of == "5 rounds"


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
