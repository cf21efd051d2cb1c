"""Sampling: logits become a token. Filters narrow the distribution, one random number per row picks from what is left.

    penalty      x_i / r if x_i > 0 else x_i r, for tokens seen     Keskar et al. 2019 (CTRL), arXiv:1909.05858
    temperature  x / t;  t = 0 takes the largest                    then p = softmax(x)
    top-k        the k largest                                      Fan et al. 2018, arXiv:1805.04833
    top-p        the fewest largest with sum(p) >= top_p            Holtzman et al. 2019, arXiv:1904.09751
    min-p        p_i >= min_p max(p)                                Nguyen et al. 2024, arXiv:2407.01082

In this order, each on what the one before left. Tokens that tie at the edge of top-k or top-p all stay. The random
number is a function of the seed, the row and the token's index alone, so a row does not depend on its neighbours.
Float32 or wider throughout. B rows, N vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

Array = np.ndarray[Any, Any]
TINY = 1e-12  # temperatures below it act as it does: logits of float32 that differ are far apart, and none overflows


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How to choose a token; the defaults draw from the model's own distribution."""

    temperature: float = 1.0  # 0: the most likely token, no draw
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0  # above 1: tokens of the prompt and the output so far become less likely
    seed: int = 0

    def __post_init__(self) -> None:
        _check("temperature", self.temperature, lambda t: 0 <= t < math.inf, "0 (the most likely token) or above")
        _check("repetition_penalty", self.repetition_penalty, lambda r: 0 < r < math.inf, "above 0; 1 changes nothing")
        if self.top_p is not None:
            _check("top_p", self.top_p, lambda p: 0 < p <= 1, "above 0 and up to 1; leave it out to keep all")
        if self.min_p is not None:
            _check("min_p", self.min_p, lambda p: 0 <= p <= 1, "from 0 to 1; leave it out to keep all")
        if self.top_k is not None and not (_whole(self.top_k) and self.top_k >= 1):
            raise ValueError(f"top_k is {self.top_k!r}; accepted: a whole number, 1 or more; leave it out to keep all")
        if not (_whole(self.seed) and 0 <= self.seed < 2**64):
            raise ValueError(f"seed is {self.seed!r}; accepted: a whole number from 0 to 2**64 - 1")


class Draws:
    """The random numbers of one row, in [0, 1): the i-th depends on the seed, the row and i."""

    def __init__(self, seed: int, row: int) -> None:
        self._bits = np.random.Philox(key=seed + (row << 64))

    def next(self) -> float:
        return (self._bits.random_raw() >> 11) * 2.0**-53


def choose(
    logits: Tensor | Array, sampling: Sampling, draws: Sequence[Draws], seen: Array | None = None
) -> list[int]:  # [B]
    """A token for each row of logits [B,N]; `seen` [B,N] bool: tokens that the repetition penalty is for."""
    x = numbers(logits)
    if sampling.repetition_penalty != 1.0 and seen is not None:
        x = np.where(seen, np.where(x > 0, x / sampling.repetition_penalty, x * sampling.repetition_penalty), x)
    top = x.max(axis=1, keepdims=True)
    if not math.isfinite(top.sum()):  # a NaN counts as the largest
        _refuse(top)
    if sampling.temperature == 0:
        return x.argmax(axis=1).tolist()
    total = weights(x - top, sampling).cumsum(axis=1, dtype=np.float64)  # [B,N]
    return [int(row.searchsorted(draw.next() * row[-1], "right")) for row, draw in zip(total, draws, strict=True)]


def weights(x: Array, sampling: Sampling) -> Array:
    """Unnormalised probabilities [B,N] after the filters, 0 for what was filtered out; the largest of x [B,N] is 0."""
    n = x.shape[1]
    if sampling.temperature != 1.0:
        x = x / max(sampling.temperature, TINY)
    if sampling.top_k is not None and sampling.top_k < n:
        edge = np.partition(x, n - sampling.top_k, axis=1)[:, n - sampling.top_k, None]
        x = np.where(x >= edge, x, -np.inf)
    w = np.exp(x)
    if sampling.top_p is not None and sampling.top_p < 1:
        w *= w >= _nucleus_edge(w, sampling.top_p)
    if sampling.min_p is not None:
        w *= w >= sampling.min_p  # the largest is 1
    return w


def log_softmax(logits: Tensor | Array) -> Array:
    """What the model itself says: log-probabilities [B,N] of its logits, before any filter."""
    x = numbers(logits)
    x = x - x.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True, dtype=np.float64))


def best(x: Array, count: int) -> Array:
    """Where the `count` (1 or more) largest of x [M] are, largest first; the lower index first among equals."""
    near = np.arange(len(x))
    if count < len(x):
        near = np.flatnonzero(x >= np.partition(x, len(x) - count)[len(x) - count])
    return near[np.argsort(-x[near], kind="stable")][:count]


def numbers(logits: Tensor | Array) -> Array:
    """Logits as an array in float32, or float64 if they are."""
    if isinstance(logits, Tensor):
        wide = logits if logits.dtype in (torch.float32, torch.float64) else logits.float()
        return wide.numpy() if wide.is_inference() and wide.is_cpu else wide.detach().cpu().numpy()
    return logits if logits.dtype == np.float64 else logits.astype(np.float32)


def _nucleus_edge(w: Array, top_p: float) -> Array:
    """[B,N] -> [B,1]: the smallest weight among the fewest largest ones whose share reaches top_p."""
    falling = np.sort(w, axis=1)[:, ::-1]
    total = falling.cumsum(axis=1, dtype=np.float64)
    last = (total < top_p * total[:, -1:]).sum(axis=1)
    return falling[np.arange(len(w)), last, None]


def _refuse(top: Array) -> None:
    row = int(np.flatnonzero(~np.isfinite(top))[0])
    raise ValueError(
        f"the largest logit of row {row} is {top[row, 0]}, not a finite number; look for a NaN in the weights of the "
        "model or in the state it went on from"
    )


def _check(name: str, value: Any, fits: Any, accepted: str) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not fits(value):
        raise ValueError(f"{name} is {value!r}; accepted: a number {accepted}")


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
