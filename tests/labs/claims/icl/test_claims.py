"""Every in-context claim: its smoke units make the rows they promise, and its paper units can be built."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from linnet.labs.claims import chosen
from linnet.labs.core.claim import Claim, Setting
from linnet.labs.core.results import Row, key
from linnet.labs.core.verdicts import UNTESTED

CLAIMS = chosen(["icl"])

NAMES = [claim.name for claim in CLAIMS]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Setting, dict[str, Row]]:
    """Every smoke row of every claim, each made once."""
    setting = Setting("smoke", tmp_path_factory.mktemp("smoke"))
    collected: dict[str, Row] = {}
    for unit in (unit for claim in CLAIMS for unit in claim.units(setting)):
        keys = [key(config) for config in unit.configs]
        if not set(keys) <= set(collected):
            rows = list(unit.function(unit.work))
            assert [key(row["config"]) for row in rows] == keys, "a unit yields what it promises, in this order"
            collected |= dict(zip(keys, rows, strict=True))
    return setting, collected


@pytest.mark.parametrize("claim", CLAIMS, ids=NAMES)
def test_smoke_rows_are_read_and_prove_nothing(claim: Claim, made: tuple[Setting, dict[str, Row]]) -> None:
    setting, result = made
    keys = claim.keys(setting)
    rows = [result[one] for one in keys if one in result]
    missing = len(keys) - len(rows)
    assert missing == 0
    assert rows
    assert max(len(json.dumps(row)) for row in rows) < 5000
    finding = claim.read(rows)
    assert finding.outcome == UNTESTED
    assert finding.sentence


@pytest.mark.parametrize("claim", CLAIMS, ids=NAMES)
def test_no_rows_are_no_verdict(claim: Claim) -> None:
    assert claim.read([]).outcome == UNTESTED


@pytest.mark.parametrize("budget", ["quick", "hour", "paper"])
@pytest.mark.parametrize("claim", CLAIMS, ids=NAMES)
def test_units_of_every_budget_are_plain_and_unique(claim: Claim, budget: str) -> None:
    configs = claim.configs(Setting(budget, Path("somewhere")))
    assert configs
    for config in configs:
        assert json.loads(json.dumps(config)) == config
    assert len({key(config) for config in configs}) == len(configs)


@pytest.mark.parametrize("budget", ["quick", "hour"])
def test_units_that_claims_share_are_the_same_units(budget: str) -> None:
    """The runner makes equal units once; units that overlap in part would make a row twice."""
    setting = Setting(budget, Path("somewhere"))
    owners: dict[str, tuple[str, ...]] = {}
    for unit in (unit for claim in CLAIMS for unit in claim.units(setting)):
        keys = tuple(key(config) for config in unit.configs)
        for one in keys:
            assert owners.setdefault(one, keys) == keys


def test_the_hour_has_all_of_the_paper_and_quick_a_part() -> None:
    def models(budget: str) -> int:
        table = next(claim for claim in CLAIMS if claim.name == "table")
        configs = table.configs(Setting(budget, Path("somewhere")))
        return sum(config["experiment"] == "icl-table" and "layers" in config for config in configs)

    assert models("hour") == 210
    assert models("paper") == 5 * 210
    assert 8 <= models("quick") < 30
