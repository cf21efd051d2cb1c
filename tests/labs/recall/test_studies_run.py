"""The runs of the studies of state and order: a few steps of each from end to end, and every budget can be made."""

from __future__ import annotations

import json

import pytest

from linnet.labs.claims.rebased import studies
from linnet.labs.core.claim import Setting
from linnet.labs.core.results import key
from linnet.labs.core.verdicts import UNTESTED
from linnet.labs.recall.document import study_document
from linnet.labs.recall.run import run

NAMES = ("ranking", "state-law", "shift", "forgetting", "extrapolation", "mamba")


@pytest.mark.parametrize("name", NAMES)
def test_a_few_steps_of_every_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one seed a table can be made, and no outcome; fewer sequences are scored than in earnest."""
    monkeypatch.setattr("linnet.labs.recall.run.TEST_ROWS", 8)
    monkeypatch.setattr("linnet.labs.recall.probes.LONGER_ROWS", 4)
    study = studies()[name]
    configs = [unit.work for unit in study.units(Setting("smoke"))]
    assert {config.steps for config in configs} == {4}
    document = study_document(study, [run(config.replace(batch_size=32)) for config in configs], 0.1)
    assert document["outcome"] == UNTESTED
    assert all(len(row) == len(table["head"]) for table in document["tables"] for row in table["rows"])
    assert sum(len(table["rows"]) for table in document["tables"]) >= 6
    assert json.loads(json.dumps(document)) == document


@pytest.mark.parametrize("name", NAMES)
def test_every_budget_can_be_made(name: str) -> None:
    counts = {}
    for budget in ("long", "paper"):
        configs = [unit.work for unit in studies()[name].units(Setting(budget))]
        assert len({key(config.to_dict()) for config in configs}) == len(configs)
        assert {config.seed for config in configs} == set(range(3 if budget == "long" else 5))
        assert not any(config.stop_at for config in configs)
        counts[budget] = len(configs)
    assert counts["long"] <= 72 < counts["paper"]
    assert studies()[name].number in {"C1", "C7", "C8", "C10", "C11", "C13"}
