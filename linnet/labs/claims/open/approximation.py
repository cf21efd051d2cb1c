"""T15: how fast does linear attention with random features approach softmax attention as their number grows?

    error(m) = median over queries of |o_m - o| / |o|,   o = softmax(q K^T / sqrt D) V,   o_m the same with phi
    slope    = least squares of log error on log m, m = 16 .. 1024;   Monte Carlo says -1/2

FAVOR+ (Choromanski et al. 2020, arXiv:2009.14794) estimates exp(q . k) by positive features. Random Fourier features
(Peng et al. 2021, arXiv:2103.02143) estimate exp(-|q - k|^2 / 2), which exp(|k|^2 / 2) turns into the same weights;
a sum of them can be negative. The median, because a denominator near 0 leaves a mean without a limit.
q, k = spread x N(0, 1) [N,D], v ~ N(0, 1) [N,D], in float64; features [N,m].
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ....feature_maps import Favor, RandomFourier
from ....feature_maps.random import RandomMap
from ...core.claim import (
    CONFIRMED,
    REFUTED,
    UNCLEAR,
    Chart,
    Claim,
    Config,
    Finding,
    Number,
    Row,
    Setting,
    Table,
    Unit,
    figures,
    number,
    rounded,
    unit,
    untested,
)
from ...core.intervals import Interval, interval

NAME = "approximation"
MAPS: dict[str, type[Favor] | type[RandomFourier]] = {"favor": Favor, "fourier": RandomFourier}
TITLES = {"favor": "FAVOR+", "fourier": "random Fourier"}
SIZES = [16, 32, 64, 128, 256, 512, 1024]  # what the slope is taken over
SPREADS = [1.0, 0.5]  # the first is the one the rule is about
EXPECTED, NEAR = -0.5, 0.1
ENOUGH = 3  # seeds
# budget -> seeds, tokens, the largest number of features, seconds of a unit
BUDGETS: dict[str, tuple[int, int, int, float]] = {
    "smoke": (3, 32, 1024, 0.1),
    "quick": (8, 256, 1024, 0.4),
    "hour": (16, 256, 4096, 1.2),
    "paper": (100, 1024, 16384, 30.0),
}


def units(setting: Setting) -> list[Unit]:
    seeds, tokens, largest, seconds = BUDGETS[setting.budget]
    sizes = [*SIZES]
    while sizes[-1] < largest:
        sizes.append(2 * sizes[-1])
    shape = {"experiment": NAME, "head_dim": 16, "tokens": tokens, "sizes": sizes, "spreads": SPREADS}
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


def read(rows: Sequence[Row]) -> Finding:
    if len(rows) < ENOUGH:
        return untested(f"{len(rows)} draws are there, and the rule wants {ENOUGH} or more")
    slopes = {name: slopes_of(rows, name, SPREADS[0]) for name in MAPS}
    small = {name: slopes_of(rows, name, SPREADS[1]) for name in MAPS}
    negative = {name: negative_share(rows, name, SPREADS[0]) for name in MAPS}
    measured = {name: interval(values) for name, values in slopes.items()}
    clauses = [f"{TITLES[name]}: slope {measured[name]}, negative denominators {negative[name]:.2%}" for name in MAPS]
    half = " and ".join(f"{TITLES[name]} {interval(small[name])}" for name in MAPS)
    sentence = "; ".join(clauses) + f". With queries and keys half as large the slopes are {half}"
    if measured["favor"].low > EXPECTED + NEAR:
        sentence += f". {why_flat(rows[0]['config']['head_dim'])}"
    return Finding(
        outcome_of(measured, negative),
        sentence,
        numbers_of(slopes, small, negative),
        meaning_of(rows),
        [table_of(rows)],
        [chart_of(rows, spread) for spread in SPREADS],
    )


def outcome_of(slopes: dict[str, Interval], negative: dict[str, float]) -> str:
    signs_hold = negative["favor"] == 0 and negative["fourier"] > 0
    low, high = EXPECTED - NEAR, EXPECTED + NEAR
    if not signs_hold or any(slope.high < low or slope.low > high for slope in slopes.values()):
        return REFUTED
    return CONFIRMED if all(low <= slope.low and slope.high <= high for slope in slopes.values()) else UNCLEAR


def why_flat(head_dim: int) -> str:
    """Explain why FAVOR+ does not follow the law (feature_maps/random.py has the variance of independent rows)."""
    means = [mean_growth(head_dim, spread) for spread in SPREADS]
    growth = " and ".join(
        f"{figures(mean) if isfinite(mean) else 'infinite'} at spread {spread:g}"
        for mean, spread in zip(means, SPREADS, strict=True)
    )
    return (
        "One weight of FAVOR+ has relative variance (e^z - 1) / m with z = |q + k|^2 / sqrt(D), and the mean of e^z "
        f"over queries and keys is {growth}: the larger it is, the later the law sets in"
    )


def mean_growth(head_dim: int, spread: float) -> float:
    """Return the mean of e^z, (1 - 4 spread^2 / sqrt(D))^(-D/2): z is 2 spread^2 / sqrt(D) times chi-squared_D."""
    left = 1 - 4 * spread**2 / head_dim**0.5
    return left ** (-head_dim / 2) if left > 0 else inf


def curve(row: Row, name: str, spread: float) -> dict[str, Any]:
    """Return the errors of a map at a spread in one row."""
    curves: list[dict[str, Any]] = row["metrics"]["curves"]
    return next(one for one in curves if one["map"] == name and one["spread"] == spread)


def slopes_of(rows: Sequence[Row], name: str, spread: float) -> list[float]:
    """Return the slope of each seed, over SIZES."""
    x = np.log(SIZES)
    return [float(np.polyfit(x, np.log(curve(row, name, spread)["errors"][: len(SIZES)]), 1)[0]) for row in rows]


def negative_share(rows: Sequence[Row], name: str, spread: float) -> float:
    """Return the share of all denominators, over SIZES."""
    return float(np.mean([curve(row, name, spread)["negative"][: len(SIZES)] for row in rows]))


def mean_error(rows: Sequence[Row], name: str, spread: float, place: int) -> Interval:
    return interval([curve(row, name, spread)["errors"][place] for row in rows])


def numbers_of(
    slopes: dict[str, list[float]], small: dict[str, list[float]], negative: dict[str, float]
) -> list[Number]:
    most = f"{SIZES[-1]:,}"
    expected = "-1/2 (theory)"
    lines = [
        number(f"slope of the error of {TITLES[name]} against softmax, 16 to {most} features", expected, slopes[name])
        for name in MAPS
    ]
    lines += [
        number(f"the same for {TITLES[name]}, queries and keys half as large", expected, small[name]) for name in MAPS
    ]
    signs = {"favor": "never (theory)", "fourier": "sometimes (theory)"}
    lines += [Number(f"share of negative denominators, {TITLES[n]}", signs[n], negative[n]) for n in MAPS]
    return lines


def meaning_of(rows: Sequence[Row]) -> str:
    last = len(SIZES) - 1
    full, half = (min(mean_error(rows, name, spread, last).mean for name in MAPS) for spread in SPREADS)
    text = (
        f"With {SIZES[-1]:,} features for heads of width {rows[0]['config']['head_dim']} the better of the two maps is "
        f"off by {full:.0%} of the output when queries and keys have unit spread, and by {half:.0%} when they are half "
        "as large."
    )
    if full < 2 * half:
        return text
    return (
        f"{text} Random features stand in for softmax where attention is nearly flat; where it is sharp, train a "
        "model with its own feature map rather than approximate one."
    )


def table_of(rows: Sequence[Row]) -> Table:
    head = ("features", *(f"{TITLES[name]}, spread {spread:g}" for spread in SPREADS for name in MAPS))
    lines = [
        (f"{m:,}", *(str(mean_error(rows, name, spread, place)) for spread in SPREADS for name in MAPS))
        for place, m in enumerate(rows[0]["config"]["sizes"])
    ]
    negative = [figures(negative_share(rows, name, spread)) for spread in SPREADS for name in MAPS]
    title = f"relative error of the output against softmax, mean of {len(rows)} draws and its 95 % interval"
    return Table(head, [*lines, (f"negative denominators up to {SIZES[-1]:,}", *negative)], title)


def chart_of(rows: Sequence[Row], spread: float) -> Chart:
    sizes = rows[0]["config"]["sizes"]
    series: dict[str, list[tuple[float, ...]]] = {}
    for name in MAPS:
        series[TITLES[name]] = [(m, *mean_error(rows, name, spread, i)[:3]) for i, m in enumerate(sizes)]
    end = mean_error(rows, "favor", spread, len(sizes) - 1).mean
    series["slope -1/2"] = [(m, end * (sizes[-1] / m) ** 0.5) for m in sizes]
    return Chart(
        f"Error against softmax, queries and keys of spread {spread:g}",
        "random features",
        "relative error",
        series,
        log_x=True,
        log_y=True,
        caption="The line of slope -1/2 ends where FAVOR+ does.",
    )


CLAIM = Claim(
    name=NAME,
    number="T15",
    paper="open",
    question="Can linear attention with random features stand in for softmax attention, and how many does it take?",
    statement=(
        "The error of random features falls as one over the square root of their number, whatever is approximated; "
        "FAVOR+ (Performer) never has a negative denominator, random Fourier features sometimes have. The first paper "
        "leaves the comparison open and gives no number."
    ),
    rule=(
        f"Heads of width 16, queries and keys of unit spread, {SIZES[0]} to {SIZES[-1]:,} features. Confirmed if the "
        f"interval over draws of both slopes lies within {NEAR:g} of {EXPECTED:g}, FAVOR+ has no negative denominator "
        "and random Fourier features have one; refuted if a slope's interval lies wholly outside, or the signs differ."
    ),
    units=units,
    read=read,
)
