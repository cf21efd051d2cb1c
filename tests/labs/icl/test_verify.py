"""`linnet.labs.icl.verify`: every check passes, and fails as soon as the formula that it checks is another one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from linnet.labs.icl import verify_forms, verify_optimal, verify_rates, verify_updates, verify_wrong
from linnet.labs.icl.verify import CHECKS, Check, run
from linnet.regress.model import ICLTransformer

SEEDS = (1, 2, 3)


@pytest.fixture(scope="module")
def result() -> list[Check]:
    return run()


def failed(check: Callable[..., list[Check]], **changed: Any) -> list[str]:
    """Statements that do not hold, with formulas changed."""
    with torch.no_grad():
        rows = check(torch.Generator().manual_seed(0), **changed)
    return [row.statement for row in rows if not row.passed]


def test_everything_holds(result: list[Check]) -> None:
    assert [check for check in result if not check.passed] == []
    assert list(dict.fromkeys(check.name for check in result)) == list(CHECKS)
    assert len({(check.name, check.statement) for check in result}) == len(result)
    assert all(math.isfinite(check.value) for check in result)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_everything_holds_for_any_seed(seed: int) -> None:
    assert [check for check in run(seed=seed) if not check.passed] == []


def test_a_check_alone_gives_the_same_numbers(result: list[Check]) -> None:
    received: list[str] = []
    alone = run(["rotation", "lemma-4.3", "rotation"], report=received.append)
    assert received == ["rotation", "lemma-4.3"]
    assert alone == [check for name in received for check in result if check.name == name]
    assert run(["rotation"], seed=1) != run(["rotation"], seed=2)


@pytest.mark.parametrize(
    ("value", "relation", "passed"),
    [
        (1.0, "<=", True),
        (1.1, "<=", False),
        (1.0, ">=", True),
        (0.9, ">=", False),
        (math.nan, "<=", False),
        (math.nan, ">=", False),
        (math.inf, "<=", False),
    ],
)
def test_what_passes(value: float, relation: str, passed: bool) -> None:
    check = Check("name", "statement", value, 1.0, relation)
    assert check.passed is passed
    assert check.as_dict()["passed"] is passed


@pytest.mark.parametrize("form", verify_wrong.STEPS)
def test_wrong_recursions_fail(form: str) -> None:
    """GD++ has no b and no u, so that two of the three mistakes cannot show there."""
    kinds = [statement[:4] for statement in failed(verify_forms.lemma_4_3, step=verify_wrong.STEPS[form])]
    assert kinds == {"M": ["FULL", "DIAG"], "a": ["FULL", "DIAG", "GD++"], "w": ["FULL", "DIAG", "GD++"]}[form[0]]


def test_wrong_updates_fail() -> None:
    by_mixed = failed(verify_updates.lemma_4_4, mixed=verify_wrong.wrong_mixed)
    assert [statement[:2] for statement in by_mixed] == ["α^", "u'", "w'"]
    by_pull = failed(verify_updates.lemma_4_4, pull=verify_wrong.wrong_pull)
    assert [statement[:2] for statement in by_pull] == ["α^", "u'", "w'", "Σ "]


def test_right_forms_do_not_pass_for_wrong_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(verify_wrong.STEPS, "M' = (I + A) M + b wᵀ", verify_forms.recursion.step)
    monkeypatch.setattr(verify_wrong, "wrong_mixed", verify_updates.mixed)
    assert [statement[:9] for statement in failed(verify_wrong.wrong_forms)] == ["M' = (I +", "lemma 4.4"]


def test_answers_of_the_other_sign_fail() -> None:
    assert failed(verify_forms.gram, weights=lambda model, s: -model.weights(s)) == [
        "answers from the sums S alone are those of the tokens",
        "with the count given, three copies of every example change nothing",
    ]


def test_another_step_of_one_layer_fails() -> None:
    """Without the 1 of n + d + 1, three per cent off, it is the slope that shows it."""
    statements = failed(verify_optimal.one_layer, best_step=lambda n, d, mean_square: 1 / (n + d + mean_square))
    assert "the loss has no slope in η there: in errors" in statements
    assert len(failed(verify_optimal.one_layer, best_step=lambda n, d, mean_square: 1 / (n + mean_square))) >= 3


def test_another_filter_fails() -> None:
    statements = failed(verify_optimal.gd_bound, gd_filter=lambda model, z: 1.001 * verify_optimal.gd_filter(model, z))
    assert statements == ["a GD++ model is w = g(Σ) α, with g by the recursion"]


def test_another_shrinking_fails() -> None:
    statements = failed(verify_rates.lemma_a_3, shrink=lambda kappa: kappa * 4 / 9 / (1 - 1 / (3 * kappa)))
    assert [statement[:18] for statement in statements] == ["κ' of a GD++ layer", "its limit for smal"]


def test_another_closed_form_fails() -> None:
    def positive(n: int, first: float, second: float) -> ICLTransformer:
        model = verify_rates.two_noises(n, first, second)
        model.p.neg_()
        return model

    assert len(failed(verify_rates.theorem_5_2, build=positive)) == 4


def test_least_squares_in_as_many_layers_as_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(verify_rates.COUNTS, 100.0, 10)
    assert len(failed(verify_rates.theorem_5_1)) == 1


def test_the_worked_example_is_held_to_every_decimal(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = verify_updates.EXAMPLE.clone()
    moved[1, 1, 1] += 1e-6
    monkeypatch.setattr(verify_updates, "EXAMPLE", moved)
    assert len(failed(verify_updates.example)) == 4


def test_requests_that_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"unknown check 'lemma-4\.5'; did you mean 'lemma-4\.[34]'\? Accepted: gram, "
    ):
        run(["gram", "lemma-4.5"])
    with pytest.raises(ValueError, match="no check was named; accepted: one or more of gram"):
        run([])
    with pytest.raises(ValueError, match="the seed is -1; accepted: an integer from 0"):
        run(["gram"], seed=-1)
