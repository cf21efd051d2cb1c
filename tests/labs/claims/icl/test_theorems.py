"""Theorems: all must hold, and one that fails is named."""

from __future__ import annotations

from typing import Any

from linnet.labs.claims.icl.theorems import CLAIM, measure
from linnet.labs.core.claim import CONFIRMED, REFUTED, UNTESTED
from linnet.labs.core.results import Row, make_row
from tests.labs.claims.icl.made_up import configs, number

QUICK = configs(CLAIM, "quick")


def check(value: float, passed: bool = True, **more: Any) -> dict[str, Any]:
    result = {"name": "n", "statement": "a statement", "value": value, "bound": 1e-10, "relation": "<="}
    return result | {"passed": passed} | more


def rows(**last: Any) -> list[Row]:
    """Two checks to a group; `last` goes into the last one."""
    result = [make_row(config, {"checks": [check(1e-15), check(2e-15)]}, 0.1) for config in QUICK]
    result[-1]["metrics"]["checks"][-1] |= last
    return result


def test_all_that_hold_are_confirmed() -> None:
    finding = CLAIM.read(rows())
    assert finding.outcome == CONFIRMED
    assert number(finding, "checks of the theorems") == 34
    assert finding.numbers[0].unit == "of 34"
    assert number(finding, "largest relative error") == 2e-15
    assert len(finding.tables[0].rows) == 34


def test_one_that_fails_refutes_and_is_named() -> None:
    finding = CLAIM.read(rows(passed=False, value=0.3, statement="this one"))
    assert finding.outcome == REFUTED
    assert "33 of 34" in finding.sentence
    assert "this one" in finding.sentence
    assert finding.tables[0].rows[-1][-1] == "fails"


def test_a_group_without_a_row_is_no_verdict() -> None:
    finding = CLAIM.read(rows()[1:])
    assert finding.outcome == UNTESTED
    assert QUICK[0]["check"] in finding.sentence


def test_a_row_is_what_verify_says() -> None:
    metrics = measure({"experiment": "icl-theorems", "check": "example", "seed": 0})["checks"]
    assert len(metrics) == 4
    assert all(one["passed"] and one["name"] == "example" for one in metrics)
