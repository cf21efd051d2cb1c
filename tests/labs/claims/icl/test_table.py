"""Table 1: how cells make a verdict, and what the reader sees of them."""

from __future__ import annotations

import pytest

from linnet.labs.claims.icl.table import CLAIM
from linnet.labs.core.claim import Chart
from linnet.labs.core.results import make_row
from linnet.labs.core.verdicts import CLOSE, FAILS, HOLDS, SEEN, UNTESTED
from linnet.labs.icl.noise import Noise
from linnet.labs.icl.paper import TABLE1, impossible
from tests.labs.claims.icl.made_up import Cell, cells, configs, failed, number, profile, seeded

HOUR = configs(CLAIM, "hour")
CAN_BE_HAD = [cell for cell in TABLE1 if cell[1] > 1 and not impossible(cell[0], cell[1], Noise.parse(cell[2]))]


def above(count: int) -> dict[Cell, float]:
    """So many cells of several layers, of those that a model can have, far above the paper's."""
    return {cell: 2 * TABLE1[cell] + 0.01 for cell in CAN_BE_HAD[:count]}


def test_the_papers_own_values_are_equal_to_the_papers() -> None:
    finding = CLAIM.read(cells(HOUR))
    assert finding.outcome == HOLDS
    assert finding.scope == "d = 10, n = 20, 210 models, 1 seed each, 100,000 sequences"
    assert number(finding, "cells of the paper's Table 1") == 210
    assert number(finding, "loss above the oracle") == TABLE1["diag", 7, "U5"]
    assert "210 of 210 cells are equal to the paper's (210)" in finding.sentence


@pytest.mark.parametrize(
    ("count", "seeds", "outcome"),
    [(10, 1, HOLDS), (15, 1, UNTESTED), (15, 5, CLOSE), (30, 4, UNTESTED), (30, 5, FAILS)],
)
def test_one_seed_shows_that_models_exist_and_five_that_they_do_not(count: int, seeds: int, outcome: str) -> None:
    finding = CLAIM.read(cells(seeded(HOUR, seeds), above(count)))
    assert finding.outcome == outcome
    assert number(finding, "cells that ours is worse in") == count
    assert "Worse: " in finding.sentence


@pytest.mark.parametrize(
    ("cell", "value", "short"),
    [
        (("ada_rr", 0, "U5"), 0.09, "ridge differs from the paper"),
        (("diag", 1, "U5"), 0.95, "one layer did not learn"),
        (("full", 7, "U5"), 0.03, "losses below the possible"),
    ],
)
def test_a_control_that_fails_decides_nothing(cell: Cell, value: float, short: str) -> None:
    finding = CLAIM.read(cells(HOUR, {cell: value}))
    assert finding.outcome == UNTESTED
    assert failed(finding) == [short]


def test_cells_that_cannot_be_had_do_not_count_against_us() -> None:
    ours = {("gd++", layers, "U5"): 0.3633 for layers in range(3, 8)}
    finding = CLAIM.read(cells(HOUR, ours))
    assert finding.outcome == HOLDS
    assert number(finding, "cells that no model can have") == 5
    assert number(finding, "cells of the paper's Table 1") == 205
    assert finding.numbers[0].unit == "of 205"


def test_too_few_cells_are_no_verdict() -> None:
    finding = CLAIM.read(cells(HOUR[:7]))
    assert finding.outcome == UNTESTED
    assert "7 cells" in finding.sentence


def test_the_table_and_the_figure_have_ours_and_the_papers() -> None:
    finding = CLAIM.read(cells(HOUR, {("diag", 3, "U5"): 0.1}))
    line = next(row for row in finding.tables[0].rows if row[:2] == ("3", "DIAG"))
    assert line[7] == "0.1000 < (0.118)"
    assert next(row for row in finding.tables[0].rows if row[1] == "AdaRR")[7] == "0.0680 = (0.068)"
    assert next(row for row in finding.tables[0].rows if row[1] == "AdaRR")[2] == "0 = (0)"
    assert next(row for row in finding.tables[0].rows if row[:2] == ("4", "DIAG"))[2] == "1.19e-04 = (1.19e-04)"
    (chart,) = finding.charts
    assert isinstance(chart, Chart)
    assert [point[:2] for point in chart.series["DIAG"]][2] == (3, 0.1)
    assert chart.series["DIAG paper"][2] == (3, 0.118)
    assert chart.series["TunedRR"] == [(1, 0.049), (7, 0.049)]


def test_quick_rows_are_seen_at_their_size_whatever_else_their_units_measured() -> None:
    quick = configs(CLAIM, "quick")
    profiles = [make_row(one, profile(one, 0.1), 1.0) for one in quick if one["experiment"] == "icl-profile"]
    assert profiles
    finding = CLAIM.read(cells(quick) + profiles)
    assert finding.outcome == SEEN
    assert finding.evidence.regime.outside == ("models 13 (the paper has 210)",)
