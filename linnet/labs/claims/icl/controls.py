"""What every in-context verdict rests on: the paper's sizes, how many seeds there are, and four controls.

    protocol    ridge has the losses that the paper prints: we measure what the paper measures
    bounded     no loss is below that of Bayes, the best of all answers: nothing is too good to be true
    one_layer   models of one layer have the least loss that one layer can have: training ends where it should
    trained     the models that are compared are as good as the paper's

No loss is kept along a training, so `one_layer` and `trained` stand in for a test of convergence.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import hypot
from typing import NamedTuple

from ....regress.model import KINDS
from ...core.licence import Control, Regime, regime
from ...core.results import Row
from ...icl.noise import Noise
from ...icl.paper import BASELINES, EXACT, D, N, floor
from ...icl.table_compare import compare, with_paper
from ...icl.table_units import EXPERIMENT
from .chains import NAMED, PROFILE, cells, layered

APART = 3.0  # standard errors beyond which two values differ
CHANCE = 0.05  # of the cells may be worse than the paper's: twice what chance makes of equal ones
BAYES_SE = 0.0002  # of the losses of Bayes in EXACT
NOT_FINITE = {"sharp": None}
Name = tuple[str, int, str]


class Off(NamedTuple):
    """How far a loss is from what it should be, in standard errors."""

    errors: float
    which: str


def regime_of(rows: Sequence[Row], paper: str, here: str, **axes: tuple[float, float, float]) -> Regime:
    """Return the regime of rows: exactly the paper's features and examples, and axes as `licence.regime` takes them."""
    d, n = furthest(rows, "d", D), furthest(rows, "n", N)
    axes |= {"features": (d, D, D), "examples": (n, N, N)}
    return regime(f"d = {D}, n = {N}, {paper}", f"d = {d}, n = {n}, {here}", factor=1.0, **axes)


def furthest(rows: Sequence[Row], field: str, wanted: int) -> int:
    """Return the size among the rows that is furthest from the paper's."""
    sizes = [int(row["config"][field]) for row in rows if field in row["config"]]
    return max(sizes, key=lambda size: abs(size - wanted), default=wanted)


def sequences_of(rows: Sequence[Row]) -> int:
    """Return the fewest test sequences of a loss."""
    return int(min(row["config"]["sequences"] for row in rows if row["config"]["experiment"] != PROFILE))


def trainings(rows: Sequence[Row]) -> dict[Name, set[int]]:
    """Return (kind, layers, noise) -> the seeds of the models trained for a cell of the table."""
    seeds: dict[Name, set[int]] = {}
    for row in rows:
        config = row["config"]
        if config["experiment"] == EXPERIMENT and config["kind"] in KINDS:
            seeds.setdefault((config["kind"], config["layers"], config["noise"]), set()).add(config["seed"])
    return seeds


def seeds_of(rows: Sequence[Row]) -> int:
    """Return how many trainings there are of the model that has the fewest."""
    return min(map(len, trainings(rows).values()), default=0)


def counted(count: int, of: str = "seeds") -> str:
    """Return "1 seed" or "5 seeds"."""
    return f"{count:,} {of if count != 1 else of.rstrip('s')}"


def protocol(rows: Sequence[Row]) -> Control:
    """Return the control that the ridge baselines among the rows have the losses that the paper prints."""
    offs = []
    for (kind, layers, noise), metrics in cells(rows).items():
        z, _ = compare(metrics, BASELINES.get((kind, noise)))
        if z is not None and not layers:
            offs.append(Off(abs(z), f"{NAMED[kind]} on {noise}"))
    what = "ridge losses are those printed"
    return _within("ridge loses here what the paper prints", offs, what, "ridge differs from the paper")


def bounded(rows: Sequence[Row]) -> Control:
    """Return the control that no loss is below that of Bayes."""
    offs = []
    for (kind, layers, noise), metrics in cells(rows).items():
        below = max(EXACT[noise].bayes - metrics["sharp"], 0.0)
        offs.append(Off(below / hypot(metrics["sharp_se"], BAYES_SE), f"{named(kind, layers)} on {noise}"))
    what = "losses are not below that of Bayes"
    return _within("nothing is better than Bayes", offs, what, "losses below the possible")


def one_layer(rows: Sequence[Row]) -> Control:
    """Return the control that the models of one layer have the least loss that one layer can have."""
    offs = []
    for (kind, layers, noise), metrics in cells(rows).items():
        least = floor(kind, 1, Noise.parse(noise))
        if layers == 1 and least is not None:
            offs.append(Off(abs(metrics["sharp"] - least[0]) / metrics["sharp_se"], f"{NAMED[kind]} on {noise}"))
    what = "models of one layer have the least loss that one can have"
    return _within("one layer reaches its least loss", offs, what, "one layer did not learn")


def trained(rows: Sequence[Row], wanted: Collection[Name] | None = None) -> Control:
    """Return the control that models are as good as the paper's. wanted: kind, layers and noise; all by default."""
    finite, judged = cells(rows), list(trainings(rows)) if wanted is None else list(wanted)
    worse = [
        f"{named(kind, layers)} on {noise}"
        for kind, layers, noise in judged
        if with_paper(kind, layers, noise, finite.get((kind, layers, noise), NOT_FINITE))["mark"] == "worse"
    ]
    detail = (
        f"{len(worse)} of the {len(judged)} models compared here are worse than the paper's beyond two standard "
        f"errors; {CHANCE:.0%} are accepted" + (f": {', '.join(worse[:4])}" if worse else "")
    )
    passed = bool(judged) and len(worse) <= CHANCE * len(judged)
    return Control("the models are as good as the paper's", passed, detail, "models worse than the paper's")


def named(kind: str, layers: int) -> str:
    """Return "DIAG with 3 layers", or the name of a baseline."""
    return f"{NAMED[kind]} with {layered(layers)}" if layers else NAMED[kind]


def _within(name: str, offs: Sequence[Off], what: str, short: str) -> Control:
    """Return the control that none of `offs` is more than APART standard errors. what: "losses are those printed"."""
    if not offs:
        return Control(name, False, f"no row to tell whether {what}", short)
    widest, many = max(offs), sum(one.errors <= APART for one in offs)
    detail = f"{many} of {len(offs)} {what}, within {APART:g} standard errors"
    if widest.errors:
        detail += f"; the farthest is {widest.which}, off by {widest.errors:.1f}"
    return Control(name, many == len(offs), detail, short)
