"""The 40 baseline cells: the rule's outcomes, and the numbers that are shown."""

from __future__ import annotations

import pytest

from linnet.labs.claims.icl.baselines import CLAIM, one_layer
from linnet.labs.core.verdicts import CLOSE, FAILS, HOLDS, SEEN, UNTESTED
from linnet.labs.icl.noise import Noise
from linnet.labs.icl.paper import NAMES, floor
from tests.labs.claims.icl.made_up import cells, configs, failed, number

HOUR = configs(CLAIM, "hour")


def test_the_papers_own_values_hold() -> None:
    finding = CLAIM.read(cells(HOUR))
    assert finding.outcome == HOLDS
    assert finding.scope == "d = 10, n = 20, 10 kinds of noise, 100,000 sequences"
    assert number(finding, "the paper's baseline cells") == 40
    assert number(finding, "ours / the paper's") == pytest.approx(1.0)
    assert number(finding, "largest distance") == 0
    assert len(finding.tables[0].rows) == 4
    assert len(finding.tables[0].head) == 1 + len(NAMES)


def test_one_cell_apart_is_too_close_to_call_and_is_named() -> None:
    finding = CLAIM.read(cells(HOUR, {("ada_rr", 0, "U5"): 0.078}))
    assert finding.outcome == CLOSE
    assert number(finding, "the paper's baseline cells") == 39
    assert "AdaRR on U5, 0.0780 against the paper's 0.068" in finding.sentence


def test_without_the_half_in_the_loss_it_would_not_hold() -> None:
    finding = CLAIM.read(cells(HOUR, times=2.0))
    assert finding.outcome == FAILS
    assert number(finding, "ours / the paper's") == pytest.approx(2.0)


def test_losses_below_bayes_are_measured_wrong() -> None:
    finding = CLAIM.read(cells(HOUR, times=0.5))
    assert finding.outcome == UNTESTED
    assert failed(finding) == ["losses below the possible"]


def test_another_number_of_examples_is_outside_the_regime() -> None:
    finding = CLAIM.read(cells([config | {"n": 40} for config in HOUR]))
    assert finding.outcome == SEEN
    assert finding.evidence.regime.outside == ("examples 40 (the paper has 20)",)


def test_a_missing_cell_is_no_verdict() -> None:
    finding = CLAIM.read(cells(HOUR)[1:])
    assert finding.outcome == UNTESTED
    assert "39 of the paper's 40" in finding.sentence


def test_one_layer_is_measured_at_its_closed_form() -> None:
    noise = Noise.parse("U3")
    result = one_layer({"noise": "U3", "d": 10, "n": 20, "sequences": 4000})
    least = floor("diag", 1, noise)
    assert least is not None
    assert abs(result["loss"] - least[0]) < 4 * result["se"] < 0.2
