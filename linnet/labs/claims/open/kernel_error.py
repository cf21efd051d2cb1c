"""The softmax kernel of a fixed query and key, estimated by m random features: the expected squared error by m.

    mse(m) = E (phi(q) . phi(k) / exp(q . k) - 1)^2        q, k after the map's scaling, of norm NORM

The terms of independent rows w have a known variance (Choromanski et al. 2020, lemma 2), with f / exp(q . k) =

    FAVOR+           exp(w.s - |s|^2 / 2),   s = q + k:    m mse = e^(|s|^2) - 1,   since E e^(2 w.s) = e^(2 |s|^2)
    random Fourier   exp(|d|^2 / 2) cos(w.d), d = q - k:   m mse = 4 sinh^2(|d|^2 / 2),   two features for a row

Rows that are orthogonal in blocks of D (the default of linnet) have less; blocks are independent, so m mse is again
the same for every m of whole blocks. FAVOR+ has a kurtosis of about e^(6 |s|^2): norms beyond 1 cannot be sampled.
P pairs of a query and a key, D head width:  q, k [P,D]
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, sinh
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ....feature_maps import Favor, RandomFourier
from ...core.claim import NO, Chart, Config, Row, Table, Unit, figures, rounded, unit
from ...core.intervals import Interval, interval
from ..rnn.slopes import slope
from .verdict_logic import between

KERNEL = "kernel error"
MAPS: dict[str, type[Favor] | type[RandomFourier]] = {"favor": Favor, "fourier": RandomFourier}
TITLES = {"favor": "FAVOR+", "fourier": "random Fourier"}
ROWS = {"orthogonal": True, "independent": False}
HEAD_DIM, NORM = 16, 0.7
COSINES = [-0.5, 0.0, 0.5]  # of the angle between query and key
FEATURES = [32, 64, 128, 256, 512, 1024]  # whole blocks of 16 rows, also of random Fourier features
EXPECTED, BAND = -1.0, 0.05
# budget -> seeds, draws of the largest map, seconds of a unit; smaller maps take parts of these draws
BUDGETS = {"smoke": (3, 2, 0.1), "quick": (8, 256, 1.2), "hour": (10, 256, 1.2), "paper": (20, 2048, 10.0)}


class Cell(NamedTuple):
    """A map, how its rows are drawn, and the cosine of query and key."""

    map: str
    rows: str
    cosine: float

    def __str__(self) -> str:
        return f"{TITLES[self.map]}, {self.rows} rows, cosine {self.cosine:g}"


def kernel_units(budget: str) -> list[Unit]:
    seeds, draws, seconds = BUDGETS[budget]
    shape = {"experiment": KERNEL, "head_dim": HEAD_DIM, "norm": NORM, "cosines": COSINES}
    shape |= {"features": FEATURES, "draws": draws}
    return [unit(measure_kernel, {**shape, "seed": seed}, seconds) for seed in range(seeds)]


def measure_kernel(config: Config) -> dict[str, Any]:
    """Return the mean squared relative error of every cell by number of features, over the draws of one seed."""
    generator = torch.Generator().manual_seed(config["seed"])
    curves = []
    for name in MAPS:
        for rows in ROWS:
            values = terms(name, rows, config, generator)  # [draws,P,n], n terms of a map with the most features
            wide = config["features"][-1] // values.shape[-1]  # features of a term
            errors = [squared_error(values, m // wide) for m in config["features"]]
            for place, cosine in enumerate(config["cosines"]):
                by_size = [rounded(float(error[place])) for error in errors]
                curves.append({"map": name, "rows": rows, "cosine": cosine, "errors": by_size})
    return {"curves": curves}


def squared_error(values: Tensor, count: int) -> Tensor:
    """Return [P], the mean squared error of all estimates that are means of `count` successive terms."""
    return (values.unflatten(-1, (-1, count)).mean(-1) - 1).square().mean((0, 2))


@torch.no_grad()
def terms(name: str, rows: str, config: Config, generator: torch.Generator) -> Tensor:
    """Return [draws,P,n]: terms whose mean is the estimate over its exact value, from `draws` maps."""
    most, width = config["features"][-1], config["head_dim"]
    feature_map = MAPS[name](width, num_features=most, orthogonal=ROWS[rows], generator=generator).double()
    q, k = pairs(width, config["norm"] / feature_map.scale**0.5, config["cosines"])
    exact = ((q * k).sum(-1) * feature_map.scale).exp()
    if name == "fourier":
        exact = exact / ((q.square() + k.square()).sum(-1) * feature_map.scale / 2).exp()
    drawn = []
    for _ in range(config["draws"]):
        feature_map.redraw(generator)
        products = feature_map(q) * feature_map(k)  # [P,F]
        if name == "fourier":  # the cosine and the sine of a row belong together
            products = products.unflatten(-1, (2, -1)).sum(-2)
        drawn.append(products * products.shape[-1] / exact[:, None])
    return torch.stack(drawn)


def pairs(width: int, norm: float, cosines: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Return q and k [P,D] of this norm, at these angles; the directions do not matter to maps drawn at random."""
    cosine = torch.tensor(cosines, dtype=torch.float64)
    q, k = torch.zeros(2, len(cosines), width, dtype=torch.float64)
    q[:, 0], k[:, 0], k[:, 1] = norm, norm * cosine, norm * (1 - cosine.square()).sqrt()
    return q, k


def derived(cell: Cell, norm: float) -> float:
    """Return m mse(m) of independent rows."""
    if cell.map == "favor":
        return exp(2 * norm**2 * (1 + cell.cosine)) - 1
    return 4 * sinh(norm**2 * (1 - cell.cosine)) ** 2


def errors_of(rows: Sequence[Row]) -> dict[Cell, list[list[float]]]:
    """Return cell -> errors by number of features, of every seed."""
    cells: dict[Cell, list[list[float]]] = {}
    for row in rows:
        for one in row["metrics"]["curves"]:
            cells.setdefault(Cell(one["map"], one["rows"], one["cosine"]), []).append(one["errors"])
    return cells


def slopes_of(rows: Sequence[Row]) -> dict[Cell, Interval]:
    """Return the log-log slope of the error by number of features, over the seeds."""
    features = rows[0]["config"]["features"]
    return {cell: interval([slope(features, one) for one in seeds]) for cell, seeds in errors_of(rows).items()}


def ratios_of(rows: Sequence[Row]) -> dict[Cell, Interval]:
    """Return m mse over its derived value, mean of all m, of the cells with independent rows."""
    features, norm = rows[0]["config"]["features"], rows[0]["config"]["norm"]
    return {
        cell: interval([_mean_product(features, one) / derived(cell, norm) for one in seeds])
        for cell, seeds in errors_of(rows).items()
        if not ROWS[cell.rows]
    }


def _mean_product(features: Sequence[int], errors: Sequence[float]) -> float:
    return sum(m * error for m, error in zip(features, errors, strict=True)) / len(features)


def state_of(measured: Interval) -> str:
    """Return YES, NO or OPEN: is the slope in the band?"""
    return between(measured, EXPECTED - BAND, EXPECTED + BAND)


def deciding(slopes: dict[Cell, Interval]) -> Cell:
    """Return the cell that decides: one outside the band before all others, then the one that reaches furthest."""

    def reach(cell: Cell) -> tuple[bool, float]:
        low, high = slopes[cell].low, slopes[cell].high
        return state_of(slopes[cell]) == NO, max(EXPECTED - low, high - EXPECTED)

    return max(slopes, key=reach)


def kernel_table(rows: Sequence[Row]) -> Table:
    slopes, ratios = slopes_of(rows), ratios_of(rows)
    lines = [
        (TITLES[cell.map], cell.rows, f"{cell.cosine:g}", str(slopes[cell]), str(ratios.get(cell, "-")))
        for cell in slopes
    ]
    norm = figures(rows[0]["config"]["norm"])
    title = f"expected squared error of the kernel by number of features, queries and keys of norm {norm} after scaling"
    return Table(("map", "rows", "cosine of query and key", "slope", "m times error / derived"), lines, title)


def kernel_chart(rows: Sequence[Row]) -> Chart:
    """Draw the maps as linnet draws them, with orthogonal rows, for a query and a key at right angles."""
    config, errors = rows[0]["config"], errors_of(rows)
    series: dict[str, list[tuple[float, ...]]] = {}
    for name in MAPS:
        seeds = errors[Cell(name, "orthogonal", 0.0)]
        series[TITLES[name]] = [
            (m, *interval([one[place] for one in seeds])[:3]) for place, m in enumerate(config["features"])
        ]
        bound = derived(Cell(name, "independent", 0.0), config["norm"])
        series[f"{TITLES[name]}, derived for independent rows"] = [(m, bound / m) for m in config["features"]]
    return Chart(
        "Squared error of one kernel value, query and key at right angles",
        "random features",
        "expected squared relative error",
        series,
        log_x=True,
        log_y=True,
        caption="The derived lines have slope -1. Orthogonal rows lie below them and fall at the same rate.",
    )
