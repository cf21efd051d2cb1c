"""Noise: short names there and back, samples from the distribution they name, quadrature of its moments."""

from __future__ import annotations

import pytest
import torch

from linnet.labs.icl.noise import PAPER_NOISE, Noise

EXACT = {"rtol": 1e-12, "atol": 1e-12}
ERRORS = 4  # standard errors that a mean of samples may be off


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(
    ("text", "noise"),
    [
        ("U5", Noise("uniform", (5.0,))),
        (" u0.5 ", Noise("uniform", (0.5,))),
        ("1,3", Noise("categorical", (1.0, 3.0))),
        ("{1, 3, 5}", Noise("categorical", (1.0, 3.0, 5.0))),
        ("=2", Noise("fixed", (2.0,))),
        ("U0", Noise("uniform", (0.0,))),
    ],
)
def test_a_short_name_is_a_distribution(text: str, noise: Noise) -> None:
    assert Noise.parse(text) == noise


@pytest.mark.parametrize("name", ["U5", "U1.23456789", "{1,3}", "{0.1}", "=2", "=1e-07"])
def test_names_come_back_as_they_were(name: str) -> None:
    noise = Noise.parse(name)
    assert noise.name == name
    assert Noise.parse(noise.name) == noise


def test_the_paper_has_ten_problems() -> None:
    assert [noise.name for noise in PAPER_NOISE] == [*(f"U{top}" for top in range(8)), "{1,3}", "{1,3,5}"]


@pytest.mark.parametrize(("name", "mean_square"), [("U5", 25 / 3), ("{1,3}", 5.0), ("{1,3,5}", 35 / 3), ("=2", 4.0)])
def test_samples_follow_the_distribution(name: str, mean_square: float) -> None:
    noise = Noise.parse(name)
    sigma = noise.sample(100_000, generator())
    squares = sigma.square()
    assert noise.mean_square == pytest.approx(mean_square, rel=1e-12)
    assert abs(float(squares.mean()) - mean_square) <= ERRORS * float(squares.std()) / 100_000**0.5
    assert float(sigma.min()) >= 0
    assert float(sigma.max()) <= noise.largest


def test_a_choice_gives_its_values_equally_often_and_nothing_else() -> None:
    values, counts = Noise.parse("1,3,5").sample(30_000, generator()).unique(return_counts=True)
    assert values.tolist() == [1.0, 3.0, 5.0]
    assert (counts - 10_000).abs().max() < ERRORS * (30_000 * 2 / 9) ** 0.5


@pytest.mark.parametrize("name", ["U5", "1,3", "=2"])
def test_same_seed_same_sigma(name: str) -> None:
    noise = Noise.parse(name)
    first, again, other = (noise.sample(64, generator(seed)) for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert torch.equal(first, other) == (noise.kind == "fixed")
    assert noise.sample(3, generator(), torch.float32).dtype == torch.float32


@pytest.mark.parametrize("noise", PAPER_NOISE, ids=lambda noise: noise.name)
def test_the_grid_has_the_moments(noise: Noise) -> None:
    sigma, weight = noise.grid()
    want = torch.tensor([1.0, noise.mean_square], dtype=torch.float64)
    torch.testing.assert_close(torch.stack([weight.sum(), weight @ sigma.square()]), want, **EXACT)
    if noise.kind == "uniform":
        assert float(weight @ sigma**4) == pytest.approx(noise.largest**4 / 5, rel=1e-12, abs=1e-12)


def test_only_a_spread_out_distribution_needs_points() -> None:
    lengths = [len(Noise.parse(name).grid(7)[0]) for name in ("U5", "U0", "=2", "1,3,5")]
    assert lengths == [7, 1, 1, 3]


@pytest.mark.parametrize("text", ["", "U", "five", "U1,2", "=1,2", "1;3", "{}"])
def test_other_names_are_refused_with_the_accepted_ones(text: str) -> None:
    with pytest.raises(ValueError, match="'U5' for uniform"):
        Noise.parse(text)


@pytest.mark.parametrize("text", ["U-1", "1,-3", "=nan", "inf"])
def test_sigma_is_a_finite_deviation_of_0_or_more(text: str) -> None:
    with pytest.raises(ValueError, match="accepted: a finite standard deviation of 0 or more"):
        Noise.parse(text)


def test_kinds_are_checked() -> None:
    with pytest.raises(ValueError, match="kind 'normal'; accepted: uniform, categorical, fixed"):
        Noise("normal", (1.0,))
    with pytest.raises(ValueError, match="categorical noise has 0 values"):
        Noise("categorical", ())
