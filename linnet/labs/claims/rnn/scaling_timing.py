"""Time one attention operation, forward and backward, at many lengths, and measure its memory.

    linear            linnet's linear attention (elu + 1), native where there is a library
    softmax, fused    as torch computes it now, without a T x T matrix
    softmax, matrix   as it was computed then, with the matrix of scores

Each first agrees with a float64 reference. Variants and lengths take turns, so that a busy machine slows them all down.
Batch B = max(1, tokens // T), H = 8, D = V = 64; per sample: divided by B.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ...bench import timing
from ...bench.competitors import SDPA, Competitor, ours
from ...bench.inputs import inputs
from ...bench.race import call_of, check
from ...bench.sizes import BOTH, Case
from ...core.claim import Config, rounded

LINEAR, FUSED, MATRIX = "linear", "softmax, fused", "softmax, matrix"


def race(config: Config) -> dict[str, Any]:
    """Return variant -> length -> milliseconds per sample of every round, peak bytes per sample, error."""
    measured: dict[str, dict[str, Any]] = {variant: {} for variant in config["arms"]}
    calls: dict[str, Callable[[], Any]] = {}
    for variant, lengths in config["arms"].items():
        for length in lengths:
            call, measured[variant][str(length)] = prepared(variant, length, config)
            calls[f"{variant} {length}"] = call
    seconds = timing.interleave(calls, config["rounds"])
    for variant, lengths in config["arms"].items():
        for length in lengths:
            per_sample = 1000 / batch_of(length, config)
            measured[variant][str(length)]["ms"] = [rounded(per_sample * s, 4) for s in seconds[f"{variant} {length}"]]
    return {"arms": measured, "threads": torch.get_num_threads()}


def prepared(variant: str, length: int, config: Config) -> tuple[Callable[[], Any], dict[str, Any]]:
    """Return the call to time, after it agrees with the reference, and the memory it adds."""
    batch, heads, width = batch_of(length, config), config["heads"], config["width"]
    given, one = inputs(batch, length, heads, width, width), competitor(variant)
    call = call_of(one, given, BOTH)
    checked = check(one, Case(torch.get_num_threads(), batch * heads, length, width, width), given, call)
    if checked["status"] != "ok":
        raise RuntimeError(f"{variant} at {length} tokens: {checked['reason']}")
    extra = checked["extra_bytes"]
    return call, {"bytes": None if extra is None else extra // batch, "error": float(f"{checked['error']:.2g}")}


def batch_of(length: int, config: Config) -> int:
    return max(1, int(config["tokens"]) // length)


def competitor(variant: str) -> Competitor:
    if variant == FUSED:
        return Competitor(SDPA, "", fused, kernel="softmax")
    if variant == MATRIX:
        return Competitor(MATRIX, "", matrix, kernel="softmax")
    native, torch_form = ours("elu")
    return native if native.run is not None else torch_form


def fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scaled_dot_product_attention(q, k, v, is_causal=True)


def matrix(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attend with the masked scores of all pairs, as the first implementations did; [B,H,T,D]."""
    scores = q @ k.mT / sqrt(q.shape[-1])  # [B,H,T,T]
    later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(later, float("-inf")).softmax(-1) @ v
