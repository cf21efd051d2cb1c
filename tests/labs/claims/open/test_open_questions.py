"""The three open questions run at the smallest budget, and the configurations of the larger ones are sound."""

from __future__ import annotations

import json

import pytest

from linnet.labs.claims.open import attention_types, kernel_task, short
from linnet.labs.core.claim import UNTESTED, Claim, Setting
from linnet.labs.core.results import key

CLAIMS = (kernel_task.CLAIM, short.CLAIM, attention_types.CLAIM)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_smoke_units_run_and_their_rows_are_read(claim: Claim) -> None:
    rows = [row for unit in claim.units(Setting("smoke")) for row in unit.function(unit.work)]
    assert [row["config"] for row in rows] == claim.configs(Setting("smoke"))
    assert max(len(json.dumps(row)) for row in rows) < 5000
    assert claim.read(rows).outcome == UNTESTED  # one seed


@pytest.mark.parametrize("budget", ["quick", "hour", "paper"])
@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_configurations_are_plain_and_each_is_there_once(claim: Claim, budget: str) -> None:
    configs = claim.configs(Setting(budget))
    assert json.loads(json.dumps(configs)) == configs
    assert len({key(config) for config in configs}) == len(configs)
    seeds = {config["seed"] for config in configs if "seed" in config}
    assert len(seeds) >= 3


def test_recall_of_24_tokens_is_run_once_for_two_claims() -> None:
    for budget in ("quick", "hour"):
        kernel, types = ({key(c) for c in claim.configs(Setting(budget))} for claim in (CLAIMS[0], CLAIMS[2]))
        assert len(kernel & types) == 6  # elu and softmax, three seeds
