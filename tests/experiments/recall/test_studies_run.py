"""The runs of the studies of state and order: a few steps of each from end to end, and every budget can be made."""

from __future__ import annotations

import json

import pytest

from linnet.experiments.recall.document import study_document
from linnet.experiments.recall.run import run
from linnet.experiments.recall.studies import STUDIES
from linnet.experiments.recall.study import UNTESTED
from linnet.experiments.results import key

NAMES = ("ranking", "state_law", "shift", "forgetting", "extrapolation")


@pytest.mark.parametrize("name", NAMES)
def test_a_few_steps_of_every_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one seed a table can be made, and no verdict; fewer sequences are scored than in earnest."""
    monkeypatch.setattr("linnet.experiments.recall.run.TEST_ROWS", 8)
    monkeypatch.setattr("linnet.experiments.recall.probes.LONGER_ROWS", 4)
    study = STUDIES[name]
    configs = study.configs("smoke")
    assert {config.steps for config in configs} == {4}
    found = study_document(study, [run(config.but(batch_size=32)) for config in configs], 0.1)
    assert found["outcome"] == UNTESTED
    assert all(len(row) == len(table["head"]) for table in found["tables"] for row in table["rows"])
    assert sum(len(table["rows"]) for table in found["tables"]) >= 6
    assert json.loads(json.dumps(found)) == found


@pytest.mark.parametrize("name", NAMES)
def test_every_budget_can_be_made(name: str) -> None:
    counts = {}
    for budget in ("quick", "hour", "paper"):
        configs = STUDIES[name].configs(budget)
        assert len({key(config.to_dict()) for config in configs}) == len(configs)
        assert {config.seed for config in configs} == set(range(3 if budget == "quick" else 5))
        assert not any(config.stop_at for config in configs)
        counts[budget] = len(configs)
    assert counts["quick"] <= 72 < counts["hour"]
    assert STUDIES[name].claim in {"C1", "C7", "C8", "C10", "C11"}
