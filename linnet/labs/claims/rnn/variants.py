"""The paper's three kinds of attention: models that differ only in it, and how their rows compare.

    softmax   every pair of tokens         linear   phi(q).phi(k), phi = elu + 1       lsh   Reformer, 1 to 4 rounds

Katharopoulos et al. 2020, arXiv:2006.16236, sections 4.1 to 4.3. Variants of one seed see the same batches, so a ratio
is taken seed by seed and its interval is over seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...core.claim import Number, Row, spread
from ...core.intervals import Interval, interval
from ...core.verdicts import FEWEST as FEWEST

VARIANTS = ("softmax", "linear", "lsh")
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
    return interval([above[seed] / below[seed] for seed in sorted(set(above) & set(below))])


def ratio_number(what: str, paper: str | None, above: Mapping[int, float], below: Mapping[int, float]) -> Number:
    return spread(what, paper, ratio(above, below))


def mean_curve(rows: Sequence[Row], column: int = 1) -> list[list[float]]:
    """Return [step, mean, low, high] over the seeds, at the steps that all of them have."""
    curves = [{point[0]: point[column] for point in row["metrics"]["curve"]} for row in rows]
    steps = sorted(set.intersection(*map(set, curves))) if curves else []
    means = [(step, interval([curve[step] for curve in curves])) for step in steps]
    return [[step, one.mean, one.low, one.high] for step, one in means]
