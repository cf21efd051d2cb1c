"""A share of the state fuzzer: see states.py for what a case is, and for long runs."""

from __future__ import annotations

import pytest

from tests.fuzz.states import fuzz


def test_a_few_hostile_states_touch_no_other_session() -> None:
    outcomes = fuzz(100, seed=1)
    assert outcomes["refused"] > 40
    assert outcomes["loaded"] > 5


@pytest.mark.slow
def test_many_hostile_states_touch_no_other_session() -> None:
    outcomes = fuzz(2500, seed=2)
    assert outcomes["refused"] > 1000
    assert outcomes["loaded"] > 200
