"""Sampling: filters against an obvious reference, draws against the probabilities, rows against their neighbours."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
import torch

from linnet.generate import Sampling
from linnet.generate.sampling import Draws, best, choose, log_softmax, weights

CLOSE = 1e-12  # float64
CLOSE_32 = 2e-6  # float32, absolute, of log-probabilities down to -20
SIGMAS = 5.0  # of chi-square above its mean: about one false alarm in a million

SETTINGS = [
    {},
    {"temperature": 0.3},
    {"temperature": 3.0},
    {"top_k": 1},
    {"top_k": 4},
    {"top_k": 1000},
    {"top_p": 0.05},
    {"top_p": 0.7},
    {"top_p": 1.0},
    {"min_p": 0.0},
    {"min_p": 0.3},
    {"min_p": 1.0},
    {"repetition_penalty": 1.7},
    {"repetition_penalty": 0.5},
    {"temperature": 0.7, "top_k": 6, "top_p": 0.8, "min_p": 0.1, "repetition_penalty": 1.3},
    {"temperature": 2.0, "top_k": 3, "top_p": 0.9},
    {"temperature": 2.0, "top_p": 0.6, "min_p": 0.5},
]


def reference(logits: list[float], seen: set[int], how: Sampling) -> list[float]:
    """Apply the filters one after another to plain probabilities."""
    x = list(logits)
    for i in seen:
        x[i] = x[i] / how.repetition_penalty if x[i] > 0 else x[i] * how.repetition_penalty
    p = normalised([math.exp((v - max(x)) / how.temperature) for v in x])
    if how.top_k is not None:
        edge = sorted(p)[-min(how.top_k, len(p))]
        p = normalised([v if v >= edge else 0.0 for v in p])
    if how.top_p is not None and how.top_p < 1:
        total, edge = 0.0, 0.0
        for v in sorted(p, reverse=True):
            if total < how.top_p:
                edge = v
            total += v
        p = normalised([v if v >= edge else 0.0 for v in p])
    if how.min_p is not None:
        p = normalised([v if v >= how.min_p * max(p) else 0.0 for v in p])
    return p


def normalised(p: list[float]) -> list[float]:
    return [v / sum(p) for v in p]


def logits(rows: int, n: int = 12, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=(rows, n)) * 2


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_draws_follow_the_reference(settings: dict[str, Any]) -> None:
    how, rows = Sampling(seed=3, **settings), 4000
    x, seen = logits(1)[0], {0, 3, 5}
    p = np.array(reference(x.tolist(), seen, how))
    mask = np.isin(np.arange(12), list(seen))
    many = np.broadcast_to(x, (rows, 12))
    chosen = choose(many, how, [Draws(how.seed, i) for i in range(rows)], np.broadcast_to(mask, (rows, 12)))
    counts = np.bincount(chosen, minlength=12)
    assert (counts[p == 0] == 0).all()
    wanted = p[p > 0] * rows
    freedom = max(1, len(wanted) - 1)
    chi = ((counts[p > 0] - wanted) ** 2 / wanted).sum()
    assert chi < freedom + SIGMAS * math.sqrt(2 * freedom), (counts, wanted)


@pytest.mark.parametrize("settings", [s for s in SETTINGS if "repetition_penalty" not in s], ids=str)
@pytest.mark.parametrize("ties", [False, True])
def test_weights_are_those_of_the_reference(settings: dict[str, Any], ties: bool) -> None:
    how = Sampling(**settings)
    x = logits(20)
    x = np.round(x) if ties else x
    w = weights(x - x.max(axis=1, keepdims=True), how)
    for row, given in zip(w, x, strict=True):
        np.testing.assert_allclose(row / row.sum(), reference(given.tolist(), set(), how), atol=CLOSE)


def test_temperature_zero_takes_the_largest_and_the_first_among_equals() -> None:
    x = torch.tensor([[0.0, 2.0, 1.0], [3.0, 1.0, 3.0]])
    assert choose(x, Sampling(temperature=0), []) == [1, 0]


def test_penalty_changes_what_greedy_says() -> None:
    x, seen = np.array([[2.0, 1.5, -1.0]]), np.array([[True, False, False]])
    how = Sampling(temperature=0, repetition_penalty=2.0)
    assert choose(x, how, [], seen) == [1]
    assert choose(x, how, []) == [0]
    low, all_seen = np.array([[-1.0, -1.5]]), np.array([[True, False]])
    assert choose(low, how, [], all_seen) == [1]  # a negative logit is multiplied


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_row_does_not_depend_on_its_neighbours(settings: dict[str, Any]) -> None:
    how, x = Sampling(seed=1, **settings), logits(40)
    together = choose(x, how, [Draws(1, i) for i in range(40)])
    some = [7, 3, 31]
    assert choose(x[some], how, [Draws(1, i) for i in some]) == [together[i] for i in some]


def test_draws_are_a_function_of_seed_row_and_index() -> None:
    draws = Draws(5, 2)
    first = [draws.next() for _ in range(4)]
    again = Draws(5, 2)
    assert first == [again.next() for _ in range(4)]
    assert len({*first, Draws(6, 2).next(), Draws(5, 3).next(), Draws(2, 5).next()}) == 7
    assert all(0 <= u < 1 for u in first)
    assert Draws(2**64 - 1, 10**6).next() != Draws(2**64 - 1, 0).next()


def test_draws_stay_what_they_are() -> None:
    """A text drawn with a seed can be drawn again with any version."""
    draws = Draws(0, 0)
    assert [round(draws.next(), 12) for _ in range(3)] == [0.011546754286, 0.241549196563, 0.111425855515]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_dtype_is_widened(dtype: torch.dtype) -> None:
    x = torch.from_numpy(logits(30)).to(dtype)
    draws = [Draws(0, i) for i in range(30)]
    assert choose(x, Sampling(), draws) == choose(x.double(), Sampling(), [Draws(0, i) for i in range(30)])


@pytest.mark.parametrize("temperature", [1e-300, 1e-20, 1e-5])
def test_a_tiny_temperature_is_nearly_greedy(temperature: float) -> None:
    x = logits(5).astype(np.float32)
    assert choose(x, Sampling(temperature=temperature), [Draws(0, i) for i in range(5)]) == x.argmax(1).tolist()


def test_what_cannot_be_is_never_chosen() -> None:
    x = np.full((200, 6), -np.inf)
    x[:, 2] = x[:, 4] = 0.0
    assert set(choose(x, Sampling(temperature=50.0), [Draws(0, i) for i in range(200)])) == {2, 4}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(("bad", "row"), [(math.nan, 1), (math.inf, 2), (-math.inf, 0)])
def test_logits_that_are_no_numbers_are_refused(temperature: float, bad: float, row: int) -> None:
    x = logits(3)
    x[row] = bad if bad < 0 else x[row]
    x[row, 4] = bad
    with pytest.raises(ValueError, match=f"largest logit of row {row} is -?(nan|inf), not a finite number"):
        choose(x, Sampling(temperature=temperature), [Draws(0, i) for i in range(3)])


def test_log_softmax_is_that_of_torch() -> None:
    x = torch.from_numpy(logits(4, 300)) * 5
    wanted = x.log_softmax(1).numpy()
    np.testing.assert_allclose(log_softmax(x), wanted, atol=CLOSE)
    np.testing.assert_allclose(log_softmax(x.float()), wanted, atol=CLOSE_32)


@pytest.mark.parametrize("count", [1, 3, 12, 20])
def test_best_are_the_largest_in_order(count: int) -> None:
    for row in np.round(logits(20)):
        ordered = sorted(range(12), key=lambda i: (-row[i], i))
        assert best(row, count).tolist() == ordered[:count]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"temperature": -0.1}, "temperature is -0.1; accepted: a number 0 "),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"temperature": math.inf}, "temperature is inf"),
        ({"temperature": "hot"}, "temperature is 'hot'"),
        ({"top_p": 0}, "top_p is 0; accepted: a number above 0 and up to 1"),
        ({"top_p": 1.01}, "top_p is 1.01"),
        ({"min_p": -0.1}, "min_p is -0.1; accepted: a number from 0 to 1"),
        ({"min_p": 1.1}, "min_p is 1.1"),
        ({"top_k": 0}, "top_k is 0; accepted: a whole number, 1 or more"),
        ({"top_k": 2.5}, "top_k is 2.5"),
        ({"top_k": True}, "top_k is True"),
        ({"repetition_penalty": 0}, "repetition_penalty is 0; accepted: a number above 0"),
        ({"seed": -1}, "seed is -1; accepted: a whole number from 0"),
        ({"seed": 2**64}, "seed is 18446744073709551616"),
    ],
    ids=str,
)
def test_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        Sampling(**settings)
