"""Outputs of attention with random features against softmax attention: how many features do they need?

    error(m) = median over queries of |o_m - o| / |o|,   o = softmax(q K^T / sqrt D) V,   o_m the same with phi

FAVOR+ (Choromanski et al. 2020, arXiv:2009.14794) estimates exp(q . k) by positive features. Random Fourier features
(Peng et al. 2021, arXiv:2103.02143) estimate exp(-|q - k|^2 / 2), which exp(|k|^2 / 2) turns into the same weights;
a sum of them can be negative. The median, because a denominator near 0 leaves a mean without a limit. The claim
reports it and does not judge it: the theorem is about one kernel value, and an output is a ratio of many.
q, k = spread x N(0, 1) [N,D], v ~ N(0, 1) [N,D], in float64; features [N,m].
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ....feature_maps.random import RandomMap
from ...core.claim import Chart, Config, Number, Row, Table, Unit, figures, rounded, unit
from ...core.intervals import Interval, interval, median_interval
from .kernel_error import MAPS, TITLES
from .verdict_logic import shown

ATTENTION = "approximation"
SIZES = [16, 32, 64, 128, 256, 512, 1024]  # of every budget; the larger ones go on
SPREADS = [1.0, 0.5]
CLOSE_BY = 0.1  # relative error of an output that counts as near softmax
# budget -> seeds, tokens, the largest number of features, seconds of a unit
BUDGETS: dict[str, tuple[int, int, int, float]] = {
    "smoke": (3, 32, 1024, 0.1),
    "quick": (8, 256, 1024, 0.4),
    "hour": (16, 256, 4096, 1.2),
    "paper": (100, 1024, 16384, 30.0),
}


def attention_units(budget: str) -> list[Unit]:
    seeds, tokens, largest, seconds = BUDGETS[budget]
    sizes = [*SIZES]
    while sizes[-1] < largest:
        sizes.append(2 * sizes[-1])
    shape = {"experiment": ATTENTION, "head_dim": 16, "tokens": tokens, "sizes": sizes, "spreads": SPREADS}
    return [unit(measure, {**shape, "seed": seed}, seconds) for seed in range(seeds)]


def measure(config: Config) -> dict[str, Any]:
    """Measure one draw of q, k, v and of every map: {"curves": a dict for each map and spread}."""
    generator = torch.Generator().manual_seed(config["seed"])
    shape = (3, config["tokens"], config["head_dim"])
    q, k, v = torch.randn(shape, dtype=torch.float64, generator=generator)
    curves = []
    for name in MAPS:
        for spread in config["spreads"]:
            results = [compare(name, m, config["seed"], spread * q, spread * k, v) for m in config["sizes"]]
            errors, negative = zip(*results, strict=True)
            curves.append({"map": name, "spread": spread, "errors": list(errors), "negative": list(negative)})
    return {"curves": curves}


@torch.no_grad()
def compare(name: str, m: int, seed: int, q: Tensor, k: Tensor, v: Tensor) -> tuple[float, float]:
    """Return the median relative error of the output, and the share of denominators not above 0, with m features."""
    feature_map: RandomMap = MAPS[name](q.shape[-1], num_features=m, seed=seed).double()
    exact = torch.softmax(q @ k.T * feature_map.scale, dim=-1) @ v  # [N,D]
    phi_q, phi_k = feature_map(q), feature_map(k)  # [N,m]
    if name == "fourier":
        phi_k = phi_k * (k.square().sum(-1, keepdim=True) * feature_map.scale / 2).exp()
    below = phi_q @ phi_k.sum(0)  # [N]
    out = phi_q @ (phi_k.T @ v) / below[:, None]
    error = (out - exact).norm(dim=-1) / exact.norm(dim=-1)
    return rounded(float(error.median())), rounded(float((below <= 0).double().mean()))


def curve(row: Row, name: str, spread: float) -> dict[str, Any]:
    """Return the errors of a map at a spread in one row."""
    curves: list[dict[str, Any]] = row["metrics"]["curves"]
    return next(one for one in curves if one["map"] == name and one["spread"] == spread)


def mean_error(rows: Sequence[Row], name: str, spread: float, place: int) -> Interval:
    return interval([curve(row, name, spread)["errors"][place] for row in rows])


def negative_share(rows: Sequence[Row], name: str, spread: float) -> float:
    """Return the share of all denominators, over SIZES."""
    return float(np.mean([curve(row, name, spread)["negative"][: len(SIZES)] for row in rows]))


def needed(rows: Sequence[Row], name: str, spread: float) -> Interval:
    """Return the median over draws of the fewest features measured whose error is CLOSE_BY or less; infinite if none.

    An error that rises again at a larger number counts as not yet there.
    """
    return median_interval([_first(row["config"]["sizes"], curve(row, name, spread)["errors"]) for row in rows])


def _first(sizes: Sequence[int], errors: Sequence[float]) -> float:
    above = [i for i, error in enumerate(errors) if error > CLOSE_BY]
    after = above[-1] + 1 if above else 0
    return float(sizes[after]) if after < len(sizes) else inf


def attention_numbers(rows: Sequence[Row]) -> list[Number]:
    """Return how many features outputs need, and how often a denominator is negative."""
    most = f"{rows[0]['config']['sizes'][-1]:,}"
    lines = []
    for spread in sorted(SPREADS):
        for name in MAPS:
            what = f"features until outputs are within {CLOSE_BY:.0%} of softmax, {TITLES[name]}, spread {spread:g}"
            few = needed(rows, name, spread)
            if isfinite(few.mean):
                lines.append(shown(what, few, "draws", "features"))
            else:
                lines.append(Number(f"{what}: more than {most}", None, inf))
    signs = {"favor": "never (theory)", "fourier": "sometimes (theory)"}
    spread = SPREADS[0]
    return lines + [
        Number(f"share of negative denominators, {TITLES[n]}, spread {spread:g}", signs[n],
               negative_share(rows, n, spread)) for n in MAPS
    ]  # fmt: skip


def in_practice(rows: Sequence[Row]) -> str:
    """Say how many features the better map needs at each spread."""
    most, clauses = rows[0]["config"]["sizes"][-1], []
    for spread in sorted(SPREADS):
        few, name = min((needed(rows, one, spread).mean, one) for one in MAPS)
        reached = f"{few:,.0f} features of {TITLES[name]}" if isfinite(few) else f"more than {most:,} features"
        clauses.append(f"{reached} where queries and keys have a spread of {spread:g}")
    return f"outputs of attention are within {CLOSE_BY:.0%} of softmax with {', and with '.join(clauses)}"


def mean_growth(head_dim: int, spread: float) -> float:
    """Return the mean of e^z over normal q and k, z = |q + k|^2 / sqrt(D): the relative variance of FAVOR+ plus 1.

    z is 2 spread^2 / sqrt(D) times chi-squared_D, so that it is (1 - 4 spread^2 / sqrt(D))^(-D/2), or infinite.
    """
    left = 1 - 4 * spread**2 / head_dim**0.5
    return left ** (-head_dim / 2) if left > 0 else inf


def why_many(head_dim: int) -> str:
    """Explain the numbers of features by the variance of one weight (kernel_error.py derives it)."""
    growth = {spread: mean_growth(head_dim, spread) for spread in sorted(SPREADS)}
    means = " and ".join(
        f"{figures(mean) if isfinite(mean) else 'infinite'} at spread {spread:g}" for spread, mean in growth.items()
    )
    return (
        "the relative error of one weight of FAVOR+ has variance (e^z - 1) / m with z = |q + k|^2 / sqrt(D), and the "
        f"mean of e^z over queries and keys is {means}"
    )


def attention_table(rows: Sequence[Row]) -> Table:
    head = ("features", *(f"{TITLES[name]}, spread {spread:g}" for spread in SPREADS for name in MAPS))
    lines = [
        (f"{m:,}", *(str(mean_error(rows, name, spread, place)) for spread in SPREADS for name in MAPS))
        for place, m in enumerate(rows[0]["config"]["sizes"])
    ]
    negative = [figures(negative_share(rows, name, spread)) for spread in SPREADS for name in MAPS]
    title = f"relative error of the output against softmax, mean of {len(rows)} draws and its 95 % interval"
    return Table(head, [*lines, (f"negative denominators up to {SIZES[-1]:,}", *negative)], title)


def attention_chart(rows: Sequence[Row], spread: float) -> Chart:
    sizes = rows[0]["config"]["sizes"]
    series: dict[str, list[tuple[float, ...]]] = {}
    for name in MAPS:
        series[TITLES[name]] = [(m, *mean_error(rows, name, spread, i)[:3]) for i, m in enumerate(sizes)]
    end = mean_error(rows, "favor", spread, len(sizes) - 1).mean
    series["slope -1/2"] = [(m, end * (sizes[-1] / m) ** 0.5) for m in sizes]
    return Chart(
        f"Outputs of attention against softmax, queries and keys of spread {spread:g}",
        "random features",
        "relative error",
        series,
        log_x=True,
        log_y=True,
        caption="The line of slope -1/2 ends where FAVOR+ does.",
    )
