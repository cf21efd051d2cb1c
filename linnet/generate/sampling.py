"""Sampling: choose a token from logits. Filters narrow the distribution, then one random number per row picks.

    penalty      x_i / r if x_i > 0 else x_i r, for tokens seen     Keskar et al. 2019 (CTRL), arXiv:1909.05858
    counts       x_i - frequency c_i - presence [c_i > 0]           c_i: how often the request has sampled i
    bias         x_i + b_i                                          for the tokens of `logit_bias`
    temperature  x / t;  t = 0 takes the largest                    then p = softmax(x)
    top-k        the k largest                                      Fan et al. 2018, arXiv:1805.04833
    top-p        the fewest largest with sum(p) >= top_p            Holtzman et al. 2019, arXiv:1904.09751
    min-p        p_i >= min_p max(p)                                Nguyen et al. 2024, arXiv:2407.01082

They apply in this order. Tokens that tie at the edge of top-k or top-p all stay. The random number is a function of
seed, row and index of the token alone, so a row does not depend on its neighbours. Computed in float32 or wider.
B rows, N vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import ArgumentError, whole

Array = np.ndarray[Any, Any]
ALL = "leave it out to keep all"
WIDE = (np.dtype(np.float32), np.dtype(np.float64))
BLOCK = 4  # numbers that Philox draws at once
TINY = 1e-12  # lower temperatures are rounded up to it: distinct float32 logits stay far apart, and none overflows


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How to choose a token; the defaults draw from the model's own distribution."""

    temperature: float = 1.0  # 0: the most likely token
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0  # above 1: tokens of the prompt and the output so far become less likely
    frequency_penalty: float = 0.0  # above 0: tokens become less likely each time they are sampled
    presence_penalty: float = 0.0  # above 0: tokens become less likely once they have been sampled
    logit_bias: tuple[tuple[int, float], ...] = ()  # (token, number added to its logit)
    seed: int = 0

    def __post_init__(self) -> None:
        _check("temperature", self.temperature, lambda t: 0 <= t < math.inf, "0 (the most likely token) or above")
        _check(
            "repetition_penalty", self.repetition_penalty, lambda r: 0 < r < math.inf, "above 0", "1 changes nothing"
        )
        for name in ("frequency_penalty", "presence_penalty"):
            _check(name, getattr(self, name), math.isfinite, "that is finite", "0 changes nothing")
        if self.logit_bias:
            object.__setattr__(self, "logit_bias", _bias(self.logit_bias))
        if self.top_p is not None:
            _check("top_p", self.top_p, lambda p: 0 < p <= 1, "above 0 and up to 1", ALL)
        if self.min_p is not None:
            _check("min_p", self.min_p, lambda p: 0 <= p <= 1, "from 0 to 1", ALL)
        if self.top_k is not None:
            whole("top_k", self.top_k, 1, hint=ALL)
        whole("seed", self.seed, 0, 2**64 - 1)


class Draws:
    """Uniform random numbers in [0, 1) for one row; the i-th depends on seed, row and i only.

    `first` is the i of the first number returned.
    """

    def __init__(self, seed: int, row: int, first: int = 0) -> None:
        self._bits = np.random.Philox(key=seed + (row << 64), counter=first // BLOCK)
        self._bits.random_raw(first % BLOCK)

    def next(self) -> float:
        """Return the next number."""
        return (self._bits.random_raw() >> 11) * 2.0**-53


def choose(
    logits: Tensor | Array,
    sampling: Sampling,
    draws: Sequence[Draws],
    seen: Array | None = None,
    *,
    counts: Array | None = None,
    first: int = 0,
) -> list[int]:  # [B]
    """Return a token for each row of logits [B,N]; `seen` [B,N] bool: tokens that the repetition penalty applies to,
    `counts` [B,N]: how often each was sampled, for the frequency and presence penalties.

    Raise ValueError for logits that are not finite; the message counts rows from `first`.
    """
    x = numbers(logits)
    if sampling.repetition_penalty != 1.0 and seen is not None:
        x = np.where(seen, np.where(x > 0, x / sampling.repetition_penalty, x * sampling.repetition_penalty), x)
    if counts is not None:
        x = x - sampling.frequency_penalty * counts - sampling.presence_penalty * (counts > 0)
    if sampling.logit_bias:
        tokens, biases = zip(*sampling.logit_bias, strict=True)
        x = x.copy()
        x[:, tokens] += np.array(biases, dtype=x.dtype)
    top = x.max(axis=1, keepdims=True)
    if not math.isfinite(top.sum()):  # max returns NaN if there is one
        _refuse(top, first)
    if sampling.temperature == 0:
        return x.argmax(axis=1).tolist()
    total = weights(x - top, sampling).cumsum(axis=1, dtype=np.float64)  # [B,N]
    return [int(row.searchsorted(draw.next() * row[-1], "right")) for row, draw in zip(total, draws, strict=True)]


def weights(x: Array, sampling: Sampling) -> Array:
    """Return unnormalised probabilities [B,N] after the filters, 0 for tokens removed; the largest of x [B,N] is 0."""
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
    """Return the log-probabilities [B,N] of the model itself, before any filter."""
    x = numbers(logits)
    x = x - x.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True, dtype=np.float64))


def best(x: Array, count: int) -> Array:
    """Return the indices of the `count` (1 or more) largest of x [M], largest first, ties by lower index."""
    near = np.arange(len(x))
    if count < len(x):
        near = np.flatnonzero(x >= np.partition(x, len(x) - count)[len(x) - count])
    return near[np.argsort(-x[near], kind="stable")][:count]


def numbers(logits: Tensor | Array) -> Array:
    """Return logits as a float32 array, or float64 if they are."""
    if isinstance(logits, Tensor):
        wide = logits if logits.dtype in (torch.float32, torch.float64) else logits.float()
        return wide.numpy() if wide.is_inference() and wide.is_cpu else wide.detach().cpu().numpy()
    return logits if logits.dtype in WIDE else logits.astype(np.float32)


def _nucleus_edge(w: Array, top_p: float) -> Array:
    """Return [B,1]: the smallest weight of the smallest set of largest weights [B,N] whose share reaches top_p."""
    falling = np.sort(w, axis=1)[:, ::-1]
    total = falling.cumsum(axis=1, dtype=np.float64)
    last = (total < top_p * total[:, -1:]).sum(axis=1)
    return falling[np.arange(len(w)), last, None]


def _refuse(top: Array, first: int) -> None:
    row = int(np.flatnonzero(~np.isfinite(top))[0])
    raise ValueError(
        f"the largest logit of row {first + row} is {top[row, 0]}, not a finite number; look for a NaN in the "
        "weights of the model or in the state it started from"
    )


def _bias(given: Any) -> tuple[tuple[int, float], ...]:
    """Return pairs of a token and a finite number, in the order of the tokens."""
    pairs = sorted(given)
    for token, value in pairs:
        whole("logit_bias", token, 0, 2**31 - 1, "the name of each entry is a token id")
        _check("logit_bias", value, math.isfinite, "that is finite")
    return tuple((token, float(value)) for token, value in pairs)


def _check(name: str, value: Any, fits: Callable[[float], bool], accepted: str, hint: str = "") -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not fits(value):
        raise ArgumentError(name, value, f"a number {accepted}", hint)
