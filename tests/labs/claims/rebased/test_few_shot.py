"""The few-shot table: what the rule finds in made-up answers, the numbers shown, and smoke units for real."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from linnet.data import data_folder
from linnet.labs.claims.rebased.few_shot import CLAIM
from linnet.labs.claims.rebased.few_shot_table import PAPER, values
from linnet.labs.core.claim import Setting
from linnet.labs.core.licence import licence
from linnet.labs.core.results import Row, key, make_row
from linnet.labs.core.verdicts import FAILS, HOLDS, NO, NOT_SEEN, OPEN, SEEN, UNTESTED, YES
from tests.labs.fewshot.tiny import write_sets
from tests.labs.recall.made_up_text import FALLING, SETTLED

CHANCE = {"winogrande": 0.5, "piqa": 0.5, "hellaswag": 0.25, "arc_easy": 0.25, "arc_challenge": 0.25}  # mean .35


def row(model: str, seed: int, right: str, size: tuple[int, int] = (1234, 7)) -> Row:
    """The same answers in each set; size: parameters and steps of training."""
    config = {"experiment": "few-shot", "model": model, "seed": seed, "training": {"steps": size[1]}}
    metrics = {"right": dict.fromkeys(PAPER, right), "chance": CHANCE, "cut": dict.fromkeys(PAPER, len(right) // 2)}
    return make_row(config, {**metrics, "parameters": size[0], "curve": SETTLED}, 0.1)


def rows(based: str, rebased: str, softmax: str = "0001", seeds: int = 3, **about: tuple[int, int]) -> list[Row]:
    given = {"softmax": softmax, "based": based, "rebased": rebased}
    return [row(model, seed, right * 10, **about) for model, right in given.items() for seed in range(seeds)]


PAPERS = (150_000_000, 20_000)


@pytest.mark.parametrize(
    ("made", "state", "printed"),
    [
        (rows("1101", "1111"), YES, (SEEN, "")),
        (rows("1111", "1101"), NO, (NOT_SEEN, "")),
        (rows("1101", "1111", seeds=5, size=PAPERS), YES, (HOLDS, "")),
        (rows("1111", "1101", seeds=5, size=PAPERS), NO, (FAILS, "")),
        (rows("1111", "1101", seeds=4, size=PAPERS), NO, (UNTESTED, "4 seeds, 5 needed")),
        (rows("1101", "1101"), OPEN, (UNTESTED, "undecided at this size")),
        (rows("1101", "0001"), NO, (UNTESTED, "ReBased guesses")),
        (rows("0001", "1111"), YES, (UNTESTED, "Based guesses")),
        (rows("1111", "1101")[:6], UNTESTED, (UNTESTED, "rows are missing")),
        ([], UNTESTED, (UNTESTED, "rows are missing")),
    ],
)
def test_what_is_found_and_what_is_printed(made: list[Row], state: str, printed: tuple[str, str]) -> None:
    evidence = CLAIM.read(made).evidence
    allowed = licence(evidence)
    assert (evidence.state, (allowed.outcome, allowed.short)) == (state, printed)


def test_one_seed_against_the_others_leaves_it_open() -> None:
    """Many questions make a narrow interval; another training could still turn the difference."""
    made = rows("1101", "1111")
    for one in made:
        if one["config"]["model"] == "rebased" and one["config"]["seed"] == 0:
            one["metrics"]["right"] = dict.fromkeys(PAPER, "1101" * 10)
    finding = CLAIM.read(made)
    assert finding.numbers[0].low is not None
    assert finding.numbers[0].low > 0
    assert finding.evidence.state == OPEN


def test_training_that_goes_on_gives_no_verdict() -> None:
    made = rows("1111", "1101", seeds=5, size=PAPERS)
    made[-1]["metrics"]["curve"] = FALLING
    assert licence(CLAIM.read(made).evidence).short == "either model had not converged"


def test_the_numbers_are_points_over_questions() -> None:
    finding = CLAIM.read([*rows("1100", "1110"), row("stories15M", 0, "1111" * 10)])
    better, softmax, based, rebased, stories = finding.numbers
    assert (better.ours, better.of, better.unit) == (25.0, "200 questions", "points")
    assert [round(n.ours, 6) for n in (softmax, based, rebased, stories)] == [-10, 15, 40, 65]
    assert better.low is not None
    assert 15 < better.low < 25
    assert "about 11,255 questions" in finding.sentence  # (1.96 x 100 sqrt(3) / 4 / .8)^2
    assert "1,234 parameters and 7 steps" in finding.sentence
    lines = finding.tables[0].rows
    assert lines[0] == ("chance", "50.0", "50.0", "25.0", "25.0", "25.0", "35.0", "-")
    assert lines[2][0] == "Based (3 seeds)"
    assert lines[2][1] == "50.0 ± 8.0"
    assert lines[2][-1] == "50%"
    assert lines[-1][-2] == "42.1"


def test_a_question_is_the_mean_over_seeds() -> None:
    assert values([row("based", 0, "01"), row("based", 1, "11")], ["piqa", "arc_easy"]) == [0.5, 1.0, 0.5, 1.0]


def test_a_run_that_diverged_is_no_answer() -> None:
    made = rows("1101", "1111")
    made[-1]["metrics"] = {"ending": "diverged"}
    assert CLAIM.read(made).tables[0].rows[3][0] == "ReBased (2 seeds)"


def test_without_the_questions_there_is_nothing_to_do_and_it_says_what_is_missing() -> None:
    assert CLAIM.units(Setting("quick", data=frozenset({"text", "tiny-lm"}))) == []
    assert "LINNET_DATA" in CLAIM.read([]).sentence
    assert "no answers of ReBased;" in CLAIM.read(rows("1111", "1101")[:6]).sentence
    assert "linnet reproduce few-shot" in CLAIM.read([]).sentence


def made(names: Sequence[str]) -> list[Row]:
    units = CLAIM.units(Setting("smoke", data=frozenset(names)))
    return [row for unit in units for row in unit.function(unit.work)]


def test_smoke_units_ask_every_model_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINNET_DATA", str(write_sets(tmp_path)))
    result = made(["fewshot"])
    assert [row["config"] for row in result] == CLAIM.configs(Setting("smoke", data=frozenset({"fewshot"})))
    assert {row["config"]["model"] for row in result} == {"softmax", "based", "rebased"}
    for row in result:
        assert row["metrics"]["right"].keys() == PAPER.keys()
        assert all(len(right) == 2 for right in row["metrics"]["right"].values())
        assert [step for step, _ in row["metrics"]["curve"]] == [1, 2]
    assert CLAIM.read(result).numbers[0].of == "10 questions"


@pytest.mark.skipif(data_folder("tiny-lm") is None, reason="the data folder tiny-lm is not there")
def test_a_pretrained_model_is_asked_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = data_folder("tiny-lm")
    assert models
    place = write_sets(tmp_path)
    (place / "tiny-lm").symlink_to(models)
    monkeypatch.setenv("LINNET_DATA", str(place))
    unit = CLAIM.units(Setting("smoke", data=frozenset({"fewshot", "tiny-lm"})))[-1]
    (row,) = unit.function(unit.work)
    assert row["config"]["model"] == "stories260K"
    assert row["metrics"]["parameters"] == 260_032


@pytest.mark.parametrize("budget", ["smoke", "quick", "hour", "paper"])
def test_configs_are_json_and_differ(budget: str) -> None:
    configs = CLAIM.configs(Setting(budget, data=frozenset({"fewshot", "tiny-lm", "text"})))
    assert json.loads(json.dumps(configs)) == configs
    assert len({key(config) for config in configs}) == len(configs) >= 4
