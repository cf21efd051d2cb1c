"""Generation without a cache, and what latency and throughput share: image sizes, tiny models, sums over positions.

    seconds of an image = sum over n = 1 ... N of f(n),   f the parabola through the times of three prefix lengths

A model without a cache reads its whole prefix for every value (softmax as in table 5 of arXiv:2006.16236, and LSH, the
paper's Reformer: 64 buckets, 29 or 37 tokens of a bucket). One pass over n tokens costs a + b n + c n^2, so three
lengths give f; N passes would take minutes to hours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from ....models import ImageModel
from ...bench import timing
from ...bench.decode import SIZES
from ...bench.decode_race import random_model
from ...core.claim import Config, Row, Unit, rounded, unit

EXPERIMENT = "generation by recomputing"
PRESETS = tuple(SIZES)
TITLES = {"mnist": "MNIST", "cifar10": "CIFAR-10"}
TOKENS = {name: tokens for name, (_, tokens) in SIZES.items()}
SPANS = {"mnist": 29, "cifar10": 37}  # the paper's chunks
TINY = {"d_model": 32, "n_layers": 2, "n_heads": 2, "d_ff": 64}
TINY_TOKENS = 40


def size(preset: str, smoke: bool) -> Config:
    """Return the fields of a configuration: the paper's network and image, or tiny ones."""
    return {
        "preset": preset,
        "tokens": TINY_TOKENS if smoke else TOKENS[preset],
        "changes": dict(TINY) if smoke else {},
    }


def recomputing(preset: str, mixer: str, budget: str) -> Unit:
    """Return the unit that several claims share; `mixer` is softmax, lsh-1 or lsh-4."""
    smoke = budget == "smoke"
    rounds, sizes = {"smoke": 1, "quick": 2}.get(budget, 3), size(preset, smoke)
    n = sizes["tokens"]
    longest = n // 2 if budget == "quick" and preset == "cifar10" else n  # the parabola extrapolates from there
    lengths = [longest // 8, longest // 2, longest]
    config = {"experiment": EXPERIMENT, **sizes, "mixer": mixer, "lengths": lengths, "rounds": rounds}
    layers, tokens = SIZES[preset][0], longest
    guess = 0.1 if smoke else (rounds + 1) * layers * tokens**2 * 9e-9 * (2.5 if mixer == "lsh-4" else 1.0) + 0.5
    return unit(recompute, config, guess, alone=True)


def recompute(config: Config) -> dict[str, Any]:
    """Return the seconds of one pass over each prefix length, round by round."""
    model = random_model(config["preset"], **config["changes"], **mixer_fields(config["preset"], config["mixer"]))
    passes = {str(n): torch.randint(model.levels, (1, n)) for n in config["lengths"]}
    with torch.inference_mode():
        seconds = timing.interleave({n: partial(model.read, x) for n, x in passes.items()}, config["rounds"])
    return {"seconds": {n: [*map(rounded, times)] for n, times in seconds.items()}, "threads": torch.get_num_threads()}


def mixer_fields(preset: str, mixer: str) -> dict[str, Any]:
    """Return the fields of softmax, or of lsh-R with R rounds of the paper's buckets."""
    if mixer == "softmax":
        return {"mixer": "softmax"}
    options = {"rounds": int(mixer.removeprefix("lsh-")), "n_buckets": 64, "span": SPANS[preset]}
    return {"mixer": "lsh", "mixer_options": {"lsh": options}}


def linear_model(config: Config) -> ImageModel:
    return random_model(config["preset"], **config["changes"])


def image_seconds(row: Row) -> list[float]:
    """Return the seconds of one image, for each round of a row of `recompute`."""
    tokens, by_length = row["config"]["tokens"], row["metrics"]["seconds"]
    lengths = [int(n) for n in by_length]
    positions = np.arange(1, tokens + 1)
    rounds = zip(*by_length.values(), strict=True)
    return [float(np.polyval(np.polyfit(lengths, times, 2), positions).sum()) for times in rounds]


def recomputed(rows: Sequence[Row], preset: str, mixer: str) -> Row | None:
    """Return the row of `recompute` for this model, if it exists."""
    matching = [row for row in rows if matches(row, experiment=EXPERIMENT, preset=preset, mixer=mixer)]
    return matching[0] if matching else None


def matches(row: Row, **fields: Any) -> bool:
    config: Mapping[str, Any] = row["config"]
    return all(config.get(name) == value for name, value in fields.items())


def how_measured(row: Row) -> str:
    """Return for a table what was measured and what was summed."""
    lengths = ", ".join(f"{n:,}" for n in row["config"]["lengths"])
    return f"measured at lengths {lengths}, summed over positions"
