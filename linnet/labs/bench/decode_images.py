"""Seconds per image: every value of an image is sampled from the model's output and becomes its next input.

mnist 28 x 28 = 784 tokens, cifar10 32 x 32 x 3 = 3,072, sampling included. The rows also hold what the paper reports
for its linear model on an unnamed CPU: Katharopoulos et al. 2020, arXiv:2006.16236, table 5.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from ...generate import Engine, open_engine
from ...generate.images import sample_images
from ...models import ImageModel
from . import timing
from .decode_race import EAGER, native_engine

LENGTHS = {"mnist": 784, "cifar10": 3072}
PAPER_SECONDS = {"mnist": 5.5, "cifar10": 45.1}


def images(
    name: str,
    model: ImageModel,
    *,
    threads: int,
    batch: int,
    weights: tuple[str, ...],
    rounds: int,
    length: int | None = None,
) -> dict[str, Any]:
    """Time a batch of images on each engine, in turns; `length` makes them smaller for tests."""
    torch.set_num_threads(threads)
    length = length or LENGTHS[name]
    entries: dict[str, dict[str, Any]] = {}
    calls: dict[str, Callable[[], Any]] = {}
    openers: dict[str, Callable[[], Engine]] = {
        f"linnet {kind}": partial(native_engine, model, kind, exact=False) for kind in weights
    }
    for one, opened in (openers | {EAGER: partial(open_engine, model, backend="torch")}).items():
        try:
            calls[one] = partial(sample_images, model, batch, length=length, batch=batch, engine=opened())
            entries[one] = {"status": "ok"}
        except ValueError as error:  # including BackendError
            entries[one] = {"status": "left out", "reason": str(error)}
    for one, seconds in timing.interleave(calls, rounds).items():
        entries[one] |= timing.summary(seconds) | {"seconds_per_image": min(seconds) / batch}
        entries[one]["us_per_value"] = min(seconds) / batch / length * 1e6
    row = {"preset": name, "threads": threads, "batch": batch, "tokens": length, "competitors": entries}
    return row | {"paper_seconds": PAPER_SECONDS[name]}
