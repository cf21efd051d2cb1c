"""Adaptivity: a profile that flattens, one that does not, and GD++ beside ConstRR."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from linnet.labs.claims.icl.adaptivity import CLAIM, mirror, worst
from linnet.labs.core.claim import CONFIRMED, REFUTED, UNCLEAR, UNTESTED, Chart
from linnet.labs.core.results import Row, make_row
from tests.labs.claims.icl.made_up import Cell, cells, configs, number, profile

QUICK = configs(CLAIM, "quick")
CONST = {0.0: 0.9, 1.0: 0.6, 2.0: 0.15, 3.0: 0.0, 4.0: 0.25, 5.0: 0.8, 6.0: 1.8}
FLAT = dict.fromkeys(CONST, 0.125) | {5.0: 0.2, 6.0: 9.0}


def rows(
    three: Mapping[float, float], gd: Mapping[float, float], ours: Mapping[Cell, float] | None = None
) -> list[Row]:
    """DIAG 2 like CONST; DIAG 3, GD++ 3 as given; all else .1."""
    result = cells(QUICK, ours)
    curves = {("diag", 2): CONST, ("diag", 3): three, ("gd++", 3): gd}
    for config in QUICK:
        if config["experiment"] == "icl-profile":
            mean = curves.get((config["kind"], config.get("layers", 0)), 0.1)
            rules = {"ConstRR": profile(config, CONST), "AdaRR": profile(config, 0.1)}
            result.append(make_row(config, rules if config["kind"] == "rules" else profile(config, mean), 1.0))
    return result


def test_flat_from_three_layers_with_gd_at_constrr_is_confirmed() -> None:
    finding = CLAIM.read(rows(FLAT, CONST))
    assert finding.outcome == CONFIRMED
    assert number(finding, "worst loss over the noise levels, DIAG with 3 layers / with 2") == pytest.approx(0.2 / 0.9)
    assert finding.numbers[0].low == pytest.approx((0.2 - 0.02) / (0.9 + 0.02))
    assert finding.numbers[0].high == pytest.approx((0.2 + 0.02) / (0.9 - 0.02))
    assert number(finding, "distance of GD++") == 0
    assert "still worse than that of AdaRR" in finding.meaning


def test_levels_outside_the_training_do_not_count() -> None:
    assert CLAIM.read(rows(FLAT | {6.0: 1e6}, CONST)).outcome == CONFIRMED


@pytest.mark.parametrize(
    ("three", "gd", "outcome"), [(CONST, CONST, UNCLEAR), (FLAT, FLAT, UNCLEAR), (CONST, FLAT, REFUTED)]
)
def test_each_half_of_the_rule_is_needed(three: Mapping[float, float], gd: Mapping[float, float], outcome: str) -> None:
    assert CLAIM.read(rows(three, gd)).outcome == outcome


def test_a_missing_profile_is_no_verdict() -> None:
    result = [row for row in rows(FLAT, CONST) if row["config"]["kind"] != "gd++"]
    finding = CLAIM.read(result)
    assert finding.outcome == UNTESTED
    assert "GD++ 3" in finding.sentence


def test_the_depth_that_overtakes_ridge_is_counted() -> None:
    finding = CLAIM.read(rows(FLAT, CONST))  # the paper's values: .118 with 3 layers, .059 with 4, AdaRR .068
    assert number(finding, "layers from which DIAG is below AdaRR") == 4
    assert "below TunedRR at none of its depths up to 4" in finding.sentence
    finding = CLAIM.read(rows(FLAT, CONST, {("diag", 3, "U5"): 0.04}))
    assert number(finding, "layers from which DIAG is below TunedRR") == 3


def test_the_figure_has_the_profiles_as_far_as_one_beyond() -> None:
    (chart,) = CLAIM.read(rows(FLAT, CONST)).charts
    assert isinstance(chart, Chart)
    assert set(chart.series) == {"DIAG 2", "DIAG 3", "GD++ 3", "ConstRR", "AdaRR"}
    assert chart.series["DIAG 3"][-1] == (6.0, 9.0)


def test_distances_of_curves() -> None:
    one, other = (
        {s: {"mean": v} for s, v in zip((0.0, 1.0), values, strict=True)} for values in ((1.0, 2.0), (2.0, 2.0))
    )
    assert worst(one) == 2.0
    assert mirror(one, other) == pytest.approx(0.25)
