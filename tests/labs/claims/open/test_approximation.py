"""Random features against softmax's kernel: every outcome of the rule on made-up errors, and what a reader sees."""

from __future__ import annotations

import json

import pytest

from linnet.labs.claims.open.approximation import CLAIM
from linnet.labs.claims.open.attention_error import SIZES
from linnet.labs.claims.open.kernel_error import FEATURES, Cell
from linnet.labs.core.claim import OF_EVERY_CLAIM, Setting
from linnet.labs.core.licence import licence
from linnet.labs.core.results import Row, key
from linnet.labs.core.verdicts import CLOSE, FAILS, HOLDS, UNTESTED

from .random_feature_rows import attention_row, kernel_row

ONE = Cell("favor", "orthogonal", 0.5)
ATTENTION = [attention_row(seed, [m**-0.5 for m in SIZES]) for seed in range(3)]
FLAT = [attention_row(seed, [m**-0.1 for m in SIZES]) for seed in range(3)]


def kernel(slope: float = -1.0, noise: float = 0.0, factor: float = 1.0, seeds: int = 5) -> list[Row]:
    """One case has this slope, more and less in turn by the noise; the others have the slope of the theorem."""
    return [kernel_row(seed, {ONE: slope + noise * (-1) ** seed}, factor) for seed in range(seeds)]


@pytest.mark.parametrize(
    ("made", "outcome"),
    [
        (kernel(), HOLDS),
        ([*kernel(), *FLAT], HOLDS),  # the outputs of attention are reported, not judged
        (kernel(-0.97, 0.01), HOLDS),
        (kernel(-0.8, 0.01), FAILS),  # one case of twelve is enough
        (kernel(-1.2, 0.01), FAILS),
        (kernel(-1.0, 0.2), CLOSE),
        (kernel(-0.94, 0.03), CLOSE),
        (kernel(seeds=4), UNTESTED),
        (kernel(factor=1.2), UNTESTED),
        (ATTENTION, UNTESTED),
        ([], UNTESTED),
    ],
)
def test_outcomes(made: list[Row], outcome: str) -> None:
    assert CLAIM.read(made).outcome == outcome


@pytest.mark.parametrize(("factor", "passes"), [(0.9, False), (0.97, True), (1.03, True), (1.1, False)])
def test_the_variance_has_to_be_the_derived_one(factor: float, passes: bool) -> None:
    finding = CLAIM.read(kernel(factor=factor))
    (control,) = finding.evidence.controls
    assert control.passed == passes
    assert licence(finding.evidence).short == ("" if passes else "tails were not sampled")
    assert f"{factor:.3f} times the derived one" in control.detail


def test_the_case_furthest_from_the_theorem_is_the_first_number() -> None:
    finding = CLAIM.read([*kernel(-0.8, 0.01), *ATTENTION])
    first = finding.numbers[0]
    assert first.what == f"log-log slope of the squared error by the number of features ({ONE})"
    assert first.ours == pytest.approx(-0.8, abs=0.01)
    assert first.of == "5 seeds"
    assert str(ONE) in finding.sentence
    assert "does not follow from fewer" in finding.meaning


def test_what_a_reader_sees() -> None:
    finding = CLAIM.read([*kernel(), *ATTENTION])
    assert finding.scope == "width 16, norm 0.700, 32 to 1,024 features, 5 seeds"
    shown = {number.what: number.ours for number in finding.numbers}
    assert shown["features until outputs are within 10% of softmax, FAVOR+, spread 1"] == 128
    assert shown["features until outputs are within 10% of softmax, FAVOR+, spread 0.5"] == 16
    assert shown["share of negative denominators, random Fourier, spread 1"] == pytest.approx(0.1)
    assert "16 features of FAVOR+ where queries and keys have a spread of 0.5" in finding.meaning
    assert "9.989 at spread 0.5 and infinite at spread 1" in finding.meaning  # (3 / 4)^-8
    assert len(finding.tables) == 2
    assert len(finding.tables[0].rows) == 12
    assert len(finding.charts) == 3


def test_features_that_were_not_enough_are_named_so() -> None:
    finding = CLAIM.read([*kernel(), *FLAT])
    wanted = "features until outputs are within 10% of softmax, FAVOR+, spread 1: more than 1,024"
    (number,) = (one for one in finding.numbers if one.what == wanted)
    assert number.shown() == "-"


def test_smoke_units_measure_every_case() -> None:
    made = [row for unit in CLAIM.units(Setting("smoke")) for row in unit.function(unit.work)]
    assert [row["config"] for row in made] == CLAIM.configs(Setting("smoke"))
    assert all(len(one["errors"]) == len(FEATURES) for one in made[0]["metrics"]["curves"])
    finding = CLAIM.read(made)
    assert finding.outcome == UNTESTED  # three seeds
    assert len(finding.charts) == 3


@pytest.mark.parametrize("budget", OF_EVERY_CLAIM[1:])
def test_configs_are_json_and_differ(budget: str) -> None:
    configs = CLAIM.configs(Setting(budget))
    assert json.loads(json.dumps(configs)) == configs
    assert len({key(config) for config in configs}) == len(configs)
    seeds = [config["seed"] for config in configs if config["experiment"] == "kernel error"]
    assert len(seeds) >= 5
