"""Day runs of recall: how a run ends, who may report, which rate a search prefers, and that stages can be built."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest

from linnet.labs.claims.rebased import studies
from linnet.labs.core.claim import DAY, YES, Setting
from linnet.labs.core.results import Row, key
from linnet.labs.core.verdicts import HOLDS, UNTESTED
from linnet.labs.recall import day, lead
from linnet.labs.recall.bench import ZOOLOGY, regime_of, sizes
from linnet.labs.recall.cells import curve_of
from linnet.labs.recall.config import EVERY, RecallConfig
from linnet.labs.recall.day import RATES, SEARCH_STEPS, Stage, day_units, preferred
from linnet.labs.recall.run import CUTS, ended, run
from linnet.labs.recall.sweep import SEARCH_SEED
from linnet.train.optim import Plateau, learning_rate
from tests.labs.recall.made_up import around, made_up, outcome

SMALL = {"d_model": 16, "seq_len": 16, "pairs": 2, "vocab_size": 32, "batch_size": 16, "key_dim": 4}
TINY = RecallConfig(mixer="elu", steps=4000, lr=3e-2, patience=2, **SMALL)
HAVE = [name for name, study in studies().items() if study.day]


@cache
def stages() -> list[Stage]:
    base = TINY.replace(vocab_size=256)
    return [Stage([base, base.replace(mixer="based")], seeds=2), Stage([base.replace(seq_len=32)], seeds=3)]


@pytest.mark.parametrize(
    ("changes", "accuracy", "cuts", "ending"),
    [
        ({}, 0.5, CUTS - 1, ""),
        ({}, 0.5, CUTS, "settled"),
        ({}, 0.999, 0, "solved"),
        ({"stop_at": 0.4}, 0.5, CUTS, "stopped"),
        ({"patience": 0}, 1.0, CUTS, ""),
    ],
)
def test_how_a_run_ends(changes: dict[str, Any], accuracy: float, cuts: int, ending: str) -> None:
    assert ended(TINY.replace(**changes), accuracy, cuts) == ending


def test_a_run_with_patience_ends_when_it_no_longer_improves(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a rate of nearly nothing the loss has a new minimum now and then at most, so the run settles early."""
    monkeypatch.setattr("linnet.labs.recall.run.TEST_ROWS", 8)
    row = run(TINY.replace(lr=1e-12, weight_decay=0.0))
    assert row["metrics"]["ending"] == "settled"
    assert [step for step, _ in row["metrics"]["curve"]] == [EVERY * n for n in range(1, 2 * 2 + 2)]
    assert row["info"]["cpu"] >= 0
    assert sizes([row]).endswith("steps, until converged")
    whole = run(TINY.replace(lr=1e-12, steps=2 * EVERY))
    assert (whole["metrics"]["ending"], whole["metrics"]["curve"][-1][0]) == ("", 2 * EVERY)


def test_the_rate_is_cut_where_the_run_says() -> None:
    plan = TINY.training()
    assert plan.schedule == "plateau"
    assert learning_rate(3000, plan, Plateau(cuts=1)) == pytest.approx(0.2 * TINY.lr)
    assert TINY.replace(patience=0).training().schedule == "cosine"


def searched(rate: float, ending: str, steps: int, recall: float) -> Row:
    metrics = {"ending": ending, "curve": [[steps, recall]], "chosen_by": recall}
    return {"config": {"lr": rate}, "metrics": metrics}


def test_a_search_prefers_the_fewest_steps_and_then_the_best_recall() -> None:
    rows = [searched(1e-3, "stopped", 900, 0.995), searched(1e-2, "stopped", 400, 0.99), searched(1e-1, "", 1500, 0.9)]
    assert preferred(rows) == 1e-2
    assert preferred([searched(1e-3, "", 1500, 0.2), searched(1e-2, "settled", 1500, 0.5)]) == 1e-2
    assert preferred([searched(1e-3, "", 1500, 0.2), {"config": {"lr": 1.0}, "metrics": {
        "ending": "diverged", "curve": [], "chosen_by": None}}]) == 1e-3  # fmt: skip


def rows_of_search(best: float) -> dict[str, Row]:
    units = [unit for unit in day_units(stages, Setting(DAY)) if unit.work.seed == SEARCH_SEED]
    rows = [
        {"config": unit.configs[0], "metrics": {"ending": "", "curve": [], "chosen_by": float(unit.work.lr == best)}}
        for unit in units
    ]
    return {key(row["config"]): row for row in rows}


def test_a_cell_waits_for_its_search_and_then_reports_at_its_rate() -> None:
    at_first = day_units(stages, Setting(DAY))
    assert len(at_first) == 2 * len(RATES) + 2 * 2 + 3  # a longer sequence shares the search of its mixer
    searches = [unit for unit in at_first if not unit.waits]
    assert {(unit.work.seed, unit.work.steps) for unit in searches} == {(SEARCH_SEED, SEARCH_STEPS)}
    assert {unit.work.seq_len for unit in searches} == {day.SEARCH_TOKENS}
    known = rows_of_search(RATES[-1])
    after = day_units(stages, Setting(DAY, row=lambda config: known.get(key(config))))
    assert not any(unit.waits for unit in after)
    assert {unit.work.lr for unit in after if unit.work.seed < SEARCH_SEED} == {RATES[-1]}
    known.popitem()
    then = day_units(stages, Setting(DAY, row=lambda config: known.get(key(config))))
    assert {unit.work.mixer for unit in then if unit.waits} == {"based"}


@pytest.mark.parametrize("name", HAVE)
def test_stages_are_in_the_regime_and_have_runs_of_their_own(name: str) -> None:
    units = studies()[name].work(Setting(DAY))
    assert len({key(unit.configs[0]) for unit in units}) == len(units)
    for stage in {unit.stage for unit in units}:
        reported = [unit.work for unit in units if unit.stage == stage and unit.waits]
        assert {one.vocab_size for one in reported} == {8192}
        assert {one.seed for one in reported} >= set(range(5))
    assert studies()[name].units(Setting("hour"))[0].configs[0].get("patience") is None  # older keys are as they were


def test_steps_do_not_count_against_a_run_that_has_converged() -> None:
    base = RecallConfig(vocab_size=8192, seq_len=128, pairs=32, d_model=64, steps=12_500, patience=24)
    ending = {"ending": "settled", "curve": [[50, 0.1], [1900, 0.5]]}
    rows = made_up(base, around(0.5), **ending)
    assert regime_of(rows, ZOOLOGY).outside == ()
    assert "1,900 steps, until converged" in sizes(rows)
    short = made_up(base.replace(steps=600, patience=0), around(0.5))
    assert "steps 600" in regime_of([*rows, *short], ZOOLOGY).outside[0]


def test_a_solved_run_no_longer_rises() -> None:
    (row,) = made_up(TINY, [1.0], ending="solved", curve=[[50, 0.1], [100, 1.0]])
    assert curve_of(row)[-1] == [400, 1.0]


def ran(tokens: int, means: dict[str, float], seeds: int = 5) -> list[Row]:
    result: list[Row] = []
    for mixer, mean in means.items():
        config = day.DAY.replace(mixer=mixer, seq_len=tokens)
        values = [min(1.0, value) for value in around(mean, seeds)]
        flat = [[100 * n, mean] for n in range(1, 9)]
        result += made_up(config, values, mixer_bytes=1000, ending="settled", curve=flat)
    return result


RACE = lead.Race(ahead=("based",), rival="mamba", shown=("conv",), bench=ZOOLOGY)
MEANS = {"softmax": 1.0, "based": 0.9, "mamba": 0.5, "conv": 0.1}


@pytest.mark.parametrize(
    ("far", "state", "printed"),
    [
        (MEANS, YES, (HOLDS, "")),
        (MEANS | {"mamba": 0.01}, YES, (HOLDS, "")),  # does not count there: it has not learned
        (MEANS | {"mamba": 1.0}, YES, (HOLDS, "")),  # nor where it solves the task
    ],
)
def test_a_race_counts_places_where_the_rival_can_be_compared(
    far: dict[str, float], state: str, printed: tuple[str, str]
) -> None:
    found = RACE.verdict([*ran(128, MEANS), *ran(256, far)])
    assert (found.state, outcome(found)) == (state, printed)
    assert "128 tokens, d = 64: Based less Mamba" in found.sentence


def test_a_race_without_a_rival_that_learned_decides_nothing() -> None:
    found = RACE.verdict(ran(128, MEANS | {"mamba": 0.02}))
    assert outcome(found) == (UNTESTED, "Mamba did not learn")
    assert outcome(RACE.verdict(ran(128, MEANS, 4))) == (UNTESTED, "4 seeds, 5 needed")


def test_runs_that_chose_a_rate_are_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    claim = studies()["mamba"]
    rows: Sequence[Row] = ran(128, dict.fromkeys(claim.work(Setting(DAY))[0].work.mixer.split(), 1.0) | MEANS)
    chose = [{**row, "config": {**row["config"], "seed": SEARCH_SEED}} for row in ran(128, {"mamba": 0.0}, 1)]
    assert claim.read([*rows, *chose]).sentence == claim.read(rows).sentence
