"""Properties of every recurrent op, as checks that the tests of each op call with its equation.

A Rule names the op, its equation in float64, and which inputs run along time. States are the tensors of a MatrixState;
`value` turns one into what it stands for, where the same memory can be written in more than one way.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from linnet.ops.state import MatrixState

EXACT, SINGLE = 1e-10, 2e-5  # of the largest number
FORMS = ("parallel", "chunked", "recurrent")


class Rule(NamedTuple):
    op: Callable[..., Any]
    equation: Callable[..., tuple[Tensor, Tensor]]  # (*inputs, value of the state) -> out, value of the state
    draw: Callable[[int], list[Tensor]]  # length -> inputs and, last, a state
    timed: tuple[bool, ...]  # which inputs are [B,T,...]
    value: Callable[[Tensor], Tensor] = lambda s: s

    def run(self, inputs: list[Tensor], state: Tensor | None, **how: Any) -> tuple[Tensor, Tensor]:
        start = None if state is None else MatrixState(state)
        out, end = self.op(*inputs, initial_state=start, output_final_state=True, **how)
        return out, end.s

    def part(self, inputs: list[Tensor], lo: int, hi: int) -> list[Tensor]:
        return [x[:, lo:hi] if timed else x for x, timed in zip(inputs, self.timed, strict=True)]


def single(rule: Rule) -> Rule:
    """The same in float32, as the native kernels compute."""
    return rule._replace(draw=lambda length: [x.float() for x in rule.draw(length)])


def assert_close(found: Any, want: Any, limit: float | None = None) -> None:
    """`limit` None: what the dtype of `found` allows."""
    for i, (a, b) in enumerate(zip(found, want, strict=True)):
        assert a.shape == b.shape
        if b.numel():
            off = (a.detach().double() - b.detach().double()).abs().max() / b.detach().abs().max().clamp(min=1e-3)
            allowed = limit or (EXACT if a.dtype == torch.float64 else SINGLE)
            assert off <= allowed, f"result {i} is off by {off:.1e}"


def slopes(outs: tuple[Tensor, ...], inputs: list[Tensor], **how: Any) -> tuple[Tensor, ...]:
    loss = sum((x.double() * torch.arange(x.numel()).double().cos().view(x.shape)).sum() for x in outs)
    return torch.autograd.grad(loss, inputs, materialize_grads=True, **how)  # type: ignore[arg-type]


def leaves(tensors: list[Tensor], dtype: torch.dtype | None = None) -> list[Tensor]:
    return [x.detach().to(dtype or x.dtype, copy=True).requires_grad_() for x in tensors]


def check_equation(rule: Rule, form: str, length: int, dtype: torch.dtype = torch.float64, **how: Any) -> None:
    """Outputs, the last state and all gradients are those of the equation."""
    given = leaves(rule.draw(length), dtype)
    exact = leaves(given, torch.float64)
    out, end = rule.run(given[:-1], given[-1], form=form, **how)
    assert out.dtype == end.dtype == dtype
    found, want = (out, rule.value(end)), rule.equation(*exact[:-1], rule.value(exact[-1]))
    limit = EXACT if dtype == torch.float64 else SINGLE
    assert_close(found, want, limit)
    assert_close(slopes(found, given), slopes(want, exact), limit)


def check_splits(rule: Rule, form: str, length: int = 11, **how: Any) -> None:
    """Any split, empty parts and single tokens among them, gives the whole; so do zeros for a state."""
    *inputs, state = rule.draw(length)
    whole = rule.run(inputs, state, form=form, chunk_size=4, **how)
    for cuts in ([0, 0, 3, length], [*range(length + 1)]):
        outs, now = [], state
        for lo, hi in itertools.pairwise(cuts):
            out, now = rule.run(rule.part(inputs, lo, hi), now, form=form, chunk_size=4, **how)
            outs.append(out)
        assert_close([torch.cat(outs, dim=1), now], whole)
    empty = torch.zeros_like(state)
    assert_close(rule.run(inputs, None, form=form, chunk_size=4, **how), rule.run(inputs, empty, form=form, **how))


def check_padding(rule: Rule, form: str, length: int = 9, **how: Any) -> None:
    """NaN in the padding, before, between and behind, reaches neither outputs nor states nor gradients."""
    *inputs, state = rule.draw(length)
    mask = torch.ones(state.shape[0], length + 5, dtype=torch.bool)
    mask[:, [0, 1, 5, length + 3, length + 4]] = False
    wide = []
    for x, timed in zip(inputs, rule.timed, strict=True):
        y = x.new_full((x.shape[0], length + 5, *x.shape[2:]), torch.nan) if timed else x.clone()
        if timed:
            y[mask] = x.flatten(0, 1)
        wide.append(y)
    for start in (state, torch.zeros_like(state)):
        plain, padded = leaves([*inputs, start]), leaves([*wide, start])
        want = rule.run(plain[:-1], plain[-1], form=form, chunk_size=4, **how)
        out, end = rule.run(padded[:-1], padded[-1], form=form, chunk_size=4, mask=mask, **how)
        assert torch.equal(out[~mask], torch.zeros_like(out[~mask]))
        found = (out[mask].view(want[0].shape), end)
        assert_close(found, want)
        found, want = ((y, rule.value(s)) for y, s in (found, want))
        for a, b, timed in zip(slopes(found, padded), slopes(want, plain), (*rule.timed, False), strict=True):
            assert_close([a[mask].view(b.shape) if timed else a], [b])
            assert not timed or not a[~mask].any()


def check_only_padding(rule: Rule, form: str, **how: Any) -> None:
    """Nothing but padding leaves the state as it was, to the last bit."""
    *inputs, state = rule.draw(3)
    mask = torch.zeros(state.shape[0], 3, dtype=torch.bool)
    for start in (state, torch.zeros_like(state)):
        out, end = rule.run(inputs, start, form=form, mask=mask, **how)
        assert torch.equal(end, start)
        assert not out.any()


def check_causality(rule: Rule, form: str, length: int = 10, **how: Any) -> None:
    """A changed token changes its own output and later ones, and none before."""
    *inputs, state = rule.draw(length)
    out, _ = rule.run(inputs, state, form=form, chunk_size=4, **how)
    for at in (0, 5, length - 1):
        changed = [x.clone() if timed else x for x, timed in zip(inputs, rule.timed, strict=True)]
        for x, timed in zip(changed, rule.timed, strict=True):
            if timed:
                x[:, at] *= 0.5
        new, _ = rule.run(changed, state, form=form, chunk_size=4, **how)
        assert torch.equal(new[:, :at], out[:, :at])
        assert ((new - out)[:, at:].abs().flatten(2).amax((0, 2)) > 1e-6).all()


def check_second_derivatives(rule: Rule, length: int = 5, **how: Any) -> None:
    """The gradient of a gradient, through the form that training runs, is that of the equation; also in two calls."""
    for cuts in ([0, length], [0, 2, length]):
        found, want = leaves(rule.draw(length)), leaves(rule.draw(length), torch.float64)
        outs, end = [], found[-1]
        for lo, hi in itertools.pairwise(cuts):
            part = rule.part(found[:-1], lo, hi)
            out, end = rule.run(part, end, form="chunked", chunk_size=2, **how)
            outs.append(out)
        first = slopes((torch.cat(outs, dim=1), rule.value(end)), found, create_graph=True)
        known = slopes(rule.equation(*want[:-1], rule.value(want[-1])), want, create_graph=True)
        assert_close(slopes(tuple(x.square() for x in first), found), slopes(tuple(x.square() for x in known), want))
