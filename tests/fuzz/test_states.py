"""A share of the state fuzzer: see states.py for what a case is, and for long runs."""

from __future__ import annotations

import pytest

from tests.fuzz.long_run import Job
from tests.fuzz.states import share


def check(seed: int, cases: int, refused: int, loaded: int) -> None:
    count, found = share(Job(seed, range(cases), None, ""))
    assert not found, found[0].text
    assert count["refused"] > refused
    assert count["loaded"] > loaded


def test_a_few_hostile_states_touch_no_other_session() -> None:
    check(seed=1, cases=100, refused=40, loaded=5)


@pytest.mark.slow
def test_many_hostile_states_touch_no_other_session() -> None:
    check(seed=2, cases=2500, refused=1000, loaded=200)
