"""Rows of random features with errors that a test chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from linnet.labs.claims.open.attention_error import SIZES, SPREADS
from linnet.labs.claims.open.kernel_error import COSINES, FEATURES, HEAD_DIM, MAPS, NORM, ROWS, Cell, derived
from linnet.labs.core.results import Row, make_row


def kernel_row(seed: int, slopes: Mapping[Cell, float], factor: float = 1.0) -> Row:
    """Errors on a line in logarithms, of slope -1 where `slopes` has no other; factor times the derived ones."""
    curves = []
    for name in MAPS:
        for rows in ROWS:
            for cosine in COSINES:
                start = factor * derived(Cell(name, "independent", cosine), NORM) / FEATURES[0]
                slope = slopes.get(Cell(name, rows, cosine), -1.0)
                errors = [start * (m / FEATURES[0]) ** slope for m in FEATURES]
                curves.append({"map": name, "rows": rows, "cosine": cosine, "errors": errors})
    config = {"experiment": "kernel error", "head_dim": HEAD_DIM, "norm": NORM, "features": FEATURES, "seed": seed}
    return make_row(config, {"curves": curves}, 0.1)


def attention_row(seed: int, errors: Sequence[float]) -> Row:
    """The same errors for both maps at unit spread, and a quarter of them with queries and keys half as large."""
    curves = [
        {"map": name, "spread": spread, "errors": [scale * one for one in errors], "negative": [share] * len(SIZES)}
        for name, share in zip(MAPS, (0.0, 0.1), strict=True)
        for spread, scale in zip(SPREADS, (1.0, 0.25), strict=True)
    ]
    config = {"experiment": "approximation", "head_dim": 16, "sizes": SIZES, "spreads": SPREADS, "seed": seed}
    return make_row(config, {"curves": curves}, 0.1)
