"""Random features against softmax: what a unit measures, and every outcome of the rule on made-up curves."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from linnet.labs.claims.open.approximation import CLAIM, MAPS, SIZES, SPREADS, compare, mean_growth
from linnet.labs.core.claim import CONFIRMED, REFUTED, UNCLEAR, UNTESTED, Setting
from linnet.labs.core.results import Row, key, make_row


def row(seed: int, slopes: dict[str, float], negative: dict[str, float]) -> Row:
    """Errors m^slope on a line for each map; with smaller q and k always m^-1/2, a quarter as large."""
    curves: list[dict[str, Any]] = []
    for name in MAPS:
        for spread, slope, factor in ((SPREADS[0], slopes[name], 1.0), (SPREADS[1], -0.5, 0.25)):
            errors = [factor * m**slope for m in SIZES]
            curves.append({"map": name, "spread": spread, "errors": errors, "negative": [negative[name]] * len(SIZES)})
    config = {"experiment": "approximation", "head_dim": 16, "sizes": SIZES, "spreads": SPREADS, "seed": seed}
    return make_row(config, {"curves": curves}, 0.1)


def rows(favor: float, fourier: float, *, noise: float = 0.0, signs: tuple[float, float] = (0.0, 0.1)) -> list[Row]:
    negative = dict(zip(MAPS, signs, strict=True))
    return [
        row(seed, {"favor": favor + noise * (seed - 1), "fourier": fourier - noise * (seed - 1)}, negative)
        for seed in range(3)
    ]


@pytest.mark.parametrize(
    ("made", "outcome"),
    [
        (rows(-0.5, -0.45), CONFIRMED),
        (rows(-0.2, -0.5), REFUTED),
        (rows(-0.5, -0.7), REFUTED),
        (rows(-0.5, -0.5, signs=(0.01, 0.1)), REFUTED),  # positive features with a negative sum
        (rows(-0.5, -0.5, signs=(0.0, 0.0)), REFUTED),
        (rows(-0.5, -0.5, noise=0.3), UNCLEAR),
        (rows(-0.5, -0.5)[:2], UNTESTED),
        ([], UNTESTED),
    ],
)
def test_outcomes(made: list[Row], outcome: str) -> None:
    assert CLAIM.read(made).outcome == outcome


def test_the_numbers_are_those_of_the_curves() -> None:
    finding = CLAIM.read(rows(-0.2, -0.45))
    assert [round(n.ours, 3) for n in finding.numbers] == [-0.2, -0.45, -0.5, -0.5, 0.0, 0.1]
    assert finding.numbers[0].of == "3 seeds"
    assert "FAVOR+: slope -0.200 [-0.200, -0.200], negative denominators 0.00%" in finding.sentence
    assert "infinite at spread 1 and 9.989 at spread 0.5" in finding.sentence  # (3 / 4)^-8
    assert finding.tables[0].rows[0][:2] == ("16", f"{16**-0.2:.3f} [{16**-0.2:.3f}, {16**-0.2:.3f}]")
    assert "off by 4% of the output" in finding.meaning
    assert "by 1% when" in finding.meaning


def test_a_slope_as_expected_needs_no_excuse() -> None:
    assert "variance" not in CLAIM.read(rows(-0.5, -0.5)).sentence


def test_the_mean_of_e_to_the_z_by_drawing() -> None:
    q, k = 0.5 * torch.randn(2, 200_000, 16, generator=torch.Generator().manual_seed(0))
    assert float(((q + k).square().sum(-1) / 4).exp().mean()) == pytest.approx(mean_growth(16, 0.5), rel=0.05)


@pytest.mark.parametrize("name", MAPS)
def test_many_features_come_near_softmax(name: str) -> None:
    q, k, v = torch.randn(3, 32, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    (few, _), (many, negative) = (compare(name, m, 0, q / 2, k / 2, v) for m in (16, 8192))
    assert many < 0.05 < few
    assert negative == 0


def test_smoke_units_measure_each_map_at_each_size() -> None:
    setting = Setting("smoke")
    made = [row for unit in CLAIM.units(setting) for row in unit.function(unit.work)]
    assert [row["config"] for row in made] == CLAIM.configs(setting)
    assert all(len(one["errors"]) == len(SIZES) for row in made for one in row["metrics"]["curves"])
    again = CLAIM.units(setting)[1]
    assert next(iter(again.function(again.work)))["metrics"] == made[1]["metrics"]  # drawn from the seed alone
    q, k, v = torch.randn(3, 32, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert made[1]["metrics"]["curves"][0]["errors"][0] == compare("favor", SIZES[0], 1, q, k, v)[0]
    finding = CLAIM.read(made)
    assert finding.numbers[4].ours == 0
    assert len(finding.charts) == 2


@pytest.mark.parametrize("budget", ["quick", "hour", "paper"])
def test_configs_are_json_and_differ(budget: str) -> None:
    configs = CLAIM.configs(Setting(budget))
    assert json.loads(json.dumps(configs)) == configs
    assert len({key(config) for config in configs}) == len(configs) >= 3
