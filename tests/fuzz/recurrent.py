"""Ops that carry a matrix or a few numbers from token to token: decayed attention, delta rules, RWKV-4 and 7, Mamba.

S_t = A_t S_{t-1} + N_t,   out_t = S_t^T q_t          one equation for all whose state is a matrix; A, N from the op
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from linnet.ops.decay import decayed_attention, decayed_attention_step
from linnet.ops.delta import delta_rule, delta_rule_step
from linnet.ops.selective_scan import selective_scan
from linnet.ops.wkv import wkv
from linnet.ops.wkv7 import wkv7
from tests.fuzz import draws
from tests.fuzz.measure import Values
from tests.fuzz.trial import Trial

SOLVED = ("delta_rule", "wkv7")  # by triangular systems, whose last bits LAPACK leaves open from batch to batch
FORMS = ["auto", "parallel", "chunked", "recurrent"]
Draw = Callable[[random.Random, torch.Generator, torch.dtype, dict[str, Any]], tuple[Values, tuple[str, ...]]]


def recurrence(change: Tensor, new: Tensor, q: Tensor, s: Tensor, mask: Tensor | None) -> Values:
    """change [B,T,H,D,D], new [B,T,H,D,V], q [B,T,H,D], s [B,H,D,V]: out [B,T,H,V] and the last state."""
    outs = []
    for t in range(q.shape[1]):
        real = torch.ones(len(s), dtype=torch.bool) if mask is None else mask[:, t]
        s = torch.where(real[:, None, None, None], change[:, t] @ s + new[:, t], s)
        outs.append((s * q[:, t, :, :, None]).sum(2) * real[:, None, None])
    empty = q.new_zeros(*q.shape[:3], s.shape[-1])
    return {"out": torch.stack(outs, 1) if outs else empty, "s": s}


def outer(a: Tensor, b: Tensor) -> Tensor:
    return a[..., :, None] * b[..., None, :]


def fade(x: Values, D: int) -> Tensor:
    """exp(decay) as [B,T,H,D]."""
    decay = x["decay"].clamp(min=-100.0)
    return (
        (decay if decay.ndim == 4 else decay[..., None].expand(*decay.shape, D)).exp().expand(len(x["k"]), -1, -1, -1)
    )


def decay_trial(rng: random.Random, g: torch.Generator) -> Trial:
    def truth(x: Values, mask: Tensor | None) -> Values:
        change = torch.diag_embed(fade(x, x["q"].shape[3]))
        return recurrence(change, outer(x["k"], x["v"]), x["q"], x["s0"], mask)

    c = _Common(rng, g)
    q, k, v = c.normal(c.D), c.normal(c.D), c.normal(c.V)
    by = rng.choice(["head", "channel", "shared"])
    shape = (1 if by == "shared" else c.B, c.T, c.H, *([c.D] if by == "channel" else []))
    decay = -draws.uniform(g, c.dtype, *shape, high=rng.choice([0.01, 1.0, 20.0]))
    inputs = {"q": q, "k": k, "v": v, "decay": decay}
    future = ("k", "v", "q") if by == "shared" else ("k", "v", "q", "decay")
    names = ("q", "k", "v", "decay")
    return c.trial(
        "decayed_attention", decayed_attention, decayed_attention_step, inputs, names, truth, future, {"by": by}
    )


def delta_trial(rng: random.Random, g: torch.Generator) -> Trial:
    c = _Common(rng, g)
    gated = rng.random() < 0.5

    def truth(x: Values, mask: Tensor | None) -> Values:
        k, rate = x["k"], x["beta"][..., None, None]
        change = torch.eye(c.D, dtype=torch.float64) - rate * outer(k, k)
        if gated:
            change = change * x["decay"].clamp(min=-100.0).exp()[..., None, None]
        return recurrence(change, rate * outer(k, x["v"]), x["q"], x["s0"], mask)

    k = normalize(c.normal(c.D), dim=-1).to(c.dtype).double()
    beta = draws.uniform(g, c.dtype, c.B, c.T, c.H, high=rng.choice([1.0, 2.0]))
    inputs = {"q": c.normal(c.D), "k": k, "v": c.normal(c.V), "beta": beta}
    if gated:
        inputs["decay"] = -draws.uniform(g, c.dtype, c.B, c.T, c.H, high=rng.choice([0.01, 1.0, 20.0]))
    names = tuple(inputs)
    return c.trial("delta_rule", delta_rule, delta_rule_step, inputs, names, truth, names, {"gated": gated})


def wkv7_trial(rng: random.Random, g: torch.Generator) -> Trial:
    c = _Common(rng, g)

    def truth(x: Values, mask: Tensor | None) -> Values:
        change = torch.diag_embed(x["decay"].exp()) - outer(x["rate"] * x["remove"], x["remove"])
        return recurrence(change, outer(x["k"], x["v"]), x["q"], x["s0"], mask)

    decay = -draws.uniform(g, c.dtype, c.B, c.T, c.H, c.D, high=rng.choice([0.01, 0.6, 20.0]))
    remove = normalize(c.normal(c.D), dim=-1).to(c.dtype).double()
    inputs = {"q": c.normal(c.D), "decay": decay, "k": c.normal(c.D), "v": c.normal(c.V), "remove": remove}
    inputs["rate"] = draws.uniform(g, c.dtype, c.B, c.T, c.H, c.D)
    return c.trial("wkv7", wkv7, None, inputs, tuple(inputs), truth, tuple(inputs), {})


def scan_trial(rng: random.Random, g: torch.Generator) -> Trial:
    c = _Common(rng, g)
    E, N = c.H, c.D

    def truth(x: Values, mask: Tensor | None) -> Values:
        change = (x["dt"][..., None] * x["a"]).exp()  # [B,T,E,N]
        new = (x["dt"] * x["x"])[..., None] * x["b"][:, :, None]
        outs, s = [], x["s0"]
        for t in range(c.T):
            real = torch.ones(c.B, dtype=torch.bool) if mask is None else mask[:, t]
            s = torch.where(real[:, None, None], change[:, t] * s + new[:, t], s)
            outs.append((s * x["c"][:, t, None]).sum(-1) * real[:, None])
        return {"out": torch.stack(outs, 1) if outs else x["x"] * 0, "s": s}

    inputs = {"x": c.plain(E), "dt": draws.uniform(g, c.dtype, c.B, c.T, E)}
    inputs["a"] = -draws.uniform(g, c.dtype, E, N, low=0.1, high=rng.choice([1.0, 30.0]))
    inputs |= {"b": c.plain(N), "c": c.plain(N)}
    state = draws.normal(g, torch.float32, c.B, E, N, size=c.past)
    return c.trial(
        "selective_scan", selective_scan, None, inputs, tuple(inputs), truth, ("x", "dt", "b", "c"), {}, state
    )


def wkv_trial(rng: random.Random, g: torch.Generator) -> Trial:
    c = _Common(rng, g)
    E = c.D

    def truth(x: Values, mask: Tensor | None) -> Values:
        n, d = _wkv_value(torch.cat([x["s0"], state[:, 2:]], 1)).unbind(1)
        outs = []
        for t in range(c.T):
            real = (torch.ones(c.B, dtype=torch.bool) if mask is None else mask[:, t])[:, None]
            now, key = (x["bonus"] + x["k"][:, t]).exp(), x["k"][:, t].exp()
            outs.append((n + now * x["v"][:, t]) / (d + now) * real)
            keep = (-x["decay"]).exp()
            n = torch.where(real, keep * n + key * x["v"][:, t], n)
            d = torch.where(real, keep * d + key, d)
        return {"out": torch.stack(outs, 1) if outs else x["v"] * 0, "s": torch.stack([n, d], 1)}

    inputs = {"k": c.plain(E) * rng.choice([1.0, 2.0]), "v": c.plain(E)}
    inputs["decay"] = draws.uniform(g, c.dtype, E, low=0.01, high=rng.choice([0.1, 2.0, 20.0]))
    inputs["bonus"] = draws.normal(g, c.dtype, E)
    n, p = (draws.normal(g, torch.float32, c.B, E) for _ in range(2))
    d = draws.uniform(g, torch.float32, c.B, E, low=1.0, high=2.0)
    state = torch.stack([n, d, p], dim=1) * c.past

    def op(*parts: Tensor, initial_state: Tensor | None, **how: Any) -> Any:
        """The exponents of a state are held fixed in gradients, and the empty state has none."""
        if initial_state is not None and initial_state.shape[1] == 2:
            initial_state = torch.cat([initial_state, state[:, 2:].to(initial_state.dtype)], 1)
        return wkv(*parts, initial_state=initial_state, **how)

    found = c.trial("wkv", op, None, inputs, tuple(inputs), truth, ("k", "v"), {}, state[:, :2], _wkv_value)
    found.fixed = () if c.past else ("s0",)
    return found


def _wkv_value(s: Tensor) -> Tensor:
    """Numerator and denominator of a state: its exponent is a matter of form."""
    return s[:, :2] * s[:, 2:].exp()


class _Common:
    """What all of these draw: sizes, dtype, padding, cuts, a state."""

    def __init__(self, rng: random.Random, g: torch.Generator) -> None:
        self.rng, self.g = rng, g
        self.dtype = rng.choice(draws.DTYPES)
        self.B, self.T, self.H = rng.choice([1, 2, 3]), rng.choice(draws.LENGTHS), rng.choice([1, 2, 3])
        self.D, self.V = rng.choice([1, 2, 3, 4, 5, 8]), rng.choice([1, 2, 3, 5, 8])
        self.kind, self.mask = draws.padding(rng, self.B, self.T)
        self.past = float(rng.random() < 0.5)
        self.cuts = draws.cuts(rng, self.T)

    def normal(self, width: int) -> Tensor:
        return draws.normal(self.g, self.dtype, self.B, self.T, self.H, width)

    def plain(self, width: int) -> Tensor:
        return draws.normal(self.g, self.dtype, self.B, self.T, width)

    def trial(
        self, name: str, op: Any, step: Any, inputs: Values, names: tuple[str, ...], truth: Any,
        future: tuple[str, ...], words: dict[str, Any], state: Tensor | None = None,
        value: Callable[[Tensor], Tensor] = lambda s: s,
    ) -> Trial:  # fmt: skip
        rng, mask = self.rng, self.mask
        if state is None:
            state = draws.normal(self.g, torch.float32, self.B, self.H, self.D, self.V, size=self.past)
        given = self.past > 0 or rng.random() < 0.3
        how = {"form": rng.choice(FORMS), "chunk_size": rng.choice([1, 2, 3, 4, 8, 16, 32])}
        one_by_one = step is not None and mask is None and self.T > 0 and rng.random() < 0.15
        timed = [n for n in names if inputs[n].ndim > 2 and inputs[n].shape[1] == self.T and n != "a"]
        state_dtype = torch.float64 if self.dtype == torch.float64 else rng.choice([torch.float32, torch.float64])
        inputs = inputs | ({"s0": state} if given else {})
        words = {"op": name, "dtype": self.dtype, "state": given and state_dtype, "padding": self.kind, **words, **how}
        words |= {"sizes": f"B{self.B} T{self.T} H{self.H} D{self.D} V{self.V}", "cuts": self.cuts, "step": one_by_one}

        def run(x: Values) -> Values:
            past, outs = x.get("s0"), []
            for at in draws.spans(list(range(self.T + 1)) if one_by_one else self.cuts):
                part = [x[n][:, at] if n in timed else x[n] for n in names]
                if one_by_one:
                    out, past = step(*(y[:, 0] for y in part), state=past)
                    outs.append(out[:, None])
                    continue
                masked = None if mask is None else mask[:, at]
                out, past = op(*part, initial_state=past, output_final_state=True, mask=masked, **how)
                outs.append(out)
            assert past is not None
            return {"out": torch.cat(outs, 1), "s": value(past)}

        def exact(x: Values) -> Values:
            return truth(x if "s0" in x else x | {"s0": torch.zeros_like(state)}, mask)

        pad = None if mask is None else ~mask
        padded = {} if pad is None else {n: pad for n in timed if inputs[n].shape[0] == self.B}
        dtypes = {"s0": state_dtype}
        logs = ("decay",) if "decay" in inputs else ()
        return Trial(
            words,
            inputs,
            run,
            exact,
            self.dtype,
            dtypes,
            padded,
            pad,
            future=future,
            logs=logs,
            bits=name not in SOLVED,
        )
