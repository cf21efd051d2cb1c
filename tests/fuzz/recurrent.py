"""Recurrent ops with a MatrixState: decayed attention, delta rules, RWKV-4 and 7, Mamba, against ops/gated/naive.py."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

import linnet
from linnet.native.library import info
from linnet.ops.gated import naive
from tests.fuzz import draws
from tests.fuzz.measure import Values
from tests.fuzz.trial import Trial

SOLVED = ("delta_rule", "wkv7")  # by triangular systems, whose last bits LAPACK leaves open from batch to batch
FORMS = ["auto", "auto", "chunked", "parallel", "recurrent"]
NATIVE = info()["loaded"]
# Most are small, so that many run. The kernels work in panels of 16 and keep a state in 16, 32 or 128 tokens: some
# cross these bounds.
SMALL, WIDE, LONG = [1, 2, 3, 4, 5, 8], [7, 9, 15, 16, 17, 31, 33], [100, 127, 128, 129, 150]


def decay_trial(rng: random.Random, g: torch.Generator) -> Trial:
    c = _Common(rng, g)
    q, k, v = c.normal(c.D), c.normal(c.D), c.normal(c.V)
    by = rng.choice(["head", "channel", "shared"])
    shape = (1 if by == "shared" else c.B, c.T, c.H, *([c.D] if by == "channel" else []))
    decay = -draws.uniform(g, c.dtype, *shape, high=rng.choice([0.01, 1.0, 20.0]))
    inputs = {"q": q, "k": k, "v": v, "decay": decay}
    future = ("k", "v", "q") if by == "shared" else ("k", "v", "q", "decay")
    names = ("q", "k", "v", "decay")
    return c.trial("decayed_attention", inputs, names, future, {"by": by})


def delta_trial(rng: random.Random, g: torch.Generator) -> Trial:
    c = _Common(rng, g)
    gated = rng.choice(["no", "head", "channel"])
    k = normalize(c.normal(c.D), dim=-1).to(c.dtype).double()
    beta = draws.uniform(g, c.dtype, c.B, c.T, c.H, high=rng.choice([1.0, 2.0]))
    inputs = {"q": c.normal(c.D), "k": k, "v": c.normal(c.V), "beta": beta}
    if gated != "no":
        shape = (c.B, c.T, c.H, *([c.D] if gated == "channel" else []))
        inputs["decay"] = -draws.uniform(g, c.dtype, *shape, high=rng.choice([0.01, 1.0, 20.0]))
    names = tuple(inputs)
    return c.trial("delta_rule", inputs, names, names, {"gated": gated})


def wkv7_trial(rng: random.Random, g: torch.Generator) -> Trial:
    c = _Common(rng, g)
    decay = -draws.uniform(g, c.dtype, c.B, c.T, c.H, c.D, high=rng.choice([0.01, 0.6, 20.0]))
    remove = normalize(c.normal(c.D), dim=-1).to(c.dtype).double()
    inputs = {"q": c.normal(c.D), "decay": decay, "k": c.normal(c.D), "v": c.normal(c.V), "remove": remove}
    inputs["rate"] = draws.uniform(g, c.dtype, c.B, c.T, c.H, c.D)
    return c.trial("wkv7", inputs, tuple(inputs), tuple(inputs), {})


def scan_trial(rng: random.Random, g: torch.Generator) -> Trial:
    c = _Common(rng, g)
    E, N = c.H, c.D
    inputs = {"x": c.plain(E), "dt": draws.uniform(g, c.dtype, c.B, c.T, E)}
    inputs["a"] = -draws.uniform(g, c.dtype, E, N, low=0.1, high=rng.choice([1.0, 30.0]))
    inputs |= {"b": c.plain(N), "c": c.plain(N)}
    state = draws.normal(g, torch.float32, c.rows, E, N, 1, size=c.past)
    return c.trial("selective_scan", inputs, tuple(inputs), ("x", "dt", "b", "c"), {}, state)


def wkv_trial(rng: random.Random, g: torch.Generator) -> Trial:
    c = _Common(rng, g)
    E = c.D
    inputs = {"k": c.plain(E) * rng.choice([1.0, 2.0]), "v": c.plain(E)}
    inputs["decay"] = draws.uniform(g, c.dtype, E, low=0.01, high=rng.choice([0.1, 2.0, 20.0]))
    inputs["bonus"] = draws.normal(g, c.dtype, E)
    n, p = (draws.normal(g, torch.float32, c.rows, E) for _ in range(2))
    d = draws.uniform(g, torch.float32, c.rows, E, low=1.0, high=2.0)
    state = torch.stack([n, d, p], dim=1)[:, None] * c.past
    exponent = state[:, :, 2:]
    found = c.trial("wkv", inputs, tuple(inputs), ("k", "v"), {}, state[:, :, :2], _sums, exponent)
    found.fixed = () if c.past else ("s0",)
    return found


def _sums(s: Tensor) -> Tensor:
    """Numerator and denominator of a state: its exponent is a matter of form."""
    return s[:, :, :2] * s[:, :, 2:].exp()


class _Common:
    """What all of these draw: sizes, dtype, padding, packing, cuts, a state."""

    def __init__(self, rng: random.Random, g: torch.Generator) -> None:
        self.rng, self.g = rng, g
        self.dtype = rng.choice(draws.DTYPES)
        self.B, self.T, self.H = rng.choice([1, 2, 3]), rng.choice(draws.LENGTHS), rng.choice([1, 2, 3])
        widths = WIDE if rng.random() < 0.2 else SMALL
        self.D, self.V = rng.choice(widths), rng.choice([*widths, 1, 5])
        if widths is SMALL and rng.random() < 0.03:
            self.T = rng.choice(LONG)
        packed = rng.random() < 0.2
        self.B = 1 if packed else self.B
        self.offsets = draws.offsets(rng, self.T) if packed else None
        self.rows = len(self.offsets) - 1 if self.offsets else self.B
        self.kind, self.mask = draws.padding(rng, self.B, self.T)
        self.past = float(rng.random() < 0.5)
        self.cuts = [0, self.T] if packed else draws.cuts(rng, self.T)

    def normal(self, width: int) -> Tensor:
        return draws.normal(self.g, self.dtype, self.B, self.T, self.H, width)

    def plain(self, width: int) -> Tensor:
        return draws.normal(self.g, self.dtype, self.B, self.T, width)

    def trial(
        self, name: str, inputs: Values, names: tuple[str, ...], future: tuple[str, ...], words: dict[str, Any],
        state: Tensor | None = None, value: Callable[[Tensor], Tensor] = lambda s: s, exponent: Tensor | None = None,
    ) -> Trial:  # fmt: skip
        """`exponent`: a row of the state of wkv that gradients hold fixed; `state` then lacks it."""
        rng, mask, offsets = self.rng, self.mask, self.offsets
        op, step, equation = getattr(linnet, name), getattr(linnet, f"{name}_step"), getattr(naive, name)
        if state is None:
            state = draws.normal(self.g, torch.float32, self.rows, self.H, self.D, self.V, size=self.past)
        given = self.past > 0 or rng.random() < 0.3
        how = {"form": rng.choice(FORMS), "chunk_size": rng.choice([1, 2, 3, 4, 8, 16, 32])}
        one_by_one = offsets is None and mask is None and self.T > 0 and rng.random() < 0.15
        timed = [n for n in names if inputs[n].ndim > 2 and inputs[n].shape[1] == self.T and n != "a"]
        state_dtype = (
            torch.float64 if self.dtype == torch.float64 else rng.choice([torch.float32, torch.float32, torch.float64])
        )
        wide = torch.float64 in (self.dtype, state_dtype if given else self.dtype)
        fits = NATIVE and not wide and how["form"] in ("auto", "chunked")
        how["backend"] = rng.choice(["native", "native", "auto", "torch"] if fits else ["auto", "torch"])
        inputs = inputs | ({"s0": state} if given else {})
        words = {"op": name, "dtype": self.dtype, "state": given and state_dtype, "padding": self.kind, **words, **how}
        words |= {"sizes": f"B{self.B} T{self.T} H{self.H} D{self.D} V{self.V}", "offsets": offsets}
        words |= {"cuts": self.cuts, "step": one_by_one}

        def start(x: Values) -> Tensor | None:
            if "s0" not in x or exponent is None:
                return x.get("s0")
            return torch.cat([x["s0"], exponent.to(x["s0"].dtype)], 2)

        def run(x: Values) -> Values:
            s, outs = start(x), []
            past = None if s is None else linnet.MatrixState(s)
            for at in draws.spans(list(range(self.T + 1)) if one_by_one else self.cuts):
                part = [x[n][:, at] if n in timed else x[n] for n in names]
                if one_by_one:
                    tokens = [y[:, 0] if n in timed else y for n, y in zip(names, part, strict=True)]
                    out, past = step(*tokens, state=past)
                    outs.append(out[:, None])
                    continue
                masked = None if mask is None else mask[:, at]
                contract = {"initial_state": past, "output_final_state": True, "mask": masked, "cu_seqlens": offsets}
                out, past = op(*part, **contract, **how)
                outs.append(out)
            assert past is not None
            return {"out": torch.cat(outs, 1), "s": value(past.s)}

        def truth(x: Values) -> Values:
            s = start(x)
            s = torch.zeros_like(state) if s is None else value(s)
            outs, ends = [], []
            for row, (lo, hi) in enumerate(pairwise(offsets)) if offsets else [(slice(None), (0, self.T))]:
                at = slice(row, row + 1) if offsets else row
                part = {n: x[n][:, lo:hi] if n in timed else x[n] for n in names}
                out, end = equation(**_renamed(part), s=s[at], mask=None if mask is None else mask[:, lo:hi])
                outs.append(out)
                ends.append(end)
            return {"out": torch.cat(outs, 1), "s": torch.cat(ends)}

        pad = None if mask is None else ~mask
        padded = {} if pad is None else {n: pad for n in timed if inputs[n].shape[0] == self.B}
        dtypes = {"s0": state_dtype}
        logs = ("decay",) if "decay" in inputs else ()
        return Trial(
            words, inputs, run, truth, self.dtype, dtypes, padded, pad, future=future, logs=logs, offsets=offsets,
            bits=name not in SOLVED, rounded_anew=how["backend"] != "torch" and words.get("by") == "channel",
        )  # fmt: skip


def _renamed(part: Values) -> Values:
    """wkv7 calls its query r."""
    return {"r" if n == "q" and "remove" in part else n: x for n, x in part.items()}
