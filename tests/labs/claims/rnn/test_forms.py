"""T1: every form is compared, with a reference that would notice; the rule's three outcomes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from linnet.labs.claims.rnn import forms
from linnet.labs.core.verdicts import CLOSE, FAILS, HOLDS, UNTESTED

CONFIG = {"experiment": "forms", "features": 4, "values": 4, "lengths": [1, 9], "batch": 2, "heads": 2, "seed": 0}


def rows(double: float | None, single: float) -> list[dict[str, Any]]:
    return [
        {"config": {**CONFIG, "dtype": dtype}, "metrics": {"errors": {"good": [0.0, 1e-17], "chunks": [0.0, error]}}}
        for dtype, error in (("float64", double), ("float32", single))
    ]


@pytest.mark.parametrize(
    ("double", "single", "outcome"),
    [
        (1e-15, 1e-6, HOLDS),
        (1e-15, 2.1e-5, CLOSE),
        (9e-11, 1e-6, CLOSE),
        (1e-15, 2.1e-3, FAILS),
        (None, 1e-6, FAILS),  # NaN, as rows have it
    ],
)
def test_outcomes(double: float | None, single: float, outcome: str) -> None:
    finding = forms.read(rows(double, single))
    assert finding.outcome == outcome
    assert finding.numbers[1].ours == single
    assert finding.tables[0].rows[0][0] == "chunks"


def test_both_precisions_are_needed() -> None:
    finding = forms.read(rows(1e-15, 1e-6)[:1])
    assert (finding.outcome, finding.sentence) == (UNTESTED, "there is no comparison in float32")


def test_a_form_that_differs_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A form that sees one token less than it should."""

    def late(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return forms.whole(q, k.roll(1, 1), v.roll(1, 1))

    monkeypatch.setattr(forms, "by_token", late)
    errors = forms.errors({**CONFIG, "dtype": "float64"})["errors"]
    assert errors["token by token"][1] > 1e-2
    assert all(max(result) < 1e-14 for name, result in errors.items() if name != "token by token")
    assert len(errors) == 11


def test_padding_is_read_by_nobody() -> None:
    q, k, v = torch.randn(3, 2, 5, 2, 4, dtype=torch.float64)
    for left in (True, False):
        assert torch.allclose(forms.padded(q, k, v, left), forms.whole(q, k, v), atol=1e-14)
