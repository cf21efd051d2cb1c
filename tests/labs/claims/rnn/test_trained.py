"""The trained claims (copy, digits, speech): smoke units make their rows, and every budget can be built."""

from __future__ import annotations

import json

import pytest

from linnet.labs.claims.rnn import copy, digits, speech
from linnet.labs.core.claim import UNTESTED, Claim, Setting
from linnet.labs.core.licence import FEW, SEEDS
from linnet.labs.core.results import key

CLAIMS = [copy.CLAIM, digits.CLAIM, speech.CLAIM]
NAMES = [claim.name for claim in CLAIMS]


@pytest.mark.parametrize("claim", CLAIMS, ids=NAMES)
def test_smoke_runs_and_proves_nothing(claim: Claim) -> None:
    setting = Setting("smoke")
    rows = [row for unit in claim.units(setting) for row in unit.function(unit.work)]
    assert [key(row["config"]) for row in rows] == [key(config) for config in claim.configs(setting)]
    assert max(len(json.dumps(row)) for row in rows) < 5000
    trained = [row for row in rows if "seed" in row["config"]]
    assert all(row["metrics"]["curve"][-1][0] == row["config"]["train"]["steps"] for row in trained)
    finding = claim.read(rows)
    assert finding.outcome == UNTESTED
    assert "1 of 3 seeds" in finding.sentence


@pytest.mark.parametrize("claim", CLAIMS, ids=NAMES)
def test_no_rows_are_no_verdict(claim: Claim) -> None:
    assert claim.read([]).outcome == UNTESTED


@pytest.mark.parametrize("data", [frozenset[str](), frozenset({"mnist", "an4"}), frozenset({"fsdd"})])
@pytest.mark.parametrize("budget", ["quick", "hour", "paper"])
@pytest.mark.parametrize("claim", CLAIMS, ids=NAMES)
def test_every_budget_has_plain_and_different_rows(claim: Claim, budget: str, data: frozenset[str]) -> None:
    configs = claim.configs(Setting(budget, data=data))
    assert json.loads(json.dumps(configs)) == configs
    assert len({key(config) for config in configs}) == len(configs)
    for variant in ("softmax", "linear"):
        seeds = {config["seed"] for config in configs if config.get("arm") == variant}
        assert len(seeds) >= (SEEDS if budget == "paper" else FEW)


def test_data_that_are_there_are_used() -> None:
    assert {c["data"] for c in digits.CLAIM.configs(Setting("hour", data=frozenset({"mnist"})))} == {"mnist"}
    assert {c["data"] for c in digits.CLAIM.configs(Setting("hour"))} == {"digits"}
    for data, name in ((("an4", "fsdd"), "an4"), (("fsdd",), "fsdd"), ((), "generated")):
        configs = speech.CLAIM.configs(Setting("quick", data=frozenset(data)))
        assert {c["data"]["name"] for c in configs if "data" in c} == {name}
