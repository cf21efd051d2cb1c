"""Rotary frequencies for windows longer than the one a model was trained on, as Llama-type configurations name them.

    linear   w' = w / factor                                                       Chen et al. 2023, arXiv:2306.15595
    llama3   w' = w / factor below, w above, a blend between two wavelengths       Llama 3.1, arXiv:2407.21783
    yarn     w' = w / factor for slow pairs, w for fast ones, a ramp between       Peng et al. 2023, arXiv:2309.00071

w_i = base^(-2i/D) turns the pair (i, i + D/2) of a head. Yarn also has an attention factor, 0.1 ln(factor) + 1 unless
the configuration says otherwise: it multiplies cosines and sines, so q and k each grow by it and every score q . k by
its square, as in transformers; the scale of the softmax stays 1 / sqrt(D).
Kinds that choose their frequencies by the length of the sequence (dynamic, longrope) are refused: a stream does not
know its length, and what was turned already would have to turn again.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, floor, isfinite, log, pi
from typing import Any

import torch
from torch import Tensor

WINDOW = "original_max_position_embeddings"
NEEDED = {
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", WINDOW),
    "yarn": ("factor", WINDOW),
}
OPTIONAL = {"yarn": ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate")}
BY_LENGTH = ("dynamic", "longrope", "su")


def check_scaling(scaling: Mapping[str, Any], base: float) -> None:
    """ValueError unless `scaling` names a kind of NEEDED with its numbers and nothing else, and fits the base."""
    if not isinstance(scaling, Mapping):
        raise ValueError(f"rotary_scaling is {scaling!r}; accepted: None, or a mapping with rope_type and its numbers")
    kind = scaling.get("rope_type")
    if kind in BY_LENGTH:
        raise ValueError(
            f"rotary_scaling has rope_type {kind!r}, whose frequencies depend on the length of the sequence, which a "
            f"stream does not know; accepted: {', '.join(NEEDED)}"
        )
    if not isinstance(kind, str) or kind not in NEEDED:
        raise ValueError(f"rotary_scaling has rope_type {kind!r}; accepted: {', '.join(NEEDED)}")
    names = (*NEEDED[kind], *OPTIONAL.get(kind, ()))
    for name in (*NEEDED[kind], *scaling):
        if name not in scaling or name not in ("rope_type", *names):
            state = "lacks" if name not in scaling else "has"
            raise ValueError(f"rotary_scaling {state} {name!r}; accepted for {kind!r}: {', '.join(names)}")
    for name, value in scaling.items():
        if name != "rope_type":
            _check_value(name, value)
    low, high = scaling.get("low_freq_factor", 0.0), scaling.get("high_freq_factor", 1.0)
    if low >= high:
        raise ValueError(f"rotary_scaling has low_freq_factor {low} and high_freq_factor {high}; accepted: low < high")
    if not isinstance(base, (int, float)) or not base > 1:
        raise ValueError(f"rotary_base is {base!r} beside a rotary_scaling; accepted: a number above 1")


def _check_value(name: str, value: Any) -> None:
    if name == "truncate":
        if not isinstance(value, bool):
            raise ValueError(f"rotary_scaling has truncate {value!r}; accepted: true or false")
    elif isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value) or value <= 0:
        raise ValueError(f"rotary_scaling has {name} {value!r}; accepted: a finite number above 0")


def scaled(plain: Tensor, base: float, scaling: Mapping[str, Any]) -> Tensor:
    """The frequencies `plain` [D/2] as this kind of scaling has them."""
    kind, slow = scaling["rope_type"], plain / scaling["factor"]
    if kind == "linear":
        return slow
    if kind == "llama3":
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        fast = ((scaling[WINDOW] * plain / (2 * pi) - low) / (high - low)).clamp(0.0, 1.0)  # 1: turns often in a window
    else:
        fast = 1 - _ramp(len(plain), base, scaling, plain.device)
    return (1 - fast) * slow + fast * plain


def _ramp(pairs: int, base: float, scaling: Mapping[str, Any], device: torch.device) -> Tensor:  # [D/2]
    """0 for pairs that turn more than beta_fast times in the window, 1 for less than beta_slow, linear between."""

    def pair(turns: float) -> float:
        return pairs * log(scaling[WINDOW] / (turns * 2 * pi)) / log(base)

    low, high = pair(scaling.get("beta_fast", 32)), pair(scaling.get("beta_slow", 1))
    if scaling.get("truncate", True):
        low, high = floor(low), ceil(high)
    low, high = max(low, 0), min(high, 2 * pairs - 1)
    i = torch.arange(pairs, dtype=torch.float64, device=device)
    return ((i - low) / (high - low if high != low else 0.001)).clamp(0.0, 1.0)


def attention_factor(scaling: Mapping[str, Any] | None) -> float:
    """What cosines and sines are multiplied by: 1 except for yarn."""
    if scaling is None or scaling["rope_type"] != "yarn":
        return 1.0
    if "attention_factor" in scaling:
        return float(scaling["attention_factor"])
    factor = scaling["factor"]
    if "mscale" in scaling and "mscale_all_dim" in scaling:
        return _size(factor, scaling["mscale"]) / _size(factor, scaling["mscale_all_dim"])
    return _size(factor, 1.0)


def _size(factor: float, times: float) -> float:
    return 0.1 * times * log(factor) + 1.0 if factor > 1 else 1.0
