"""The hazard: fits that explode outside, fits that do not, and the guard on a model that is known to explode."""

from __future__ import annotations

import pytest
import torch

from linnet.labs.claims.icl.hazard import CLAIM, doubts, guarded
from linnet.labs.core.claim import Chart
from linnet.labs.core.results import Row, make_row
from linnet.labs.core.verdicts import CLOSE, FAILS, HOLDS, UNTESTED
from linnet.labs.icl.evaluate import predictor, profile
from linnet.labs.icl.noise import Noise
from linnet.labs.icl.recursion import from_omega
from linnet.labs.icl.regression import Regression
from tests.labs.claims.icl.made_up import configs, failed, number

QUICK = configs(CLAIM, "quick")
WILD = [  # (xx, xy, yx, yy) of four layers for sigma 1 or 3, which explode at 6
    (-0.00992, 3e-5, -0.02102, 7e-5),
    (-0.05136, -0.00116, -0.05504, -0.00124),
    (-0.086, -0.01087, -0.01134, -0.00143),
    (0.0, 0.0, -0.67294, 0.00134),
]


def rows(diverged: list[float], inside: list[float], lost: float = 0.0, ridge: float = 0.15) -> list[Row]:
    """One fit for each share that diverges at sigma 6, with its loss inside; `lost` of each diverges inside."""
    collected = []
    for config, share, loss in zip(QUICK, diverged, inside, strict=False):
        size = len(config["sigmas"]) - 1
        metrics = {"mean": [0.1] * size + [1e9 if share else 0.4], "se": [0.0] * (size + 1)}
        metrics |= {"median": [0.05] * size + [0.3], "diverged": [0.0] * size + [share]}
        more = {"inside": loss, "inside_diverged": lost, "guarded": 0.5, "guarded_diverged": 0.0, "ridge": ridge}
        collected.append(make_row(config, metrics | more | {"to_ridge": 0.2, "to_ridge_inside": 0.0}, 1.0))
    return collected


def test_equally_good_fits_of_which_one_explodes_show_the_hazard() -> None:
    finding = CLAIM.read(rows([0.0, 0.2, 0.0, 0.0, 0.0, 0.3], [0.042, 0.041, 0.042, 0.042, 0.042, 0.09]))
    assert finding.outcome == HOLDS
    assert finding.scope.endswith("5 fits, 10,000 sequences")
    assert number(finding, "fits equally good inside") == 1
    assert finding.numbers[0].unit == "of 5"
    assert "the best of all inside among them" in finding.sentence
    assert finding.numbers[1].shown() == "20 %"
    assert number(finding, "median loss") == 0.3
    assert number(finding, "mean loss there, of the same") == 1e9
    assert number(finding, "mean loss there with the guard") == 0.5
    assert "catches what explodes and hands over less than 0.1%" in finding.meaning
    assert finding.meaning.endswith("ridge alone is better still.")  # .15 against .5
    assert len(finding.tables[0].rows) == 6
    (chart,) = finding.charts
    assert isinstance(chart, Chart)
    assert chart.series["wildest, mean"][-1] == (6.0, 1e9)
    assert chart.series["safest, mean"][-1] == (6.0, 0.4)


@pytest.mark.parametrize(
    ("diverged", "outcome"),
    [
        ([0.0, 0.0005, 0.0, 0.0, 0.0, 0.0], FAILS),
        ([0.0, 0.005, 0.0, 0.0, 0.0, 0.0], CLOSE),
        ([0.0, 0.2, 0.0, 0.0], UNTESTED),  # four fits
    ],
)
def test_fits_that_stay_calm_do_not_show_it(diverged: list[float], outcome: str) -> None:
    assert CLAIM.read(rows(diverged, [0.042] * len(diverged))).outcome == outcome


def test_a_bad_fit_that_explodes_proves_nothing() -> None:
    assert CLAIM.read(rows([0.0] * 5 + [0.5], [0.042] * 5 + [0.1])).outcome == FAILS


@pytest.mark.parametrize(
    ("inside", "lost", "ridge", "short"),
    [
        (0.06, 0.0, 0.15, "the fits did not learn"),
        (0.042, 0.01, 0.15, "fits diverge inside"),
        (0.042, 0.0, 0.9, "ridge fails as well"),
    ],
)
def test_a_control_that_fails_decides_nothing(inside: float, lost: float, ridge: float, short: str) -> None:
    finding = CLAIM.read(rows([0.0, 0.2, 0.0, 0.0, 0.0, 0.0], [inside] * 6, lost, ridge))
    assert finding.outcome == UNTESTED
    assert failed(finding) == [short]


def test_the_guard_takes_the_explosions_and_leaves_the_rest() -> None:
    wild = from_omega(torch.tensor(WILD, dtype=torch.float64).view(-1, 2, 2)).requires_grad_(False)
    (plain,) = profile(predictor(wild), [6.0], count=500)
    asked, ridge, share = guarded(wild, 6.0, 500)
    assert plain.diverged > 0.03
    assert asked.diverged == 0
    assert ridge.sharp < asked.sharp < 0.01 * plain.sharp
    assert plain.diverged <= share < 0.5
    assert guarded(wild, 3.0, 500)[2] < 0.02


def test_doubts_are_about_the_answers_that_are_given() -> None:
    batch = Regression(Noise.parse("=1")).sample(4, torch.Generator().manual_seed(0))
    w = batch.weights.clone()
    w[1] *= 1e6
    w[3] = 0.0
    assert doubts(batch.gram, w).tolist() == [False, True, False, True]
