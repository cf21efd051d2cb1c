"""Theorems: all must hold, and one that fails is named."""

from __future__ import annotations

from typing import Any

from linnet.labs.claims.icl.theorems import CLAIM, measure
from linnet.labs.core.results import Row, make_row
from linnet.labs.core.verdicts import CLOSE, FAILS, HOLDS, UNTESTED
from tests.labs.claims.icl.made_up import configs, failed, number

QUICK = configs(CLAIM, "quick")


def check(value: float, passed: bool = True, **more: Any) -> dict[str, Any]:
    result = {"name": "n", "statement": "a statement", "value": value, "bound": 1e-10, "relation": "<="}
    return result | {"passed": passed} | more


def rows(group: str = "theorem-5.2", seeds: int = 1, **last: Any) -> list[Row]:
    """Two checks to a group; `last` goes into the last one of a group, with the first seed."""
    seeded = [config | {"seed": seed} for seed in range(seeds) for config in QUICK]
    result = [make_row(config, {"checks": [check(1e-15), check(2e-15)]}, 0.1) for config in seeded]
    next(row for row in result if row["config"]["check"] == group)["metrics"]["checks"][-1] |= last
    return result


def test_all_that_hold() -> None:
    finding = CLAIM.read(rows())
    assert finding.outcome == HOLDS
    assert number(finding, "checks of the theorems") == 32  # and two wrong forms
    assert finding.numbers[0].unit == "of 32"
    assert number(finding, "largest relative error") == 2e-15
    assert len(finding.tables[0].rows) == 34


def test_one_that_fails_is_named() -> None:
    finding = CLAIM.read(rows(passed=False, value=0.3, statement="this one"))
    assert finding.outcome == FAILS
    assert "31 of 32" in finding.sentence
    assert "this one" in finding.sentence
    assert finding.tables[0].rows[-1][-1] == "fails"


def test_one_that_fails_with_some_draws_only_is_too_close_to_call() -> None:
    assert CLAIM.read(rows(seeds=2, passed=False, value=0.3)).outcome == CLOSE


def test_checks_that_pass_wrong_forms_decide_nothing() -> None:
    finding = CLAIM.read(rows(group="wrong-forms", passed=False, value=1e-15))
    assert finding.outcome == UNTESTED
    assert failed(finding) == ["wrong forms pass the checks"]


def test_a_group_without_a_row_is_no_verdict() -> None:
    finding = CLAIM.read(rows()[1:])
    assert finding.outcome == UNTESTED
    assert QUICK[0]["check"] in finding.sentence


def test_a_row_is_what_verify_says() -> None:
    metrics = measure({"experiment": "icl-theorems", "check": "example", "seed": 0})["checks"]
    assert len(metrics) == 4
    assert all(one["passed"] and one["name"] == "example" for one in metrics)
