"""Is a result right, as far as its arithmetic allows? The yardstick is the truth itself, with rounding errors.

    noise = largest |truth with every operation rounded at random - truth|,     right:  error <= FACTOR (noise + u size)

Monte Carlo arithmetic (Parker 1997; Vignes 1993): the float64 equation runs again, forward and backward, with the
result of every operation multiplied by 1 +- u, u the unit roundoff of the dtype under test. Where a denominator is next
to zero these runs scatter, and the limit widens by just as much; where numbers are well conditioned it is a few u. So
no case is left out for being difficult, and the limit hangs on no processor. Numbers that the float64 equation itself
does not have (0 / 0, overflow) are not compared; wherever it has one, NaN and infinity are errors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

FACTOR = 40.0  # errors of right answers are spread this far around what a few random roundings show
PLAIN = 64.0  # u of the largest number: within this nothing else is asked, it is what a sum of a few terms may lose
RUNS = 3  # of the truth with rounding errors; only for results that are not within PLAIN
LOST = 100.0  # times its own size: a result that roundings move so far has no right digits, and has only to be finite
MORE_RUNS = 200  # before a result is called wrong: next to a zero denominator, roundings have heavy tails
# float64 is measured as if it had 6 bits less: exponents add up over tokens, and 1e-10 is promised
ROUNDOFF = {torch.float64: 2.0**-47, torch.float32: 2.0**-24, torch.bfloat16: 2.0**-9, torch.float16: 2.0**-12}
LARGEST = {torch.float64: 1e150, torch.float32: 1e18, torch.bfloat16: 1e18, torch.float16: 3e4}  # squares fit
SMALLEST = {
    torch.float64: 1e-290,
    torch.float32: 1e-30,
    torch.bfloat16: 1e-30,
    torch.float16: 1e-5,
}  # of normal numbers

rounding = False  # True while an equation runs with rounding errors: it may then compute as the op does

Values = dict[str, Tensor]


class Rounded(TorchDispatchMode):
    """Every floating-point result times 1 + u or 1 - u, drawn from `generator`; views are left alone."""

    def __init__(self, roundoff: float, generator: torch.Generator) -> None:
        super().__init__()
        self.roundoff, self.generator = roundoff, generator

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        results = out if isinstance(out, (tuple, list)) else (out,)
        for x, returned in zip(results, func._schema.returns, strict=False):
            if isinstance(x, Tensor) and x.is_floating_point() and x.numel() and returned.alias_info is None:
                x.mul_(self.factors(x))
        return out

    def factors(self, x: Tensor) -> Tensor:
        signs = torch.randint(0, 2, x.shape, generator=self.generator, dtype=x.dtype)
        return signs.mul_(2 * self.roundoff).add_(1 - self.roundoff)


def noise(truth: Callable[[bool], Values], roundoff: float, seed: int, runs: int = RUNS) -> Values:
    """How far the results of `truth` move when every operation is rounded; truth(True) rounds its inputs too."""
    global rounding
    exact, moved = truth(False), {}
    for run in range(runs):
        g = torch.Generator().manual_seed(seed * runs + run)
        rounding = True
        try:
            with Rounded(roundoff, g):
                found = truth(True)
        finally:
            rounding = False
        for name, x in found.items():
            off = (x - exact[name]).abs()
            moved[name] = torch.maximum(moved[name], off) if name in moved else off
    return moved


def problems(
    got: Values, want: Values, dtype: torch.dtype, floors: dict[str, float], slack: Callable[[int], Values]
) -> list[str]:
    """What is wrong with each result, in words; `slack(runs)` is called when some result is not within PLAIN.

    `floors` has results that are differences of larger numbers, by definition and not by accident, and their size.
    """
    found, doubtful = [], []
    for name, truth in want.items():
        result = got[name]
        if result.shape != truth.shape:
            found.append(f"{name} has shape {list(result.shape)}, the equation {list(truth.shape)}")
        elif result.numel():
            size = _rows(truth) + floors.get(name, 0.0)
            if not bool(((result.double() - truth).abs() <= PLAIN * ROUNDOFF[dtype] * size).all()):
                doubtful.append(name)
    words: list[str] = []
    for runs in (RUNS, MORE_RUNS):
        if doubtful:
            moved = slack(runs)
            told = {n: _wrong(n, got[n], want[n], dtype, moved[n], floors.get(n, 0.0)) for n in doubtful}
            doubtful, words = [n for n in told if told[n]], [t for t in told.values() if t]
    return found + words


def _wrong(name: str, got: Tensor, want: Tensor, dtype: torch.dtype, moved: Tensor, floor: float) -> str:
    defined = want.isfinite() & moved.isfinite() & (want.abs() < LARGEST[dtype]) & (moved < LARGEST[dtype])
    size = _rows(moved.nan_to_num(0, 0, 0)) + ROUNDOFF[dtype] * (_rows(want) + floor)
    limit = FACTOR * size + SMALLEST[dtype]
    error = (got.double() - want).abs()
    lost = (_rows(moved) > LOST * (_rows(want) + floor)) & got.isfinite()
    bad = defined & ~(error <= limit) & ~lost
    if not bool(bad.any()):
        return ""
    ratio = torch.where(bad, (error / limit).nan_to_num(torch.inf, torch.inf), 0.0)
    at = tuple(int(i) for i in torch.unravel_index(ratio.argmax(), ratio.shape))
    numbers = f"{got[at]:.6g} where float64 says {want[at]:.6g} (limit {limit[at]:.1e})"
    return f"{name}{[*at]} is {numbers}; {int(bad.sum())} of {bad.numel()} are wrong"


def _rows(x: Tensor) -> Tensor:
    """The largest finite size in the row of each number (its last axis), and a hundredth of that in the tensor."""
    size = x.abs().nan_to_num(0.0, 0.0, 0.0)
    rows = size.amax(-1, keepdim=True) if x.ndim else size
    return torch.maximum(rows, 0.01 * size.amax()).expand_as(x)
