"""A share of the random calls of tests/fuzz/ops.py, and proof that they would notice an error."""

from __future__ import annotations

import random

import pytest
import torch

from tests.fuzz import measure, ops
from tests.fuzz.long_run import Job
from tests.fuzz.trial import Trial, check

SEED, SHARE = 13, 600  # cases: about a minute of one core


@pytest.mark.slow
def test_random_calls_give_the_numbers_of_float64() -> None:
    count, failed = ops.share(Job(SEED, range(SHARE), None, ""))
    assert not failed, "\n".join(found.text for found in failed)
    assert set(ops.SUBJECTS) <= set(count)


def division(x: torch.Tensor, off: float) -> Trial:
    """1 / x, with an error of so many roundings."""
    u = measure.ROUNDOFF[torch.float32]
    op, truth = (lambda v: {"out": (1 + off * u) / v["x"]}), (lambda v: {"out": 1 / v["x"]})
    return Trial({}, {"x": x}, op, truth, torch.float32)


@pytest.mark.parametrize(("off", "wrong"), [(0.0, False), (1000.0, True)])
def test_a_wrong_digit_is_noticed(off: float, wrong: bool) -> None:
    trial = division(torch.linspace(1, 2, 12, dtype=torch.float64).view(3, 4), off)
    assert bool(check(trial, random.Random(0), torch.Generator().manual_seed(0))) == wrong


def test_the_limit_follows_the_condition() -> None:
    """A difference that cancels to 1e-6 has one digit less for each of its own: allowed, but only by so much."""
    x = torch.tensor([[1.0 + 1e-6, 3.0]], dtype=torch.float64)

    def truth(rounded: bool) -> measure.Values:
        y = x * 1.0 if rounded else x
        return {"out": 1 / (y - 1.0)}

    moved = measure.noise(truth, measure.ROUNDOFF[torch.float32], seed=0)["out"][0]
    assert 1e-3 < moved[0] * 1e-6 < 1
    assert moved[1] < 1e-6


def test_not_a_number_is_wrong_where_float64_has_one() -> None:
    want, got = {"out": torch.ones(1, 2, dtype=torch.float64)}, {"out": torch.tensor([[1.0, torch.nan]])}
    quiet = {"out": torch.zeros(1, 2, dtype=torch.float64)}
    assert measure.problems(got, want, torch.float32, {}, lambda _: quiet)
    assert not measure.problems(
        got, {"out": torch.full((1, 2), torch.nan).double()}, torch.float32, {}, lambda _: quiet
    )


def test_a_case_is_its_seed_and_its_number() -> None:
    first, again = (ops.run_case(1, 5)[0] for _ in range(2))
    assert first is not None
    assert again is not None
    assert first.words == again.words
    assert all(torch.equal(x, again.inputs[n]) for n, x in first.inputs.items())
