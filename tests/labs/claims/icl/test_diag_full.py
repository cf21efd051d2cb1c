"""DIAG against FULL: gaps by cell, and the rule on them."""

from __future__ import annotations

import pytest

from linnet.labs.claims.icl.diag_full import CLAIM, gaps
from linnet.labs.core.claim import CONFIRMED, REFUTED, UNCLEAR, UNTESTED, Chart
from linnet.labs.core.results import make_row
from tests.labs.claims.icl.made_up import Cell, cells, configs, number, profile

HOUR = configs(CLAIM, "hour")


def test_the_papers_own_table_is_confirmed() -> None:
    finding = CLAIM.read(cells(HOUR))
    assert finding.outcome == CONFIRMED
    assert number(finding, "widest gap on uniform noise") == pytest.approx(0.012)
    assert "U3 with 3 layers" in finding.numbers[0].what
    assert number(finding, "DIAG's loss - FULL's on {1,3} with 7 layers") == pytest.approx(0.008)
    assert finding.numbers[0].spread().endswith("of 100,000 sequences")
    assert len(gaps(cells(HOUR))) == 70


def test_one_wide_cell_is_unclear_and_says_whose_full_is_better() -> None:
    finding = CLAIM.read(cells(HOUR, {("full", 3, "U4"): 0.09}))
    assert finding.outcome == UNCLEAR
    assert "55 of 56 cells, the widest U4 with 3 layers" in finding.sentence
    assert "our FULL is below the paper's in 1 of 1" in finding.sentence


def test_many_wide_cells_refute() -> None:
    wide: dict[Cell, float] = {("diag", layers, noise): 3.0 for layers in range(1, 8) for noise in ("U1", "U6")}
    assert CLAIM.read(cells(HOUR, wide)).outcome == REFUTED


def test_a_full_model_that_is_behind_on_two_values_refutes() -> None:
    behind: dict[Cell, float] = {("full", layers, "{1,3}"): 0.2 for layers in range(3, 8)}
    assert CLAIM.read(cells(HOUR, behind)).outcome == REFUTED
    behind.popitem()
    finding = CLAIM.read(cells(HOUR, behind))
    assert finding.outcome == UNCLEAR
    assert "ahead in 1 of 5 depths" in finding.sentence


def test_both_noises_are_wanted() -> None:
    uniform = [row for row in cells(HOUR) if row["config"]["noise"] != "{1,3}"]
    assert CLAIM.read(uniform).outcome == UNTESTED


def test_quick_rows_have_a_verdict_and_a_figure_of_unseen_noise() -> None:
    quick = configs(CLAIM, "quick")
    rows = cells(quick)
    for config in quick:
        if config["experiment"] == "icl-profile":
            rows.append(make_row(config, profile(config, 0.5 if config["kind"] == "full" else 0.25), 1.0))
    finding = CLAIM.read(rows)
    assert finding.outcome == CONFIRMED
    assert number(finding, "median loss at sigma 6, trained on 1 and 3: DIAG / FULL, 3 layers") == 0.5
    assert "carries over better" in finding.meaning
    by_layers, by_level = finding.charts
    assert isinstance(by_layers, Chart)
    assert isinstance(by_level, Chart)
    assert by_layers.series["FULL U5"] == [(2, 0.245), (3, 0.117)]
    assert set(by_level.series) == {"DIAG 3", "FULL 3"}
    assert by_level.series["FULL 3"][0] == (0.0, 0.25)
