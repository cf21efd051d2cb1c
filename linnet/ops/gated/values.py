"""What the recurrent rules need of the numbers themselves, in one sentence each: decays, rates, lengths of keys.

    decay <= 0        the logarithm of a factor: above 0 the state would grow without bound
    0 <= beta <= 2    the share of the old value that is replaced, or reflected
    |key| <= 1        of the delta rule and of the removal key of RWKV-7: a longer key makes erasing an amplification
    dt >= 0, a <= 0   of the selective scan, and the decay of RWKV-4, a rate, >= 0: the same for the scans

Nothing is normalised or clamped in silence. Numbers are looked at where they can be read: not in recorded graphs.
"""

from __future__ import annotations

from math import isfinite

import torch
from torch import Tensor

from ...errors import ArgumentError
from ...native.gated import Inputs
from ..native_allowed import readable

LONGEST = 1.02  # |key|^2 of a key of length 1 that was rounded to bfloat16


def check_values(x: Inputs, mask: Tensor | None) -> None:
    """Raise ArgumentError for the first number that the rule does not take; padding may hold anything.

    NaN and infinity are not refused: they reach what they reach (causal.py).
    """
    if x.q.device.type != "cpu" or not readable(*x):
        return
    removal = x.erase is not None
    if (most := _extreme(x.decay, mask)) is not None and most > 0:
        raise ArgumentError("decay", most, "logarithms of factors, 0 or below", "use -decay if these are rates")
    least, most = _extreme(x.beta, mask, least=True), _extreme(x.beta, mask)
    if least is not None and most is not None and (least < 0 or most > 2):
        raise ArgumentError("beta", least if least < 0 else most, "from 0 to 2", "use 2 * sigmoid(...)")
    least, most = _extreme(x.rate, mask, least=True), _extreme(x.rate, mask)
    if least is not None and most is not None and (least < 0 or most > 1):
        raise ArgumentError("rate", least if least < 0 else most, "from 0 to 1", "use sigmoid(...)")
    keys = x.erase if removal else x.k if x.beta is not None else None
    longest = None if keys is None else _extreme(keys.detach().float().square().sum(-1), mask)
    if longest is not None and longest > LONGEST:
        name = "remove" if removal else "k"
        way_out = f"use torch.nn.functional.normalize({name}, dim=-1)"
        raise ArgumentError(f"the length of a key in {name}", longest**0.5, "1, or less", way_out)


def check_scan(mask: Tensor | None, steps: Tensor, rates: Tensor) -> None:
    """Raise ArgumentError for a negative step dt [B,T,E] or a positive a [E,N] of the selective scan."""
    if steps.device.type != "cpu" or not readable(steps, rates):
        return
    if (most := _extreme(rates, None)) is not None and most > 0:
        raise ArgumentError("a", most, "0 or below", "use -a if these are rates")
    if (least := _extreme(steps, mask, least=True)) is not None and least < 0:
        raise ArgumentError("dt", least, "steps of 0 or more", "use softplus(dt)")


def check_decay(rates: Tensor) -> None:
    """Raise ArgumentError for a negative rate of decay [E] of RWKV-4."""
    if rates.device.type != "cpu" or not readable(rates):
        return
    if (least := _extreme(rates, None, least=True)) is not None and least < 0:
        raise ArgumentError("decay", least, "rates of 0 or more", "use decay.exp() if these are logarithms")


def _extreme(x: Tensor | None, mask: Tensor | None, least: bool = False) -> float | None:
    """Return the largest (or smallest) finite number of real tokens; None if there is none."""
    if x is None or not x.numel():
        return None
    x = x.detach()
    value = _pick(x, least)
    if mask is not None or not isfinite(value):
        counted = x.isfinite()
        if mask is not None:
            counted = counted & mask[(...,) + (None,) * (x.ndim - 2)]
        value = _pick(torch.where(counted, x, torch.inf if least else -torch.inf), least)
    return value if isfinite(value) else None


def _pick(x: Tensor, least: bool) -> float:
    return float(x.amin() if least else x.amax())
