"""Softmax attention in full, through a window and over LSH buckets: one equation, three rules of who sees whom."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from linnet.ops.softmax.full import softmax_attention, softmax_attention_step
from linnet.ops.softmax.lsh import lsh_attention
from linnet.ops.softmax.window import sliding_window_attention, sliding_window_attention_step
from tests.fuzz import draws, measure
from tests.fuzz.measure import Values
from tests.fuzz.trial import Trial


def attention(q: Tensor, k: Tensor, v: Tensor, seen: Tensor, scale: float) -> Tensor:
    """Query t sees key j where seen [B,H or 1,T,S]; a query that sees nothing answers 0."""
    scores = scale * torch.einsum("bthd,bshd->bhts", q, k)
    some = seen.any(-1, keepdim=True)
    scores = torch.where(seen, scores, torch.where(some, -torch.inf, 0.0))
    weights = torch.where(some & seen, _softmax(scores), 0.0) if k.shape[1] else scores
    return torch.einsum("bhts,bshv->bthv", weights, v)


def _softmax(scores: Tensor) -> Tensor:
    """Softmax; with rounding errors in steps, since its gradient is a difference that torch takes inside one operation.

    It shows in a window of one token: the difference is 0, and a kernel returns what rounding left of its terms.
    """
    if not measure.rounding:
        return scores.softmax(-1)
    weights = (scores - scores.detach().amax(-1, keepdim=True)).exp()
    return weights / weights.sum(-1, keepdim=True)


def softmax_trial(rng: random.Random, g: torch.Generator) -> Trial:
    c = _Common(rng, g, causal=rng.random() < 0.75)

    def seen(x: Values) -> Tensor:
        ok = c.real[:, None, :].expand(c.B, c.Tq, c.T)
        return (ok & c.before & c.real[:, :, None] if c.causal else ok)[:, None]

    def op(q: Tensor, k: Tensor, v: Tensor, **how: Any) -> Any:
        return softmax_attention(q, k, v, causal=c.causal, **how)

    return c.trial("softmax_attention", op, softmax_attention_step, seen, {})


def window_trial(rng: random.Random, g: torch.Generator) -> Trial:
    c, window = _Common(rng, g), rng.choice([1, 2, 3, 5, 8, 16, 64, 70])

    def seen(x: Values) -> Tensor:
        rank = c.real.cumsum(1)  # counts real tokens: padding takes no place in a window
        near = rank[:, :, None] - rank[:, None, :] < window
        return (c.real[:, None, :] & c.real[:, :, None] & c.before & near)[:, None]

    def op(q: Tensor, k: Tensor, v: Tensor, **how: Any) -> Any:
        return sliding_window_attention(q, k, v, window=window, **how)

    def step(*tokens: Tensor, **how: Any) -> Any:
        return sliding_window_attention_step(*tokens, window=window, **how)

    return c.trial("sliding_window", op, step, seen, {"window": window})


def lsh_trial(rng: random.Random, g: torch.Generator) -> Trial:
    c = _Common(rng, g, shared=True, causal=rng.random() < 0.75)
    span, rounds, form = (
        rng.choice([1, 2, 4, 16]),
        rng.choice([1, 2, 3]),
        rng.choice(["auto", "parallel", "chunked", "recurrent"]),
    )
    turns = torch.randn(rounds, c.H, rng.choice([1, 2, 4]), c.D, generator=g, dtype=torch.float64)

    def seen(x: Values) -> Tensor:
        near = torch.zeros(c.B, c.H, c.T, c.T, dtype=torch.bool)
        along = torch.einsum("bthd,rhnd->rbhtn", _unit(x["q"]).detach(), turns)
        for bucket in torch.cat([along, -along], -1).argmax(-1):  # [B,H,T]
            same = (bucket[..., :, None] == bucket[..., None, :]) & c.real[:, None, None, :] & c.real[:, None, :, None]
            rank = same.cumsum(-1)  # of key j among those of the bucket of t
            gap = rank.diagonal(dim1=-2, dim2=-1)[..., None] - rank
            near |= same & ((gap > 0) & (gap <= span) if c.causal else (gap != 0) & (gap.abs() <= span))
        alone = ~near.any(-1, keepdim=True) & torch.eye(c.T, dtype=torch.bool) & c.real[:, None, :, None]
        return near | alone

    def op(q: Tensor, k: Tensor, v: Tensor, **how: Any) -> Any:
        return lsh_attention(q, v, turns.to(q.dtype), span=span, causal=c.causal, form=form, **how)

    found = c.trial("lsh_attention", op, None, seen, {"span": span, "rounds": rounds, "form": form})
    turns, found.bits = turns.to(c.dtype).double(), False  # sums follow the order of the buckets
    return found


def _unit(q: Tensor) -> Tensor:
    return q * (q.square().sum(-1, keepdim=True) + 1e-12).rsqrt()


class _Common:
    def __init__(self, rng: random.Random, g: torch.Generator, causal: bool = True, shared: bool = False) -> None:
        self.rng, self.causal, self.shared = rng, causal, shared
        self.dtype = rng.choice([torch.float64, torch.float32] if shared else draws.DTYPES)
        self.B, self.T, self.H = rng.choice([1, 2, 3]), rng.choice([*draws.LENGTHS, 80, 150]), rng.choice([1, 2, 3])
        self.D = rng.choice([2, 3, 4, 8] if shared else draws.WIDTHS)
        self.V = rng.choice([self.D, *draws.WIDTHS])
        self.packed = rng.random() < 0.2
        self.B = 1 if self.packed else self.B
        self.offsets = draws.offsets(rng, self.T) if self.packed else None
        self.Tq = self.T if causal or shared or self.packed else rng.choice(draws.LENGTHS)
        self.kind, self.mask = draws.padding(rng, self.B, self.T)
        self.real = torch.ones(self.B, self.T, dtype=torch.bool) if self.mask is None else self.mask
        self.before = (
            torch.ones(self.Tq, self.T, dtype=torch.bool).tril() if causal else torch.ones(self.Tq, self.T).bool()
        )
        size = rng.choice([0.3, 1.0, 3.0])
        self.inputs = {"q": draws.normal(g, self.dtype, self.B, self.Tq, self.H, self.D, size=size)}
        if not shared:
            self.inputs["k"] = draws.normal(g, self.dtype, self.B, self.T, self.H, self.D)
        self.inputs["v"] = draws.normal(g, self.dtype, self.B, self.T, self.H, self.V)

    def trial(self, name: str, op: Any, step: Any, seen: Any, words: dict[str, Any]) -> Trial:
        rng, mask, offsets = self.rng, self.mask, self.offsets
        scale = rng.choice([None, None, 0.3, 1.0])
        one_by_one = (
            step is not None and self.causal and mask is None and not self.packed and self.T and rng.random() < 0.15
        )
        cuts = draws.cuts(rng, self.T) if self.causal and not self.packed else [0, self.T]
        words = {"op": name, "dtype": self.dtype, "padding": self.kind, "offsets": offsets, "scale": scale, **words}
        words |= {"causal": self.causal, "cuts": cuts, "step": bool(one_by_one)}
        words |= {"sizes": f"B{self.B} Tq{self.Tq} T{self.T} H{self.H} D{self.D} V{self.V}"}

        def run(x: Values) -> Values:
            past, outs = None, []
            if one_by_one:
                for t in range(self.T):
                    out, past = step(*(x[n][:, t] for n in "qkv"), state=past, scale=scale)
                    outs.append(out)
                return {"out": torch.stack(outs, 1)}
            for at in draws.spans(cuts) if self.causal else [slice(None)]:
                q, k, v = x["q"][:, at], x.get("k", x["q"])[:, at], x["v"][:, at]
                how = {"mask": None if mask is None else mask[:, at], "initial_state": past, "scale": scale}
                out, past = op(q, k, v, cu_seqlens=offsets, output_final_state=len(cuts) > 2, **how)
                outs.append(out)
            return {"out": torch.cat(outs, 1)}

        def truth(x: Values) -> Values:
            q, k, v = x["q"], _unit(x["q"]) if self.shared else x["k"], x["v"]
            factor = self.D**-0.5 if scale is None else scale
            if offsets is None:
                return {"out": attention(q, k, v, seen(x), factor)}
            return {"out": torch.cat([_one(self, x, lo, hi, seen, factor) for lo, hi in pairwise(offsets)], 1)}

        pad = None if mask is None else ~mask
        names = [n for n in self.inputs if n != "q" or self.causal or self.shared]
        padded = {} if pad is None else dict.fromkeys(names, pad)
        silent = pad if self.causal or self.shared else None
        future = tuple(self.inputs) if self.causal else ()
        return Trial(
            words,
            self.inputs,
            run,
            truth,
            self.dtype,
            padded=padded,
            silent=silent,
            future=future,
            offsets=offsets,
            twice=False,
        )


def _one(c: _Common, x: Values, lo: int, hi: int, seen: Any, scale: float) -> Tensor:
    """One packed sequence by itself."""
    whole = (c.T, c.Tq, c.real, c.before)
    c.T = c.Tq = hi - lo
    c.real, c.before = c.real[:, lo:hi], c.before[lo:hi, lo:hi]
    part = {n: y[:, lo:hi] for n, y in x.items()}
    k = _unit(part["q"]) if c.shared else part["k"]
    out = attention(part["q"], k, part["v"], seen(part), scale)
    c.T, c.Tq, c.real, c.before = whole
    return out
