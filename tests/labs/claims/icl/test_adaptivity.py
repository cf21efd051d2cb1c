"""Adaptivity: a profile that flattens, one that does not, and GD++ beside ConstRR."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from linnet.labs.claims.icl.adaptivity import CLAIM, mirror, worst
from linnet.labs.core.claim import Chart
from linnet.labs.core.results import Row, make_row
from linnet.labs.core.verdicts import CLOSE, FAILS, HOLDS, UNTESTED
from tests.labs.claims.icl.made_up import Cell, cells, configs, failed, number, profile, seeded

QUICK = configs(CLAIM, "quick")
CONST = {0.0: 0.9, 1.0: 0.6, 2.0: 0.15, 3.0: 0.0, 4.0: 0.25, 5.0: 0.8, 6.0: 1.8}
FLAT = dict.fromkeys(CONST, 0.125) | {5.0: 0.2, 6.0: 9.0}


def rows(
    three: Mapping[float, float],
    gd: Mapping[float, float],
    ours: Mapping[Cell, float] | None = None,
    seeds: int = 5,
    times: Sequence[float] = (1.0,) * 5,
) -> list[Row]:
    """DIAG 2 like CONST; DIAG 3, GD++ 3 as given, DIAG 3 `times` that by seed; all else .1."""
    of = seeded(QUICK, seeds)
    result = cells(of, ours)
    curves = {("diag", 2): CONST, ("diag", 3): three, ("gd++", 3): gd}
    for config in of:
        if config["experiment"] == "icl-profile":
            name = config["kind"], config.get("layers", 0)
            mean = curves.get(name, dict.fromkeys(CONST, 0.1))
            if name == ("diag", 3):
                mean = {sigma: times[config["seed"]] * value for sigma, value in mean.items()}
            rules = {"ConstRR": profile(config, CONST), "AdaRR": profile(config, 0.1)}
            result.append(make_row(config, rules if config["kind"] == "rules" else profile(config, mean), 1.0))
    return result


def test_flat_from_three_layers_with_gd_at_constrr_holds() -> None:
    finding = CLAIM.read(rows(FLAT, CONST))
    assert finding.outcome == HOLDS
    assert finding.scope == "d = 10, n = 20, sigma 0 to 5, 2 and 3 layers, 5 seeds"
    assert number(finding, "worst loss over the noise levels, DIAG with 3 layers / with 2") == pytest.approx(0.2 / 0.9)
    assert finding.numbers[0].of == "5 seeds"
    assert number(finding, "distance of GD++") == 0
    assert "still worse than that of AdaRR" in finding.meaning


def test_one_seed_is_shown_with_the_error_of_its_sequences_and_decides_nothing() -> None:
    finding = CLAIM.read(rows(FLAT, CONST, seeds=1))
    assert finding.outcome == UNTESTED
    first = finding.numbers[0]
    assert first.low == pytest.approx((0.2 - 0.02) / (0.9 + 0.02))
    assert first.high == pytest.approx((0.2 + 0.02) / (0.9 - 0.02))
    assert first.of == "10,000 sequences"


def test_levels_outside_the_training_do_not_count() -> None:
    assert CLAIM.read(rows(FLAT | {6.0: 1e6}, CONST)).outcome == HOLDS


@pytest.mark.parametrize(
    ("three", "gd", "times", "outcome"),
    [
        (CONST, CONST, (1.0,) * 5, FAILS),
        (FLAT, FLAT, (1.0,) * 5, FAILS),
        (FLAT, CONST, (1.0, 1.0, 1.0, 3.0, 3.0), CLOSE),  # .2 and .6 beside .9: the mean is below half, not all of it
    ],
)
def test_each_half_of_the_rule_is_needed(
    three: Mapping[float, float], gd: Mapping[float, float], times: Sequence[float], outcome: str
) -> None:
    assert CLAIM.read(rows(three, gd, times=times)).outcome == outcome


@pytest.mark.parametrize(
    ("cell", "value", "short"),
    [
        (("ada_rr", 0, "U5"), 0.09, "ridge differs from the paper"),
        (("diag", 3, "U5"), 0.2, "models worse than the paper's"),
        (("full", 3, "U5"), 0.03, "losses below the possible"),
    ],
)
def test_a_control_that_fails_decides_nothing(cell: Cell, value: float, short: str) -> None:
    finding = CLAIM.read(rows(FLAT, CONST, {cell: value}))
    assert finding.outcome == UNTESTED
    assert failed(finding) == [short]


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
        {s: {"mean": v, "se": 0.1} for s, v in zip((0.0, 1.0), values, strict=True)}
        for values in ((1.0, 2.0), (2.0, 2.0))
    )
    assert worst(one) == 2.0
    assert mirror(one, other).mean == pytest.approx(0.25)
    assert mirror(one, other).high == pytest.approx(0.25 + 2 * 0.2 / 4)
