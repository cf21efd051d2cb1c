"""T2: central differences notice a wrong gradient; the rule's outcomes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from linnet.labs.claims.rnn import gradients
from linnet.labs.core.verdicts import CLOSE, FAILS, HOLDS, UNTESTED

CONFIG = {"experiment": "gradients", "dtype": "float64", "map": "elu", "length": 6, "head_dim": 3, "values": 2}
CONFIG |= {"chunk": 2, "step": 1e-6, "seed": 0}


def rows(double: float | None, single: float) -> list[dict[str, Any]]:
    fine = dict.fromkeys(gradients.NAMES, 1e-10)
    return [
        {"config": CONFIG, "metrics": {"errors": fine}},
        {"config": {**CONFIG, "map": "taylor"}, "metrics": {"errors": {**fine, "k": double}}},
        {"config": {**CONFIG, "dtype": "float32"}, "metrics": {"errors": {"q": 1e-8, "k": single, "v": 1e-8}}},
    ]


@pytest.mark.parametrize(
    ("double", "single", "outcome"),
    [
        (1e-8, 1e-5, HOLDS),
        (2e-7, 1e-5, CLOSE),
        (1e-8, 6e-4, CLOSE),
        (2e-5, 1e-5, FAILS),
        (None, 1e-5, FAILS),
    ],
)
def test_outcomes(double: float | None, single: float, outcome: str) -> None:
    finding = gradients.read(rows(double, single))
    assert finding.outcome == outcome
    assert "taylor is furthest" in finding.sentence
    assert [one.ours for one in finding.numbers[1:]] == [single, 2]


def test_both_kinds_of_rows_are_needed() -> None:
    assert gradients.read(rows(1e-8, 1e-5)[:2]).outcome == UNTESTED
    assert gradients.read(rows(1e-8, 1e-5)[2:]).outcome == UNTESTED


def test_a_gradient_that_is_cut_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    real = gradients.linear_attention

    def cut(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **how: Any) -> Any:
        half = (k + k.detach()) / 2  # the same numbers, half the gradient
        return real(q, half, v, **how)

    assert max(gradients.differences(CONFIG)["errors"].values()) < 1e-7
    monkeypatch.setattr(gradients, "linear_attention", cut)
    errors = gradients.differences(CONFIG)["errors"]
    assert errors["k"] > 0.3
    assert max(errors[name] for name in ("q", "v", "s0", "z0")) < 1e-7
