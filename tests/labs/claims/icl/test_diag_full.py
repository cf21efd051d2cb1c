"""DIAG against FULL: gaps by cell, and the rule on them."""

from __future__ import annotations

import pytest

from linnet.labs.claims.icl.diag_full import CLAIM, gaps
from linnet.labs.core.claim import Chart
from linnet.labs.core.results import make_row
from linnet.labs.core.verdicts import CLOSE, FAILS, HOLDS, SEEN, UNTESTED, YES
from tests.labs.claims.icl.made_up import Cell, cells, configs, failed, number, profile, seeded

ONE = configs(CLAIM, "hour")
HOUR = seeded(ONE)


def test_the_papers_own_table_holds() -> None:
    finding = CLAIM.read(cells(HOUR))
    assert finding.outcome == HOLDS
    assert finding.scope == "d = 10, n = 20, 70 pairs of models, 5 seeds each, 100,000 sequences"
    assert number(finding, "uniform cells in which") == 0
    assert number(finding, "widest gap on uniform noise") == pytest.approx(0.012)
    assert "U3 with 3 layers" in finding.numbers[1].what
    assert finding.numbers[1].spread().endswith("of 5 seeds")
    assert number(finding, "DIAG's loss - FULL's on {1,3} with 7 layers") == pytest.approx(0.008)


def test_one_seed_is_not_enough() -> None:
    finding = CLAIM.read(cells(ONE))
    assert (finding.evidence.state, finding.outcome) == (YES, UNTESTED)
    assert finding.numbers[1].spread().endswith("of 100,000 sequences")
    assert len(gaps(cells(ONE))) == 70


def test_one_wide_cell_is_too_close_to_call_and_says_whose_full_is_better() -> None:
    finding = CLAIM.read(cells(HOUR, {("full", 3, "U4"): 0.09}))
    assert finding.outcome == CLOSE
    assert number(finding, "uniform cells in which") == 1
    assert "55 of 56 cells, the widest U4 with 3 layers" in finding.sentence
    assert "our FULL is below the paper's in 1 of 1" in finding.sentence


def test_a_gap_has_the_interval_of_its_seeds() -> None:
    rows = cells(HOUR)
    for row in rows:
        config = row["config"]
        if (config["kind"], config["layers"], config["noise"]) == ("full", 3, "{1,3}"):
            row["metrics"]["sharp"] += 0.02 * config["seed"]  # .076 to .156, DIAG has .098
    finding = CLAIM.read(rows)
    assert finding.outcome == CLOSE
    assert "ahead in 4 of 5 depths" in finding.sentence


def test_many_cells_of_a_better_full_do_not_hold() -> None:
    wide: dict[Cell, float] = {("full", 2, f"U{top}"): 0.1 for top in range(1, 8)}
    assert CLAIM.read(cells(HOUR, wide)).outcome == FAILS


def test_a_full_model_that_is_behind_on_two_values_does_not_hold() -> None:
    behind: dict[Cell, float] = {("diag", layers, "{1,3}"): 0.009 for layers in range(3, 8)}
    assert CLAIM.read(cells(HOUR, behind)).outcome == FAILS
    behind.popitem()
    finding = CLAIM.read(cells(HOUR, behind))
    assert finding.outcome == CLOSE
    assert "ahead in 1 of 5 depths" in finding.sentence


@pytest.mark.parametrize("value", [0.9, float("inf")])
def test_full_models_that_are_not_trained_decide_nothing(value: float) -> None:
    lost: dict[Cell, float] = {("full", layers, noise): value for layers in range(2, 7) for noise in ("U1", "U6")}
    finding = CLAIM.read(cells(HOUR, lost))
    assert finding.outcome == UNTESTED
    assert failed(finding) == ["models worse than the paper's"]


def test_both_noises_are_wanted() -> None:
    uniform = [row for row in cells(HOUR) if row["config"]["noise"] != "{1,3}"]
    assert CLAIM.read(uniform).outcome == UNTESTED


def test_quick_rows_have_a_figure_of_unseen_noise() -> None:
    quick = seeded(configs(CLAIM, "quick"), 3)
    rows = cells(quick)
    for config in quick:
        if config["experiment"] == "icl-profile":
            rows.append(make_row(config, profile(config, 0.5 if config["kind"] == "full" else 0.25), 1.0))
    finding = CLAIM.read(rows)
    assert finding.outcome == SEEN
    assert number(finding, "median loss at sigma 6, trained on 1 and 3: DIAG / FULL, 3 layers") == 0.5
    assert "carries over better" in finding.meaning
    by_layers, by_level = finding.charts
    assert isinstance(by_layers, Chart)
    assert isinstance(by_level, Chart)
    assert by_layers.series["FULL U5"] == [(2, 0.245), (3, 0.117)]
    assert set(by_level.series) == {"DIAG 3", "FULL 3"}
    assert by_level.series["FULL 3"][0] == (0.0, 0.25)
