"""Scale rotary frequencies for contexts longer than those of training, as Llama configurations specify it.

    linear   w' = w / factor                                                       Chen et al. 2023, arXiv:2306.15595
    llama3   w' = w / factor for long wavelengths, w for short ones, blended        Llama 3.1, arXiv:2407.21783
    yarn     w' = w / factor for slow pairs, w for fast ones, a linear ramp        Peng et al. 2023, arXiv:2309.00071

w_i = base^(-2i/D) rotates the pair (i, i + D/2) of a head. Yarn also has an attention factor, 0.1 ln(factor) + 1
unless set in the configuration: it multiplies cosines and sines, so q and k are each scaled by it and every score q . k
by its square, as in transformers; the scale of the softmax stays 1 / sqrt(D).
Kinds whose frequencies depend on the length of the sequence (dynamic, longrope) are refused: a stream does not know its
length, and keys that are already rotated would have to be rotated again.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, floor, log, pi
from typing import Any

import torch
from torch import Tensor

from ..errors import is_number

WINDOW = "original_max_position_embeddings"
NEEDED = {
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", WINDOW),
    "yarn": ("factor", WINDOW),
}
OPTIONAL = {"yarn": ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate")}
BY_LENGTH = ("dynamic", "longrope", "su")


def check_scaling(scaling: Mapping[str, Any], base: float) -> None:
    """Raise ValueError unless `scaling` has a rope_type of NEEDED with its numbers only, and the base is above 1."""
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
        raise ValueError(f"rotary_base is {base!r}; accepted with a rotary_scaling: a number above 1")


def _check_value(name: str, value: Any) -> None:
    if name == "truncate":
        if not isinstance(value, bool):
            raise ValueError(f"rotary_scaling has truncate {value!r}; accepted: true or false")
    elif not is_number(value) or value <= 0:
        raise ValueError(f"rotary_scaling has {name} {value!r}; accepted: a finite number above 0")


def scale_frequencies(plain: Tensor, base: float, scaling: Mapping[str, Any]) -> Tensor:
    """Return the frequencies `plain` [D/2] scaled."""
    kind, slow = scaling["rope_type"], plain / scaling["factor"]
    if kind == "linear":
        return slow
    if kind == "llama3":
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        fast = ((scaling[WINDOW] * plain / (2 * pi) - low) / (high - low)).clamp(0.0, 1.0)  # 1: many turns in a window
    else:
        fast = 1 - _ramp(len(plain), base, scaling, plain.device)
    return (1 - fast) * slow + fast * plain


def _ramp(pairs: int, base: float, scaling: Mapping[str, Any], device: torch.device) -> Tensor:  # [D/2]
    """Return 0 for pairs of more than beta_fast turns in the window, 1 for fewer than beta_slow, linear between."""

    def pair(turns: float) -> float:
        return pairs * log(scaling[WINDOW] / (turns * 2 * pi)) / log(base)

    low, high = pair(scaling.get("beta_fast", 32)), pair(scaling.get("beta_slow", 1))
    if scaling.get("truncate", True):
        low, high = floor(low), ceil(high)
    low, high = max(low, 0), min(high, 2 * pairs - 1)
    i = torch.arange(pairs, dtype=torch.float64, device=device)
    return ((i - low) / (high - low if high != low else 0.001)).clamp(0.0, 1.0)


def attention_factor(scaling: Mapping[str, Any] | None) -> float:
    """Return the factor of cosines and sines: 1 except for yarn."""
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
