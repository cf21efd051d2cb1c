"""The recall studies as claims: units of every budget, findings from made-up rows, a few steps for real."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from linnet.labs.claims import claims
from linnet.labs.claims.rebased import shift, studies
from linnet.labs.core.claim import NO, OPEN, WORDS, YES, Chart, Claim, Finding, Setting
from linnet.labs.core.judgement import answer
from linnet.labs.core.licence import licence
from linnet.labs.core.results import Row, key
from linnet.labs.core.verdicts import CLOSE, FAILS, HOLDS, NOT_SEEN, SEEN, UNTESTED
from linnet.labs.recall.cells import by_cell
from linnet.labs.recall.study import enlarged
from tests.labs.claims.rebased.study_rows import METRICS, SHOWN, made
from tests.labs.recall.made_up import unsettled

LATER = ("state_law", "mamba")
NAMES = tuple(METRICS)
UNLEARNED = {
    "ranking": "softmax",
    "length": "the weaker kernel",
    "ablation": "x^2",
    "floor": "Based",
    "drift": "ReBased",
    "rates": "Based",
    "state_law": "the weakest mixer",
    "shift": "softmax",
    "forgetting": "softmax",
    "extrapolation": "softmax",
    "mamba": "softmax",
}  # whose control fails first


def claim(name: str) -> Claim:
    return claims()[name.replace("_", "-")]


def test_every_study_is_a_claim_in_the_order_of_the_list() -> None:
    assert [one.number for one in studies().values()] == [f"C{n}" for n in (*range(1, 12), 13)]
    assert {name.replace("_", "-") for name in NAMES} == set(studies())


@pytest.mark.parametrize("name", NAMES)
def test_units_of_every_budget(name: str) -> None:
    budgets = [budget for budget in ("smoke", "quick", "hour") if budget != "quick" or name not in LATER]
    counts = list(built(name, budgets).values())
    assert counts == sorted(set(counts))
    for budget in budgets[1:]:
        assert {config["seed"] for config in claim(name).configs(Setting(budget))} >= {0, 1, 2}


def test_what_a_quick_run_leaves_out_says_so() -> None:
    for name in LATER:
        assert claim(name).units(Setting("quick")) == []
        finding = claim(name).read([])
        assert finding.outcome == UNTESTED
        assert "--budget hour" in finding.sentence


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_units_of_the_published_sizes(name: str) -> None:
    counts = built(name, ("hour", "paper"))
    assert counts["hour"] < counts["paper"]


def built(name: str, budgets: Sequence[str]) -> dict[str, float]:
    """Seconds of each budget, having looked at its units."""
    counts = {}
    for budget in budgets:
        units = claim(name).units(Setting(budget))
        configs = claim(name).configs(Setting(budget))
        assert [key(config) for config in configs] == [key(unit.work.to_dict()) for unit in units]
        assert len({key(config) for config in configs}) == len(configs)
        assert json.loads(json.dumps(configs)) == configs
        assert all(unit.seconds > 0 and not unit.alone for unit in units)
        counts[budget] = sum(unit.seconds for unit in units)
    return counts


def test_runs_that_studies_share_are_made_once() -> None:
    quick = {name: {key(config) for config in claim(name).configs(Setting("quick"))} for name in NAMES}
    assert quick["floor"] < quick["length"]
    assert len(quick["shift"] & quick["ranking"]) == 6
    assert quick["rates"] < quick["ablation"]


def test_the_rule_says_what_was_tried() -> None:
    assert "third that was tried" in claim("forgetting").rule
    assert "Sizes" not in claim("drift").rule


def test_an_hour_has_more_steps_and_seeds_of_the_quick_runs() -> None:
    quick = shift.configs("quick")
    result = enlarged(quick)
    assert result == shift.configs("hour")
    assert len(result) == len(quick) // 3 * 5
    assert {config.steps for config in result} == {2 * quick[0].steps}
    assert {config.seed for config in result} == set(range(5))


def read(name: str, rows: Sequence[Row]) -> tuple[Finding, str]:
    """Return what the claim finds, and its answer, which is short whatever the outcome."""
    finding = claim(name).read(rows)
    words = answer(claim(name), finding, licence(finding.evidence))
    assert len(words.split()) <= WORDS
    return finding, words


@pytest.mark.parametrize("name", NAMES)
def test_small_runs_say_what_is_seen_here_and_no_more(name: str) -> None:
    as_claimed, not_so = (read(name, made(name, claimed))[0] for claimed in (True, False))
    assert (as_claimed.evidence.state, not_so.evidence.state) == (YES, NO), (as_claimed.sentence, not_so.sentence)
    assert (as_claimed.outcome, not_so.outcome) == (SEEN, NOT_SEEN)
    assert as_claimed.meaning != not_so.meaning
    for result in (as_claimed, not_so):
        assert "3 seeds" in result.scope
        assert 1 <= len(result.numbers) <= 6
        assert 1 <= len(result.charts) <= 3
        assert all(len(row) == len(table.head) for table in result.tables for row in table.rows)


@pytest.mark.parametrize("name", NAMES)
def test_the_papers_sizes_and_five_seeds_give_a_verdict(name: str) -> None:
    for claimed, outcome in ((True, HOLDS), (False, FAILS)):
        finding, words = read(name, made(name, claimed, 5, "paper"))
        assert (finding.outcome, finding.evidence.repeats) == (outcome, 5), (finding.sentence, finding.evidence)
        assert words == claim(name).answers[YES if claimed else NO]


@pytest.mark.parametrize("name", NAMES)
def test_four_seeds_or_training_that_goes_on_give_none(name: str) -> None:
    assert read(name, made(name, False, 4, "paper"))[1] == "Not tested: 4 seeds, 5 needed"
    finding, words = read(name, unsettled(made(name, False, 5, "paper")))
    if name in ("rates", "iou"):  # about rates with which nothing trains, and runs that end at a recall
        assert finding.outcome == FAILS
    else:
        assert words.endswith("had not converged")


@pytest.mark.parametrize("budget", ["quick", "paper"])
@pytest.mark.parametrize(("name", "who"), UNLEARNED.items())
def test_nothing_is_decided_by_models_that_learned_nothing(name: str, who: str, budget: str) -> None:
    finding, words = read(name, at(0.01, made(name, True, 5, budget)))
    assert words == f"Not tested: {who} did not learn"
    assert "the floor is" in licence(finding.evidence).reason


@pytest.mark.parametrize("budget", ["quick", "paper"])
@pytest.mark.parametrize(
    "name", ["ranking", "length", "ablation", "floor", "rates", "state_law", "forgetting", "mamba"]
)
def test_nothing_is_decided_by_models_at_their_ceiling(name: str, budget: str) -> None:
    for claimed in (True, False):
        assert read(name, at(1.0, made(name, claimed, 5, budget)))[1] == "Not tested: too easy"


def at(recall: float, rows: Sequence[Row]) -> list[Row]:
    """Return the rows with this recall everywhere."""
    result = []
    for row in rows:
        metrics = {**row["metrics"], "accuracy": recall, "chosen_by": recall}
        if "slices" in metrics:
            metrics["slices"] = {name: [1000 * recall, 1000] for name in metrics["slices"]}
        if "longer" in metrics:
            metrics["longer"] = [{**one, "accuracy": recall} for one in metrics["longer"]]
        result.append({**row, "metrics": metrics})
    return result


@pytest.mark.parametrize("name", NAMES)
def test_the_first_number_is_the_one_that_decides(name: str) -> None:
    first = claim(name).read(made(name, True)).numbers[0]
    assert first.ours == pytest.approx(SHOWN[name], abs=2e-3)
    assert first.low is not None
    assert first.high is not None
    assert first.low - 1e-9 <= first.ours <= first.high + 1e-9
    assert first.of == "3 seeds"


@pytest.mark.parametrize("name", NAMES)
def test_too_few_seeds_or_no_rows_are_no_outcome(name: str) -> None:
    for rows in (made(name, True, seeds=2), made(name, True)[:1], []):
        finding = claim(name).read(rows)
        assert (finding.outcome, finding.numbers, finding.meaning) == (UNTESTED, (), "")
        assert finding.sentence


def test_intervals_that_overlap_decide_nothing() -> None:
    """Two seeds of elu + 1 as good as Based: outside the regime that is no outcome, inside it is too close to call."""
    for budget, outcome in (("quick", UNTESTED), ("paper", CLOSE)):
        rows = made("ranking", True, 5, budget)
        for row in rows:
            if row["config"]["mixer"] == "elu" and row["config"]["seed"] < 2:
                row["metrics"]["accuracy"] = row["metrics"]["chosen_by"] = 0.95
        finding = claim("ranking").read(rows)
        assert (finding.evidence.state, finding.outcome) == (OPEN, outcome)


def test_the_papers_numbers_stand_beside_ours() -> None:
    ablation = claim("ablation").read(made("ablation", True))
    assert [(number.what, number.paper) for number in ablation.numbers[:2]] == [
        ("recall of ReBased less that of x^2", "0.09 at 256 tokens, 0.17 at 2,048"),
        ("recall of ReBased less that of (gamma x + beta)^2", "0.02 at 256 tokens, 0.01 at 2,048"),
    ]
    beside = {row[0]: row[2:] for row in ablation.tables[0].rows}
    assert (beside["based"], beside["zero-floor"]) == (("0.58", "0.51"), ("-", "-"))
    iou = claim("iou").read(made("iou", True))
    assert {number.what: number.paper for number in iou.numbers}["IoU of Based's attention"] == "0.157"
    assert [row[3] for row in iou.tables[0].rows] == ["0.999", "0.173", "0.157"]
    assert len(iou.charts) == 3  # bars and two maps


def test_charts_have_the_means_and_intervals_of_the_cells() -> None:
    rows = made("length", True)
    (chart,) = claim("length").read(rows).charts
    assert isinstance(chart, Chart)
    assert [x for x, *_ in chart.series["Based, random, d 32"]] == [16, 48]
    cells = by_cell(rows, lambda config: (config.mixer, config.filler, config.seq_len))
    _x, mean, low, high = chart.series["ReBased, zero, d 32"][1]
    assert mean == pytest.approx(sum(cells["rebased", "zero", 48].values()) / 3)
    assert low < mean < high


def few_steps(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer sequences are scored than in earnest."""
    monkeypatch.setattr("linnet.labs.recall.run.TEST_ROWS", 8)
    monkeypatch.setattr("linnet.labs.recall.probes.LONGER_ROWS", 4)
    rows = [row for unit in claim(name).units(Setting("smoke")) for row in unit.function(unit.work)]
    finding = claim(name).read(json.loads(json.dumps(rows)))
    assert finding.outcome == UNTESTED  # of one seed
    assert finding.tables
    assert all(table.rows for table in finding.tables if not table.title.startswith("next to"))
    assert [row["config"] for row in rows] == claim(name).configs(Setting("smoke"))


@pytest.mark.parametrize("name", ["drift", "iou"])
def test_a_few_steps(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    few_steps(name, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("drift", "iou")])
def test_a_few_steps_of_the_others(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    few_steps(name, monkeypatch)
