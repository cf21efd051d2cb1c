"""What the claims on exactness and kernels share: smoke units run, their rows are read, paper units can be built."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from linnet.labs.claims.open.crossover import SPEED
from linnet.labs.claims.rnn import forms, gradients, memory, numerics, per_token, scaling, state_safety
from linnet.labs.core.claim import OF_EVERY_CLAIM, Claim, Setting
from linnet.labs.core.results import key
from linnet.labs.core.verdicts import HOLDS, UNTESTED

CLAIMS = [module.CLAIM for module in (forms, gradients, memory, scaling, per_token, numerics, state_safety)]
LARGE_ENOUGH = ("forms", "gradients", "memory")  # even the smallest sizes settle these


@pytest.mark.parametrize(
    "claim",
    [pytest.param(claim, marks=[pytest.mark.slow] if claim.name == "memory" else []) for claim in CLAIMS],
    ids=lambda claim: claim.name,
)
def test_smoke_units_run_and_are_read(claim: Claim, tmp_path: Path) -> None:
    units = claim.units(Setting("smoke", tmp_path))
    rows = [row for unit in units for row in unit.function(unit.work)]
    assert [row["config"] for row in rows] == [unit.configs[0] for unit in units]
    assert all(len(json.dumps(row, allow_nan=False)) < 5000 for row in rows)
    finding = claim.read(rows)
    assert finding.outcome == (HOLDS if claim.name in LARGE_ENOUGH else UNTESTED), finding.sentence
    assert claim.read([]).outcome == UNTESTED


@pytest.mark.parametrize("budget", OF_EVERY_CLAIM)
@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_units_have_plain_configurations_of_their_own(claim: Claim, budget: str) -> None:
    configs = claim.configs(Setting(budget))
    assert json.loads(json.dumps(configs)) == configs
    assert len({key(config) for config in configs}) == len(configs)
    assert {config["experiment"] for config in configs} - {SPEED} == {claim.name}  # the crossover is shared with T13
