"""The rules of `linnet bench ops --family gated`: inputs such as their layers make, the op, and its float64 truth.

    RULES[name].draw(case) -> inputs by name      .op(**inputs, backend=...)      .truth(**inputs) of ops/gated/naive.py

The truth goes token by token. Its gradients are taken segment by segment, from the last to the first, so that the graph
of one segment is in memory and not that of the whole sequence.
B batch, T time, H heads, D key width, V value width, E = H D channels, N numbers per channel
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import exp
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, normalize, silu, softplus

from ...ops import decayed_attention, delta_rule, selective_scan, wkv, wkv7
from ...ops.gated import naive
from .gated import RuleCase
from .sizes import BOTH

SEGMENT = 128
N = 16  # numbers per channel of the selective scan, as in Mamba
SLOW = -4.0  # added to the inputs of a softplus or sigmoid: steps near 0.02, as layers begin
TOLERANCE = 1e-4  # of the largest number in the reference, float32

Named = dict[str, Tensor]
Draw = Callable[..., Tensor]


class Rule(NamedTuple):
    op: Callable[..., tuple[Tensor, Any]]
    truth: Callable[..., tuple[Tensor, Tensor]]
    draw: Callable[[RuleCase, Draw], Named]
    about: str
    constant: tuple[str, ...] = ()  # inputs without a gradient


def _qkv(case: RuleCase, draw: Draw) -> Named:
    B, T, H, D = case.batch, case.length, case.heads, case.head_dim
    return {"q": draw(B, T, H, D) * D**-0.5, "k": draw(B, T, H, D), "v": draw(B, T, H, case.value_dim)}


def _by_head(case: RuleCase, draw: Draw) -> Tensor:
    """-rate * step with rates from 1 to 16, as Mamba-2 and the gated delta rule have it."""
    return -torch.linspace(1, 16, case.heads) * softplus(draw(case.batch, case.length, case.heads) + SLOW)


def _retnet(case: RuleCase, draw: Draw) -> Named:
    rates = torch.log1p(-(2.0 ** (-5 - torch.arange(case.heads))))
    return _qkv(case, draw) | {"decay": rates.expand(1, case.length, -1)}


def _gla(case: RuleCase, draw: Draw) -> Named:
    given = _qkv(case, draw)
    return given | {"decay": logsigmoid(draw(*given["k"].shape)) / 16}


def _mamba2(case: RuleCase, draw: Draw) -> Named:
    return _qkv(case, draw) | {"decay": _by_head(case, draw)}


def _delta(case: RuleCase, draw: Draw) -> Named:
    given = _qkv(case, draw)
    k = normalize(given["k"], dim=-1)
    return given | {"k": k, "beta": draw(*k.shape[:3]).sigmoid()}


def _gated_delta(case: RuleCase, draw: Draw) -> Named:
    return _delta(case, draw) | {"decay": _by_head(case, draw)}


def _kda(case: RuleCase, draw: Draw) -> Named:
    given = _delta(case, draw)
    rates = torch.linspace(1, 16, case.heads)[:, None]
    return given | {"decay": -rates * softplus(draw(*given["k"].shape) + SLOW)}


def _rwkv7(case: RuleCase, draw: Draw) -> Named:
    given = _qkv(case, draw)
    shape, k = given["k"].shape, given["k"] * case.head_dim**-0.5
    decay, rate = -exp(-0.5) * (draw(*shape) + SLOW).sigmoid(), draw(*shape).sigmoid()
    return {"r": given["q"], "decay": decay, "k": k, "v": given["v"], "remove": normalize(k, dim=-1), "rate": rate}


def _selective_scan(case: RuleCase, draw: Draw) -> Named:
    B, T, E = case.batch, case.length, case.channels
    x, dt = silu(draw(B, T, E)), softplus(draw(B, T, E) + SLOW)
    return {"x": x, "dt": dt, "a": -torch.arange(1.0, N + 1).repeat(E, 1), "b": draw(B, T, N), "c": draw(B, T, N)}


def _wkv(case: RuleCase, draw: Draw) -> Named:
    B, T, E = case.batch, case.length, case.channels
    place = torch.arange(E) / max(E - 1, 1)
    return {"k": draw(B, T, E), "v": draw(B, T, E), "decay": torch.exp(-5 + 8 * place**0.7), "bonus": draw(E)}


RULES = {
    "retnet": Rule(decayed_attention, naive.decayed_attention, _retnet, "a fixed decay per head", ("decay",)),
    "gla": Rule(decayed_attention, naive.decayed_attention, _gla, "a decay per key channel"),
    "mamba2": Rule(decayed_attention, naive.decayed_attention, _mamba2, "a decay per head"),
    "delta": Rule(delta_rule, naive.delta_rule, _delta, "erases, no decay"),
    "gated_delta": Rule(delta_rule, naive.delta_rule, _gated_delta, "erases, a decay per head"),
    "kda": Rule(delta_rule, naive.delta_rule, _kda, "erases, a decay per key channel"),
    "rwkv7": Rule(wkv7, naive.wkv7, _rwkv7, "removes and writes with two keys, a decay per key channel"),
    "selective_scan": Rule(selective_scan, naive.selective_scan, _selective_scan, f"Mamba, {N} numbers per channel"),
    "wkv": Rule(wkv, naive.wkv, _wkv, "RWKV-4, a weighted average per channel"),
}


class Given:
    """The inputs of a case, which of them learn, the gradient `g` of the output, and the truth, once it is needed."""

    def __init__(self, case: RuleCase) -> None:
        self.rule, generator = RULES[case.rule], torch.Generator().manual_seed(0)

        def draw(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator)

        self.inputs = self.rule.draw(case, draw)
        self.learned = tuple(name for name in self.inputs if name not in self.rule.constant)
        like = next(self.inputs[name] for name in ("v", "x") if name in self.inputs)
        self.g = draw(*like.shape)
        self.known: dict[str, tuple[Tensor, ...]] = {}

    def truth(self, mode: str) -> tuple[Tensor, ...]:
        """Return out, and with the backward pass the gradients of the inputs that learn."""
        if BOTH in self.known:
            return self.known[BOTH] if mode == BOTH else self.known[BOTH][:1]
        if mode not in self.known:
            self.known[mode] = truth(self.rule, self.inputs, self.learned, self.g if mode == BOTH else None)
        return self.known[mode]


@lru_cache(maxsize=len(RULES))
def given(rule: str, streams: int, length: int, head_dim: int) -> Given:
    """Return the same inputs for every mode and number of threads; the reference comes with them."""
    return Given(RuleCase(1, streams, length, head_dim, head_dim, rule=rule))


def truth(rule: Rule, inputs: Named, learned: tuple[str, ...], g: Tensor | None) -> tuple[Tensor, ...]:
    """Return the output of the equation in float64 and, given the gradient of the output, those of `learned`."""
    length = max(x.shape[1] for x in inputs.values() if x.ndim > 2)
    timed = {name for name, x in inputs.items() if x.ndim > 2}
    wide = {name: x.double() for name, x in inputs.items()}

    def part(start: int) -> Named:
        return {name: x[:, start : start + SEGMENT] if name in timed else x for name, x in wide.items()}

    starts, outs = range(0, length, SEGMENT), []
    states: list[Tensor | None] = []  # before each segment
    s: Tensor | None = None
    with torch.no_grad():
        for start in starts:
            states.append(s)
            out, s = rule.truth(**part(start), s=s)
            outs.append(out)
    if g is None:
        return (torch.cat(outs, dim=1),)
    grads = {name: torch.zeros_like(wide[name]) for name in learned}
    gs: Tensor | None = None
    for start, before in reversed(list(zip(starts, states, strict=True))):
        own = {name: x.detach().requires_grad_(name in learned) for name, x in part(start).items()}
        first = None if before is None else before.detach().requires_grad_()
        out, s = rule.truth(**own, s=first)
        upstream = [g[:, start : start + SEGMENT].double(), *([] if gs is None else [gs])]
        wanted = [own[name] for name in learned] + ([] if first is None else [first])
        gradients = list(torch.autograd.grad([out, s][: len(upstream)], wanted, upstream))
        gs = None if first is None else gradients.pop()
        for name, gradient in zip(learned, gradients, strict=True):
            (grads[name][:, start : start + SEGMENT] if name in timed else grads[name]).add_(gradient)
    return torch.cat(outs, dim=1), *grads.values()
