"""The error of a kernel value: the derived variance by other means, what a unit measures, and which case decides."""

from __future__ import annotations

import pytest
import torch

from linnet.feature_maps import Favor, RandomFourier
from linnet.labs.claims.open.kernel_error import (
    COSINES,
    FEATURES,
    HEAD_DIM,
    MAPS,
    NORM,
    ROWS,
    Cell,
    deciding,
    derived,
    kernel_units,
    measure_kernel,
    pairs,
    squared_error,
    terms,
)
from linnet.labs.core.claim import Config
from linnet.labs.core.intervals import Interval

CELLS = [Cell(name, "independent", cosine) for name in MAPS for cosine in COSINES]
CONFIG: Config = kernel_units("smoke")[0].configs[0]


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_the_derived_variance_by_integration(cell: Cell) -> None:
    """A term depends on one normal number alone, so that its moments are integrals over the line."""
    q, k = (x[0] for x in pairs(HEAD_DIM, NORM, [cell.cosine]))
    g = torch.linspace(-12, 12, 200_001, dtype=torch.float64)
    weight = torch.exp(-g.square() / 2) / (2 * torch.pi) ** 0.5
    norms = (q.square().sum() + k.square().sum()) / 2
    if cell.map == "favor":
        term = torch.exp(g * (q + k).norm() - norms)
    else:
        term = torch.exp(norms) * torch.cos(g * (q - k).norm())
    exact = torch.exp(q @ k)
    assert float(torch.trapezoid(weight * term, g)) == pytest.approx(float(exact))
    variance = torch.trapezoid(weight * (term / exact - 1).square(), g)
    per_row = 1 if cell.map == "favor" else 2  # features
    assert per_row * float(variance) == pytest.approx(derived(cell, NORM))


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("name", MAPS)
def test_terms_are_those_of_the_map(name: str, rows: str) -> None:
    """The mean of all terms of a draw is the map's own estimate over its own closed form."""
    values = terms(name, rows, {**CONFIG, "draws": 1}, torch.Generator().manual_seed(3))
    generator = torch.Generator().manual_seed(3)
    one = (Favor if name == "favor" else RandomFourier)(
        HEAD_DIM, num_features=FEATURES[-1], orthogonal=ROWS[rows], generator=generator
    ).double()
    one.redraw(generator)
    q, k = pairs(HEAD_DIM, NORM / one.scale**0.5, COSINES)
    estimate = (one(q) * one(k)).sum(-1) / one.kernel(q, k)
    torch.testing.assert_close(values[0].mean(-1), estimate)


def test_pairs_have_their_norms_and_angles() -> None:
    q, k = pairs(HEAD_DIM, NORM, COSINES)
    for x in (q, k):
        torch.testing.assert_close(x.norm(dim=-1), torch.full((3,), NORM, dtype=torch.float64))
    assert ((q * k).sum(-1) / NORM**2).tolist() == pytest.approx(COSINES)


def test_the_error_is_of_means_of_successive_terms() -> None:
    values = torch.tensor([[[0.0, 2.0, 3.0, 5.0]]])  # one draw, one pair, four terms around 1
    assert squared_error(values, 1).tolist() == [(1 + 1 + 4 + 16) / 4]
    assert squared_error(values, 2).tolist() == [(0 + 9) / 2]
    assert squared_error(values, 4).tolist() == [1.5**2]


def test_orthogonal_rows_lower_the_error() -> None:
    curves = measure_kernel({**CONFIG, "draws": 16})["curves"]
    small = {Cell(one["map"], one["rows"], one["cosine"]): one["errors"][0] for one in curves}
    assert len(small) == 12
    for cosine in COSINES:  # of random Fourier features to a fifth, so that 16 draws show it
        assert small[Cell("fourier", "orthogonal", cosine)] < small[Cell("fourier", "independent", cosine)] / 2


def test_the_seed_decides_what_is_measured() -> None:
    assert measure_kernel(CONFIG) == measure_kernel(CONFIG)
    assert measure_kernel(CONFIG) != measure_kernel({**CONFIG, "seed": 9})


def test_a_case_outside_the_band_decides_before_one_that_reaches_further() -> None:
    near, wide, outside = (
        Interval(-1.0, -1.01, -0.99, 5),
        Interval(-1.0, -1.3, -0.7, 5),
        Interval(-0.9, -0.91, -0.89, 5),
    )
    cells = dict(zip(CELLS, (near, wide, outside), strict=False))
    assert deciding(cells) == CELLS[2]
    del cells[CELLS[2]]
    assert deciding(cells) == CELLS[1]
