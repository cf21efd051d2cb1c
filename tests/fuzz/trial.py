"""One trial: an op with drawn arguments, the equation it stands for, and how the two are run and compared.

A subject (linear.py, recurrent.py, softmax.py, rows.py) draws a Trial; here its inputs are laid out at random, its
padding is filled with NaN, both sides run with the same upstream gradients, and measure.py compares them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tests.fuzz import measure
from tests.fuzz.measure import Values

Run = Callable[[Values], Values]
GARBAGE = (torch.nan, torch.inf, -torch.inf, 1e30)


@dataclass
class Trial:
    words: dict[str, Any]  # the arguments that are not tensors, to be printed
    inputs: Values  # in float64, rounded to what their dtype can hold
    op: Run  # the op in the dtypes below -> named results
    truth: Run  # the equation in float64 -> results of the same names
    dtype: torch.dtype  # in which the op computes or keeps its tensors, whichever is less precise
    dtypes: dict[str, torch.dtype] = field(default_factory=dict)  # of inputs that differ from it
    padded: dict[str, Tensor] = field(default_factory=dict)  # input name -> [B,T], True where it is padding
    silent: Tensor | None = None  # [B,T]: where "out" must be exactly 0
    fixed: tuple[str, ...] = ()  # inputs without a gradient
    logs: tuple[str, ...] = ()  # inputs whose gradient is a difference of the products x dx of the others
    future: tuple[str, ...] = ()  # inputs [B,T,...] that no earlier token may see
    offsets: list[int] | None = None  # of packed sequences
    bits: bool = True  # earlier outputs keep their bits, not only their digits; False: solves systems, or sorts
    rounded_anew: bool = False  # by a strong decay, with all of its chunk: earlier outputs keep their digits only
    twice: bool = True  # may be differentiated twice


def check(trial: Trial, rng: random.Random, g: torch.Generator) -> list[str]:
    """Everything that is wrong with this trial; nothing when it holds."""
    learned = [n for n in trial.inputs if n not in trial.fixed and (n in _few(rng, trial) or rng.random() < 0.7)]
    mode = rng.choice(["grad", "grad", "grad", "grad", "twice", "no_grad", "inference"])
    if mode == "twice" and (not trial.twice or trial.dtype not in (torch.float64, torch.float32)):
        mode = "grad"
    trial.words |= {"mode": mode, "learned": "".join(f"{n} " for n in learned).strip()}
    learned = learned if mode in ("grad", "twice") else []
    given = {n: _laid_out(_spoiled(trial, n, rng), rng, trial) for n in trial.inputs}
    with torch.inference_mode() if mode == "inference" else torch.no_grad() if mode == "no_grad" else nullcontext():
        seed = int(torch.randint(0, 2**31, (), generator=g))
        got = _evaluated(trial.op, given, learned, seed, mode == "twice")

    sized = bool(trial.logs) or not trial.bits  # by the gradients of all inputs
    every = [n for n in trial.inputs if n not in trial.fixed] if learned and sized else learned

    def truth(rounded: bool) -> Values:
        return _evaluated(trial.truth, trial.inputs, every, seed, mode == "twice", rounded, learned)

    want = truth(False)
    results = [n for n in want if not n.startswith("d")]
    defined = all(bool(want[n].isfinite().all()) for n in results)  # a loss that is not finite has no gradient
    kept = {n: want[n] for n in (want if defined else results) if n in got}
    slack = partial(measure.noise, truth, measure.ROUNDOFF[trial.dtype], seed)
    found = measure.problems(got, kept, trial.dtype, _floors(trial, want), slack)
    found += _padding(trial, got, want)
    if trial.future and rng.random() < 0.3:
        found += _causality(trial, rng)
    return found


def _floors(trial: Trial, want: Values) -> dict[str, float]:
    """The size of the numbers that a gradient is a difference of, where it may be far smaller than they are.

    What reaches a faded or erased past is tiny compared with the gradients of the other inputs. A chunk that solves a
    triangular system subtracts numbers of their size to get it; other forms, a hundredth of that.
    """
    floors = {}
    for d in ("d", "dd"):
        grads = {d + n: want[d + n] for n in trial.inputs if d + n in want}
        largest = max((float(x.nan_to_num(0, 0, 0).abs().max()) for x in grads.values() if x.numel()), default=0.0)
        floors |= dict.fromkeys(grads, (0.01 if trial.bits else 1.0) * largest)
        floors |= {d + n: max(_products(trial.inputs, want, d), floors[d + n]) for n in trial.logs if d + n in want}
    return floors


def _few(rng: random.Random, trial: Trial) -> tuple[str, ...]:
    """At least one input with a gradient."""
    names = [n for n in trial.inputs if n not in trial.fixed]
    return (rng.choice(names),) if names else ()


def _spoiled(trial: Trial, name: str, rng: random.Random) -> Tensor:
    x = trial.inputs[name].to(trial.dtypes.get(name, trial.dtype), copy=True)
    if name in trial.padded:
        x[trial.padded[name]] = rng.choice(GARBAGE)
    return x


def _laid_out(x: Tensor, rng: random.Random, trial: Trial) -> Tensor:
    """The same numbers, in order, transposed, with gaps, or from the middle of something larger."""
    how = rng.choice(["dense", "dense", "gaps", "transposed", "inside"])
    if how == "dense" or x.ndim < 2 or not x.numel():
        return x
    trial.words["layout"] = trial.words.get("layout", "") + how[0]
    if how == "gaps":
        wide = x.new_full((*x.shape[:-1], 2 * x.shape[-1]), torch.nan)
        wide[..., ::2] = x
        return wide[..., ::2]
    if how == "transposed":
        a, b = rng.sample(range(x.ndim), 2)
        return x.transpose(a, b).contiguous().transpose(a, b)
    wide = x.new_full((*x.shape[:-1], x.shape[-1] + 3), torch.nan)
    wide[..., 1:-2] = x
    return wide[..., 1:-2]


def _evaluated(
    run: Run, inputs: Values, learned: list[str], seed: int, twice: bool, rounded: bool = False,
    squared: list[str] | None = None,
) -> Values:  # fmt: skip
    """Results, gradients of a random sum of them, and gradients of the sum of squares of those (of `squared`)."""
    leaves = {n: (x * 1.0 if rounded else x).detach().requires_grad_(n in learned) for n, x in inputs.items()}
    results = run(leaves)
    values = {n: x.detach() for n, x in results.items()}
    if not learned:
        return values
    g = torch.Generator().manual_seed(seed)
    loss = 0.0
    for x in results.values():
        weight = torch.randn(x.shape, generator=g, dtype=torch.float64)
        weight = weight * float(torch.randint(0, 4, (), generator=g) > 0)
        weight = weight.bfloat16().to(x.dtype)
        loss = loss + (x * weight).sum(dtype=torch.float64)
    wanted = [leaves[n] for n in learned]
    assert isinstance(loss, Tensor)
    first: tuple[Tensor, ...] = tuple(torch.zeros_like(x) for x in wanted)  # of a loss that depends on none of them
    if loss.requires_grad:
        first = torch.autograd.grad(loss, wanted, create_graph=twice, materialize_grads=True)
    values |= {f"d{n}": x.detach() for n, x in zip(learned, first, strict=True)}
    if twice:
        parts = [x for n, x in zip(learned, first, strict=True) if squared is None or n in squared]
        total = sum((x.double().square().sum() for x in parts), start=torch.zeros((), dtype=torch.float64))
        if total.requires_grad:
            second = torch.autograd.grad(total, wanted, materialize_grads=True)
            values |= {f"dd{n}": x.detach() for n, x in zip(learned, second, strict=True)}
        else:
            values |= {f"dd{n}": torch.zeros_like(x) for n, x in zip(learned, first, strict=True)}
    return values


def _products(inputs: Values, want: Values, d: str) -> float:
    """The largest x dx of all inputs."""
    pairs = [(x, want[d + n]) for n, x in inputs.items() if d + n in want and x.numel()]
    return max((float((x * dx).nan_to_num(0, 0, 0).abs().max()) for x, dx in pairs), default=0.0)


def _padding(trial: Trial, got: Values, want: Values) -> list[str]:
    """Exactly 0, the gradients of a loss that is itself not finite excepted."""
    found = []
    if trial.silent is not None and bool((got["out"][trial.silent] != 0).any()):
        found.append("out is not exactly 0 at padding")
    for name, pad in trial.padded.items():
        for d in (f"d{name}", f"dd{name}"):
            if d in got and bool(((got[d] != 0) & want[d].isfinite())[pad].any()):
                found.append(f"{d} is not exactly 0 at padding")
    return found


def _causality(trial: Trial, rng: random.Random) -> list[str]:
    """NaN or infinity at one token changes no bit of an earlier output, of another row or of a packed neighbour."""
    name, what = rng.choice(trial.future), rng.choice(GARBAGE[:3])
    x = trial.inputs[name]
    if not x.numel():
        return []
    row, at, *one = (rng.randrange(n) for n in x.shape)
    if name in trial.padded and bool(trial.padded[name][row, at]):
        return []
    given = {n: _spoiled(trial, n, rng) for n in trial.inputs}
    spoiled = given | {name: given[name].clone()}
    spoiled[name][(row, at, *one)] = what
    with torch.no_grad():
        before, after = trial.op(given)["out"], trial.op(spoiled)["out"]
    same = before.isfinite()
    same[row, at : min((end for end in trial.offsets or [] if end > at), default=None)] = False
    if not bool(same.any()):
        return []
    digits = measure.PLAIN * measure.ROUNDOFF[trial.dtype] * float(before[same].abs().max())
    slack = 0.0 if trial.bits and not trial.rounded_anew else digits
    if bool(((after - before)[same].abs() <= slack).all()):
        return []
    how = "has other bits" if bool(after[same].isfinite().all()) else "is no longer finite"
    return [f"{what} in {name} of row {row} at token {at}: an earlier output or another sequence {how}"]
