"""T17: models that break a promise are found out, each by the kind of case that is for it; the rule's outcomes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from linnet.labs.claims.rnn import state_safety
from linnet.labs.claims.rnn.state_safety import KINDS
from linnet.labs.core.verdicts import FAILS, HOLDS, UNTESTED
from linnet.models import LanguageModel, ModelState

CONFIG = {"experiment": "state", "mixer": "elu", "dtype": "float64", "cases": 3, "seed": 0}


def rows(cases: int, failed: int = 0) -> list[dict[str, Any]]:
    metrics = {"failed": {**dict.fromkeys(KINDS, 0), "split": failed}, "worst": dict.fromkeys(KINDS, 0.1)}
    return [
        {"config": {**CONFIG, "cases": cases, "dtype": dtype}, "metrics": metrics} for dtype in ("float64", "float32")
    ]


def test_outcomes() -> None:
    assert state_safety.read(rows(25)).outcome == HOLDS
    assert state_safety.read(rows(24)).outcome == UNTESTED
    few = state_safety.read(rows(1, failed=1))
    assert few.outcome == FAILS
    assert [one.ours for one in few.numbers] == [2, 8, 1]
    assert "elu (float32), elu (float64)" in few.sentence
    assert few.tables[0].rows == [("elu", "0 of 2", "2 of 2", "0 of 2", "0 of 2")]


def failures() -> set[str]:
    return {kind for kind, count in state_safety.check(CONFIG)["failed"].items() if count}


def test_states_altered_in_place_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = LanguageModel.step

    def step(self: LanguageModel, x: torch.Tensor, state: ModelState | None = None) -> Any:
        logits, new = real(self, x, state)
        if state is not None:
            state.layers[0].s.mul_(1 + 1e-14)  # a few bits, far below what the answers tolerate
        return logits, new

    assert failures() == set()
    monkeypatch.setattr(LanguageModel, "step", step)
    assert failures() == {"fork"}


def test_padding_that_counts_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = LanguageModel.forward

    def forward(self: LanguageModel, tokens: torch.Tensor, state: Any = None, *, mask: Any = None, **how: Any) -> Any:
        return real(self, tokens, state, mask=None, **how)

    monkeypatch.setattr(LanguageModel, "forward", forward)
    assert "split" in failures()


def test_rows_out_of_order_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = ModelState.select
    monkeypatch.setattr(ModelState, "select", lambda self, rows: real(self, sorted(rows)))
    assert failures() == {"rows"}


def test_a_file_that_loses_bits_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = ModelState.save

    def save(self: ModelState, path: Any, **how: Any) -> None:
        copy = self.clone()
        copy.layers[0].s.mul_(1 + 1e-14)
        real(copy, path, **how)

    monkeypatch.setattr(ModelState, "save", save)
    assert failures() == {"save"}
