"""Identities of the kernels of Based and ReBased: measured for real, then what a broken one does to the outcome."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from linnet.labs.claims.rebased.kernels import CLAIM, SCORES
from linnet.labs.core.claim import OF_EVERY_CLAIM, Chart, Setting
from linnet.labs.core.results import Row, key
from linnet.labs.core.verdicts import FAILS, HOLDS, UNTESTED


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    result = [row for unit in CLAIM.units(Setting("quick")) for row in unit.function(unit.work)]
    return json.loads(json.dumps(result))


def test_all_identities_hold(rows: list[Row]) -> None:
    finding = CLAIM.read(rows)
    assert finding.outcome == HOLDS
    assert {count for _, count in finding.tables[0].rows} == {"3 of 3"}
    held, based, rebased = finding.numbers[:3]
    assert held.ours == 11
    assert (based.ours, rebased.ours) == pytest.approx((0.5, 0.0), abs=1e-12)
    assert (based.paper, rebased.paper) == ("0.5", "0")
    assert max(len(json.dumps(row)) for row in rows) < 5000


def test_curves_are_the_kernels(rows: list[Row]) -> None:
    """At s = 1: e, 1 + 1 + 1/2, 1, (2 + 1.5)^2, and elu(1) + 1 squared."""
    at = SCORES.index(1.0)
    values = {name: curve[at] for name, curve in rows[0]["metrics"]["kappa"].items()}
    wanted = {"exp": 2.7183, "Based": 2.5, "ReBased": 1.0, "ReBased, moved": 12.25, "elu + 1": 4.0}
    assert values == pytest.approx(wanted, abs=1e-4)
    (chart,) = CLAIM.read(rows).charts
    assert isinstance(chart, Chart)
    assert set(chart.series) == set(wanted)
    assert max(y for points in chart.series.values() for _, y in points) <= 6


@pytest.mark.parametrize(
    ("path", "value", "broken"),
    [
        (("widths", "Based"), 273, "widths"),
        (("error",), 1e-3, "phi(q) . phi(k)"),
        (("least", "Based"), 0.4, "1/2 at s = -1"),
        (("where", "ReBased, moved"), 0.0, "-c / a"),
        (("least", "ReBased"), 0.1, "ReBased reaches 0"),
        (("moves", "ReBased", "10"), 0.1, "size of gamma"),
        (("moves", "Based", "0.1"), 0.0, "it does to Based"),
        (("moves", "ReBased", "-1"), 0.1, "q from -q"),
        (("moves", "Based", "-1"), 0.0, "Based does"),
        (("ranks", "elementwise"), 136, "of rank f"),
        (("first_token",), None, "first token"),
    ],
)
def test_one_broken_identity_is_enough(rows: list[Row], path: tuple[str, ...], value: Any, broken: str) -> None:
    changed = copy.deepcopy(rows)
    inner = changed[1]["metrics"]
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    finding = CLAIM.read(changed)
    assert (finding.outcome, finding.numbers[0].ours) == (FAILS, 10)
    assert broken in finding.sentence.partition("broken: ")[2]
    assert finding.sentence.startswith("10 of 11")


def test_no_rows_are_no_outcome_and_budgets_have_units() -> None:
    assert CLAIM.read([]).outcome == UNTESTED
    for budget in OF_EVERY_CLAIM:
        configs = CLAIM.configs(Setting(budget))
        assert len({key(config) for config in configs}) == len(configs) > 0
