"""Compare our rows with the paper's Table 1: the best of the seeds, as in the paper, and whether it is better or worse.

    z = (ours - paper) / sqrt(se² + query_se² + h²/3)          better  z < -2,   equal  -2 <= z <= 2,   worse  z > 2

ours, se    mean of ½|w - w_oracle|² over the test sequences, and its standard error (`sharp` of labs.icl.evaluate)
query_se    the paper's error, which it does not give: the standard error of our model's adjusted loss if measured as
            in the paper, with one random query for each of 100,000 sequences
h           half a unit of the last digit the paper prints; rounding adds an error uniform on (-h, h), variance h²/3

A few exploding sequences can make the error so large that no difference is significant. So a cell above the paper that
is equal only because the error exceeds half the paper's value is called unclear instead. A cell that would be worse
than a value that no model can have in expectation is called impossible.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import floor, inf, log10, sqrt
from typing import Any

from ...json_file import finite_or_none
from ...regress.model import KINDS
from ..core.results import Row
from . import paper
from .noise import Noise

SEQUENCES = 100_000  # of the paper's evaluation
Z = 2.0
ROUNDING = 1e-20  # of a loss in 64 bits
SURE = 0.5  # of the paper's value: with a larger error there is no comparison
MARKS = ("better", "equal", "worse", "unclear", "impossible")
FORMAT = 1  # of the document


def document(rows: list[Row], minutes: float) -> dict[str, Any]:
    """Return the results of the rows as JSON values."""
    last = rows[-1]
    about = {name: last[name] for name in ("commit", "versions", "machine")}
    models = [row for row in rows if row["config"]["kind"] in KINDS]
    recipe = models[0]["config"]["recipe"] if models else None
    content = {"format": FORMAT, **about, "recipe": recipe, "sequences": last["config"]["sequences"]}
    content |= {"minutes": round(minutes, 2), "commits": sorted({row["commit"] or "none" for row in rows})}
    content["cells"] = [_cell(group) for group in _grouped(models)]
    content["baselines"] = [_baseline(row) for row in rows if row["config"]["kind"] not in KINDS]
    content["counts"] = counts(content["cells"])
    return dict(finite_or_none(content))


def counts(cells: Iterable[dict[str, Any]]) -> dict[str, int]:
    """Return how many cells have each mark."""
    marks = [cell["mark"] for cell in cells]
    return {mark: marks.count(mark) for mark in MARKS}


def compare(metrics: dict[str, Any], printed: float | None) -> tuple[float | None, str | None]:
    """Return (z, one of MARKS) of a row's metrics against the paper's value; (None, None) if there is none."""
    if printed is None:
        return None, None
    if metrics["sharp"] is None:  # not finite
        return inf, "worse"
    if abs(metrics["sharp"] - printed) < ROUNDING:  # without noise the baselines are exact, and have no error
        return 0.0, "equal"
    query_se = metrics["query_se"] * sqrt(metrics["count"] / SEQUENCES)
    error = sqrt(metrics["sharp_se"] ** 2 + query_se**2 + half_unit(printed) ** 2 / 3)
    z = (metrics["sharp"] - printed) / error
    if abs(z) > Z:
        return z, "better" if z < 0 else "worse"
    return z, "unclear" if z > 0 and error > SURE * printed else "equal"


def with_paper(kind: str, layers: int, noise: str, metrics: dict[str, Any]) -> dict[str, Any]:
    """Return the paper's value of a model, how ours compares, and why its value is impossible, if it is."""
    printed = paper.TABLE1.get((kind, layers, noise))
    z, mark = compare(metrics, printed)
    reason = paper.impossible(kind, layers, Noise.parse(noise))
    mark = "impossible" if reason and mark in ("worse", "unclear") else mark
    return {"paper": printed, "z": z, "mark": mark, "reason": reason}


def half_unit(printed: float) -> float:
    """Return half a unit of the last digit: three decimals, or three digits of a number below 0.001."""
    return 0.5e-3 if printed == 0 or printed >= 1e-3 else 0.5 * 10.0 ** (floor(log10(printed)) - 2)


def _grouped(rows: Iterable[Row]) -> list[list[Row]]:
    """Group rows of the same model, depth and noise, in the order of the paper's table."""
    groups: dict[tuple[int, int, str], list[Row]] = {}
    for row in rows:
        config = row["config"]
        groups.setdefault((config["layers"], KINDS.index(config["kind"]), config["noise"]), []).append(row)
    return [groups[key] for key in sorted(groups, key=lambda key: (key[0], -key[1]))]


def _cell(seeds: list[Row]) -> dict[str, Any]:
    best = min(seeds, key=_ours)
    config = best["config"]
    kind, layers, noise = config["kind"], config["layers"], config["noise"]
    entry = {"model": kind, "layers": layers, "noise": noise, **with_paper(kind, layers, noise, best["metrics"])}
    each = [{"seed": row["seed"], "seconds": row["seconds"], **row["metrics"]} for row in seeds]
    return entry | {"seed": best["seed"], **best["metrics"], "seconds": best["seconds"], "seeds": each}


def _baseline(row: Row) -> dict[str, Any]:
    name, noise = row["config"]["kind"], row["config"]["noise"]
    printed = paper.BASELINES.get((name, noise))
    z, mark = compare(row["metrics"], printed)
    entry = {"model": name, "noise": noise, "paper": printed, "z": z, "mark": mark, "info": row["info"]}
    return entry | row["metrics"] | {"seconds": row["seconds"]}


def _ours(row: Row) -> float:
    value = row["metrics"]["sharp"]
    return inf if value is None else float(value)
