"""Chains as units: the configurations of `linnet icl table`, what is done is not done again, and curves by noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from linnet.labs.claims.icl import chains
from linnet.labs.claims.icl.adaptivity import CLAIM, JUDGED
from linnet.labs.core.claim import Setting, Unit
from linnet.labs.core.licence import SEEDS
from linnet.labs.core.results import Store, key, make_row
from linnet.labs.core.verdicts import UNTESTED
from linnet.labs.icl.evaluate import Score, predictor
from linnet.labs.icl.evaluate import profile as scores
from linnet.labs.icl.paper import NAMES
from linnet.labs.icl.table_units import BASELINES, Plan, make_units
from linnet.regress.model import ICLTransformer
from tests.labs.claims.icl.made_up import profile, score


def smoke(out: Path, **more: Any) -> Unit:
    return chains.chains(Setting("smoke", out, **more), [chains.TWO], ["diag"])[0]


def test_the_hour_has_the_configurations_of_the_table_command(tmp_path: Path) -> None:
    with Store(tmp_path / "rows.jsonl") as store:
        wanted = {key(config) for unit in make_units(Plan(), tmp_path, store) for config in unit.missing()}
    setting = Setting("hour", tmp_path)
    units = chains.chains(setting) + chains.rules(setting, NAMES, BASELINES)
    result = {key(config) for unit in units for config in unit.configs if config["experiment"] == "icl-table"}
    assert result == wanted
    assert len(wanted) == 270


def test_the_hour_has_five_seeds_of_what_adaptivity_compares(tmp_path: Path) -> None:
    units = CLAIM.units(Setting("hour", tmp_path))
    profiled = [config for unit in units for config in unit.configs if config["experiment"] == chains.PROFILE]
    for kind, layers, noise in JUDGED:
        model = {"kind": kind, "layers": layers, "noise": noise}
        seeds = {config["seed"] for config in profiled if model.items() <= config.items()}
        assert len(seeds) == SEEDS
    assert not chains.repeats(Setting("quick", tmp_path), chains.UNIFORM, ("diag",), (1, 2))


def test_a_killed_chain_goes_on_from_its_saved_models(tmp_path: Path) -> None:
    whole = smoke(tmp_path / "whole")
    rows = list(whole.function(whole.work))
    half = smoke(tmp_path / "half")
    first = next(iter(half.function(half.work)))
    before = (tmp_path / "half" / "models" / "diag-1,3-L1-s0.safetensors").stat().st_mtime_ns
    again = smoke(tmp_path / "half", row=lambda config: first if key(config) == key(first["config"]) else None)
    assert again.configs == half.configs
    rest = list(again.function(again.work))
    assert (tmp_path / "half" / "models" / "diag-1,3-L1-s0.safetensors").stat().st_mtime_ns == before
    assert [row["config"] for row in rest] == list(half.configs[1:])
    assert [row["metrics"] for row in [first, *rest]] == [row["metrics"] for row in rows]


def test_a_profile_is_that_of_the_model_that_was_saved(tmp_path: Path) -> None:
    unit = smoke(tmp_path)
    row = list(unit.function(unit.work))[-1]
    assert row["config"]["experiment"] == "icl-profile"
    assert row["config"]["layers"] == 3
    model = ICLTransformer.load(tmp_path / "models" / "diag-1,3-L3-s0.safetensors")
    result = scores(predictor(model), row["config"]["sigmas"], count=row["config"]["sequences"])
    assert row["metrics"]["mean"] == pytest.approx([one.sharp for one in result], rel=1e-4)


def test_curves_have_five_figures_and_no_rounding_errors() -> None:
    one = Score(0.1, 0.1, 3.4e-30, 1.23456789, 0.1, 0.1, 0.0, 1.0, 0.1, 100)
    assert chains.curve([one]) == {"mean": [0.0], "se": [1.2346], "median": [0.1], "diverged": [0.0]}


def test_profiles_are_known_by_model_and_level() -> None:
    config = {"experiment": "icl-profile", "kind": "diag", "layers": 3, "noise": "U5", "sigmas": [0.0, 2.0], "seed": 0}
    other = config | {"noise": "{1,3}"}
    rules = config | {"kind": "rules"}
    second = config | {"seed": 1}
    rows = [make_row(other, profile(other, 9.0), 1.0), make_row(config, profile(config, {0.0: 0.5, 2.0: 0.25}), 1.0)]
    rows.append(make_row(rules, {"AdaRR": profile(rules, 0.125)}, 1.0))
    rows.append(make_row(second, profile(second, 0.75), 1.0))
    assert chains.profiles(rows, "U5", 1)["DIAG 3"][2.0]["mean"] == 0.75
    result = chains.profiles(rows, "U5")
    assert set(result) == set(chains.profiles(rows, "U5", 1)) == {"DIAG 3", "AdaRR"}
    assert result["DIAG 3"][2.0]["mean"] == 0.25
    assert result["AdaRR"][0.0]["median"] == 0.0625


def test_the_best_seed_counts() -> None:
    about = {"experiment": "icl-table", "kind": "diag", "layers": 3, "noise": "U5", "sequences": 20_000}
    values = [(0, 0.2), (1, 0.1), (2, float("inf"))]
    rows = [make_row(about | {"seed": seed}, score(value), 1.0) for seed, value in values]
    assert chains.cells(rows)["diag", 3, "U5"]["sharp"] == 0.1


@pytest.mark.parametrize(("sequences", "enough"), [(9_999, False), (10_000, True)])
def test_a_verdict_needs_ten_thousand_sequences(sequences: int, enough: bool) -> None:
    early = chains.too_few([make_row({"experiment": "icl-table", "sequences": sequences}, {}, 1.0)])
    assert (early is None) == enough
    assert early is None or (early.outcome == UNTESTED and "9999" in early.sentence)


def test_only_what_is_looked_at_closely_has_profiles(tmp_path: Path) -> None:
    units = chains.chains(Setting("hour", tmp_path))
    result = {
        (c["kind"], c["noise"], c["layers"]) for u in units for c in u.configs if c["experiment"] == "icl-profile"
    }
    assert result == {(*name, layers) for name, depths in chains.PROFILED.items() for layers in depths}
