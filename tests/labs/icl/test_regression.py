"""Noisy regression: every sequence has its own weights and sigma, its query is free of noise, seeds decide."""

from __future__ import annotations

import pytest
import torch

from linnet.labs.icl.noise import Noise
from linnet.labs.icl.regression import Regression
from linnet.regress.gram import Gram

EXACT = {"rtol": 1e-12, "atol": 1e-12}
ERRORS = 4  # standard errors that a mean of samples may be off
COUNT = 20_000


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_shapes_and_precision() -> None:
    batch = Regression(Noise.parse("U5"), d=3, n=4).sample(6, generator(), torch.float32)
    shapes = [tuple(value.shape) for value in batch]
    assert shapes == [(6, 4, 3), (6, 4), (6, 3), (6,), (6, 3), (6,)]
    assert {value.dtype for value in batch} == {torch.float32}
    assert torch.equal(batch.gram.s, Gram.of(batch.x, batch.y).s)


def test_the_query_is_free_of_noise_and_the_labels_are_not() -> None:
    batch = Regression(Noise.parse("=2")).sample(COUNT, generator())
    torch.testing.assert_close(batch.target, torch.einsum("bd,bd->b", batch.query, batch.weights), **EXACT)
    off = batch.y - torch.einsum("bnd,bd->bn", batch.x, batch.weights)
    assert abs(float(off.square().mean()) - 4) < ERRORS * 4 * (2 / off.numel()) ** 0.5


def test_sigma_is_one_deviation_for_all_labels_of_a_sequence() -> None:
    batch = Regression(Noise.parse("1,3"), n=400).sample(200, generator())
    off = batch.y - torch.einsum("bnd,bd->bn", batch.x, batch.weights)
    ratio = off.square().mean(-1) / batch.sigma.square()  # [B], 1 ± sqrt(2 / 400)
    assert (ratio - 1).abs().max() < 5 * (2 / 400) ** 0.5
    assert set(batch.sigma.tolist()) == {1.0, 3.0}


def test_without_noise_labels_are_exact() -> None:
    batch = Regression(Noise.parse("U0")).sample(100, generator())
    torch.testing.assert_close(batch.y, torch.einsum("bnd,bd->bn", batch.x, batch.weights), **EXACT)


@pytest.mark.parametrize("name", ["x", "query", "weights"])
def test_inputs_queries_and_weights_are_standard_normal(name: str) -> None:
    value = getattr(Regression(Noise.parse("U1"), d=2, n=3).sample(COUNT, generator()), name)
    rows = value.reshape(-1, 2)
    error = ERRORS / len(rows) ** 0.5
    assert rows.mean(0).abs().max() < error
    assert (rows.mT @ rows / len(rows) - torch.eye(2)).abs().max() < 2 * error


def test_inputs_queries_and_weights_are_drawn_apart() -> None:
    batch = Regression(Noise.parse("U1"), d=2, n=3).sample(COUNT, generator())
    for left, right in ((batch.query, batch.weights), (batch.x[:, 0], batch.x[:, 1]), (batch.x[:, 2], batch.query)):
        assert (left.mT @ right / COUNT).abs().max() < ERRORS / COUNT**0.5


def test_same_seed_same_sequences() -> None:
    problem = Regression(Noise.parse("U5"))
    first, again, other = (problem.sample(3, generator(seed)) for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first.x, other.x)


@pytest.mark.parametrize("sizes", [{"d": 0}, {"n": 0}, {"n": -3}, {"d": 2.5}])
def test_sizes_are_integers_of_1_or_more(sizes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="accepted: a whole number, 1 or more"):
        Regression(Noise.parse("U1"), **sizes)


def test_no_sequence_is_refused() -> None:
    with pytest.raises(ValueError, match="0 sequences were requested"):
        Regression(Noise.parse("U1")).sample(0, generator())
