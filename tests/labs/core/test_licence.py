"""The licence: what may be printed for rows that are saturated, unlearned, underpowered, out of regime or noisy."""

from __future__ import annotations

import pytest

from linnet.labs.core.licence import (
    EVERYWHERE,
    Control,
    Evidence,
    Regime,
    converged,
    learned,
    licence,
    quiet,
    regime,
    room,
)
from linnet.labs.core.verdicts import CLOSE, FAILS, HOLDS, NO, NOT_SEEN, OPEN, SEEN, UNTESTED, YES

INSIDE = regime("256 to 2,048 tokens", "512 tokens", tokens=(512, 256, 2048))
OUTSIDE = regime("256 to 2,048 tokens", "48 tokens", tokens=(48, 256, 2048))
FALLING = [[0, 4.0], [50, 2.0], [75, 1.5], [100, 1.0]]
LEVEL = [[0, 4.0], [50, 1.1], [75, 1.01], [100, 1.0]]


@pytest.mark.parametrize(
    ("state", "where", "outcome"),
    [
        (YES, INSIDE, HOLDS),
        (NO, INSIDE, FAILS),
        (OPEN, INSIDE, CLOSE),
        (YES, OUTSIDE, SEEN),
        (NO, OUTSIDE, NOT_SEEN),
        (OPEN, OUTSIDE, UNTESTED),
        (UNTESTED, INSIDE, UNTESTED),
    ],
)
def test_the_outcome_follows_from_rule_and_regime(state: str, where: Regime, outcome: str) -> None:
    assert licence(Evidence(state, where, repeats=5)).outcome == outcome


@pytest.mark.parametrize("state", [YES, NO, OPEN])
@pytest.mark.parametrize("where", [INSIDE, OUTSIDE])
@pytest.mark.parametrize(
    ("control", "short"),
    [
        (room({"x^2": 1.0, "Based": 0.7}), "too easy"),
        (learned("softmax", 0.05, 0.9), "softmax did not learn"),
        (quiet({"linear": [1.0, 1.1, 1.0, 9.0, 8.0], "softmax": [1.0] * 5}), "the machine was too noisy"),
    ],
)
def test_a_failed_control_leaves_nothing_to_print(state: str, where: Regime, control: Control, short: str) -> None:
    assert not control.passed
    outcome, reason, words = licence(Evidence(state, where, [control], 5))
    assert (outcome, words) == (UNTESTED, short)
    assert control.detail in reason


@pytest.mark.parametrize(
    ("where", "repeats", "outcome"),
    [
        (INSIDE, 4, UNTESTED),
        (INSIDE, 5, FAILS),
        (OUTSIDE, 2, UNTESTED),
        (OUTSIDE, 3, NOT_SEEN),
        (EVERYWHERE, None, FAILS),
    ],
)
def test_few_repetitions_decide_nothing(where: Regime, repeats: int | None, outcome: str) -> None:
    assert licence(Evidence(NO, where, repeats=repeats)).outcome == outcome


def test_convergence_is_asked_of_verdicts_only() -> None:
    control = converged("softmax", [LEVEL, FALLING])
    assert not control.passed
    assert licence(Evidence(NO, INSIDE, [control], 5)).outcome == UNTESTED
    assert licence(Evidence(NO, OUTSIDE, [control], 5)).outcome == NOT_SEEN
    assert converged("softmax", [LEVEL, LEVEL]).passed
    assert not converged("softmax", []).passed, "no curve was kept"
    assert not converged("softmax", [[[0, 1.0], [100, 0.5]]]).passed, "a curve of two points"


def test_a_regime_names_what_lies_outside() -> None:
    assert not INSIDE.outside
    (words,) = OUTSIDE.outside
    assert words == "tokens 48 (the paper has 256 to 2,048)"
    assert not regime("", "", tokens=(128, 256, 2048)).outside, "within a factor of two"
    assert regime("", "", factor=1.5, tokens=(128, 256, 2048)).outside
    assert "head width" in regime("", "", head_width=(4, 64, 64)).outside[0]


def test_a_rival_below_its_ceiling_leaves_room() -> None:
    assert room({"x^2": 0.98}).passed
    assert quiet({"linear": [1.0, 1.01, 1.02, 0.99, 5.0]}).passed, "one slow round of five"
    assert quiet({"linear": [1.0]}).passed, "a single round has no spread"
