"""Outputs of attention with random features: what a unit measures, and how many features are enough."""

from __future__ import annotations

from math import inf

import pytest
import torch

from linnet.labs.claims.open.attention_error import (
    CLOSE_BY,
    SIZES,
    attention_units,
    compare,
    in_practice,
    mean_growth,
    needed,
)
from linnet.labs.claims.open.kernel_error import MAPS

from .random_feature_rows import attention_row


def test_the_mean_of_e_to_the_z_by_drawing() -> None:
    q, k = 0.5 * torch.randn(2, 200_000, 16, generator=torch.Generator().manual_seed(0))
    assert float(((q + k).square().sum(-1) / 4).exp().mean()) == pytest.approx(mean_growth(16, 0.5), rel=0.05)
    assert mean_growth(16, 1.0) == inf


@pytest.mark.parametrize("name", MAPS)
def test_many_features_come_near_softmax(name: str) -> None:
    q, k, v = torch.randn(3, 32, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    (few, _), (many, negative) = (compare(name, m, 0, q / 2, k / 2, v) for m in (16, 8192))
    assert many < 0.05 < few
    assert negative == 0


def test_a_unit_measures_each_map_at_each_size() -> None:
    unit = attention_units("smoke")[1]
    (row,), (again,) = (list(unit.function(unit.work)) for _ in range(2))
    assert row["metrics"] == again["metrics"]  # drawn from the seed alone
    assert all(len(one["errors"]) == len(SIZES) for one in row["metrics"]["curves"])
    q, k, v = torch.randn(3, 32, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert row["metrics"]["curves"][0]["errors"][0] == compare("favor", SIZES[0], 1, q, k, v)[0]


@pytest.mark.parametrize(
    ("errors", "features"),
    [
        ([0.9, 0.8, 0.05, 0.04, 0.03, 0.02, 0.01], 64),
        ([0.9, CLOSE_BY, 0.3, 0.2, CLOSE_BY, 0.05, 0.01], 256),  # it rose again
        ([0.01] * 7, 16),
        ([0.9] * 7, inf),
    ],
)
def test_the_features_that_outputs_need(errors: list[float], features: float) -> None:
    rows = [attention_row(seed, errors) for seed in range(3)]
    assert needed(rows, "favor", 1.0).mean == features
    assert ("more than 1,024 features where" in in_practice(rows)) == (features == inf)
