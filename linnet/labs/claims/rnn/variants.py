"""The paper's three kinds of attention: models that differ only in it, and how their rows compare.

    softmax   every pair of tokens         linear   phi(q).phi(k), phi = elu + 1       lsh   Reformer, 1 to 4 rounds

Katharopoulos et al. 2020, arXiv:2006.16236, sections 4.1 to 4.3. Variants of one seed see the same batches, so they are
compared seed by seed, and the interval is over seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import exp, log
from typing import Any

from ...core.claim import Control, Number, Row, spread
from ...core.intervals import Interval, interval
from ...core.verdicts import FEWEST as FEWEST

VARIANTS = ("softmax", "linear", "lsh")
NAMES = {"softmax": "softmax", "linear": "linear", "lsh": "hashed"}  # in sentences
IN_A_BUCKET = 8  # approximate number of tokens per bucket
SPAN = 32  # tokens of its bucket that a query may attend to


def mixer_of(variant: str, length: int, rounds: int = 4) -> dict[str, Any]:
    """Return fields of ModelConfig; the number of LSH buckets depends on the length, fixed before a stream begins."""
    if variant != "lsh":
        return {"mixer": {"linear": "elu"}.get(variant, variant)}
    buckets = max(4, 2 * (length // (2 * IN_A_BUCKET)))
    return {"mixer": "lsh", "mixer_options": {"lsh": {"rounds": rounds, "n_buckets": buckets, "span": SPAN}}}


def rows_of(rows: Sequence[Row], variant: str, **fields: Any) -> list[Row]:
    """Return the rows of a variant that ended with a score."""
    wanted = {"arm": variant, **fields}
    return [
        row
        for row in rows
        if all(row["config"].get(name) == value for name, value in wanted.items()) and row["metrics"].get("loss")
    ]


def common(values: Mapping[str, Mapping[int, float]]) -> int:
    """Return how many seeds all variants share."""
    return len(set.intersection(*(set(of) for of in values.values()))) if values else 0


def ratio(above: Mapping[int, float], below: Mapping[int, float]) -> Interval:
    """Return the ratio of two variants over the seeds that both have."""
    return geometric([above[seed] / below[seed] for seed in sorted(set(above) & set(below))])


def geometric(values: Sequence[float]) -> Interval:
    """Return the geometric mean of positive values, with the t interval of their logarithms."""
    logs = interval([log(value) for value in values])
    return Interval(exp(logs.mean), exp(logs.low), exp(logs.high), logs.seeds)


def ratio_number(what: str, paper: str | None, above: Mapping[int, float], below: Mapping[int, float]) -> Number:
    return spread(what, paper, ratio(above, below))


def share_number(what: str, paper: str | None, shares: Mapping[int, float]) -> Number:
    """Return the mean of shares in per cent; its interval is cut at 0 and 100."""
    percent = interval([100 * share for share in shares.values()])
    return spread(what, paper, percent._replace(low=max(0.0, percent.low), high=min(100.0, percent.high)), unit="%")


def at_most(who: str, score: float, most: float, says: str) -> Control:
    """Return the control that a baseline learned its task, by a score that falls while it learns.

    says: "needs {} bits per value"
    """
    detail = f"{who} {says.format(f'{score:.3g}')}; {most:.3g} or less is accepted"
    return Control(f"{who} learned the task", score <= most, detail, f"{who} did not learn")


def curves_of(rows: Sequence[Row]) -> list[Sequence[Sequence[float]]]:
    """Return the curve of every run."""
    return [row["metrics"]["curve"] for row in rows]


def scope_of(what: str, width: int, layers: int, steps: int, seeds: int) -> str:
    """Return the scope of a comparison: "32 tokens, d = 64, 2 layers, 800 steps, 3 seeds"."""
    deep = f"{layers} layer{'s' if layers > 1 else ''}"
    return f"{what}, d = {width}, {deep}, {steps:,} steps, {seeds} seeds"


def mean_curve(
    rows: Sequence[Row], column: int = 1, over: Callable[[Sequence[float]], Interval] = interval
) -> list[list[float]]:
    """Return [step, mean, low, high] over the seeds, at the steps that all of them have."""
    curves = [{point[0]: point[column] for point in row["metrics"]["curve"]} for row in rows]
    steps = sorted(set.intersection(*map(set, curves))) if curves else []
    means = [(step, over([curve[step] for curve in curves])) for step in steps]
    return [[step, one.mean, one.low, one.high] for step, one in means]
