"""Attention that forgets against its recurrence in float64: outputs, states, gradients, splits, padding, strength."""

from __future__ import annotations

from itertools import pairwise
from math import inf
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

from linnet.errors import StateError
from linnet.ops.gated import naive
from linnet.ops.gated.decay import decayed_attention, decayed_attention_step, state_bytes
from linnet.ops.state import MatrixState

EXACT, SINGLE = 1e-10, 2e-5  # of the largest number
HALF = {torch.bfloat16: 8e-3, torch.float16: 1e-3}  # the output is rounded once
B, H, D, V = 2, 3, 5, 4
every_form = pytest.mark.parametrize("form", ["parallel", "chunked", "recurrent"])
both_kinds = pytest.mark.parametrize("by", ["head", "channel"])


def draw(length: int, by: str, *, strength: float = 1.0) -> list[Tensor]:
    """q, k, v, decay, s as leaves in float64; every third token hardly fades, the others down to -strength."""
    g = torch.Generator().manual_seed(length)
    q, k, v = (torch.randn(B, length, H, n, generator=g, dtype=torch.float64) for n in (D, D, V))
    decay = -strength * torch.rand(B, length, H, D, generator=g, dtype=torch.float64)
    decay[:, ::3] *= 0.001
    s = torch.randn(B, H, D, V, generator=g, dtype=torch.float64)
    return [x.clone().requires_grad_() for x in (q, k, v, decay if by == "channel" else decay[..., 0], s)]


def run(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, s: Tensor | None, **how: Any) -> tuple[Tensor, Tensor]:
    start = None if s is None else MatrixState(s)
    out, end = decayed_attention(q, k, v, decay, initial_state=start, output_final_state=True, **how)
    assert end is not None
    return out, end.s


def gradients(outs: tuple[Tensor, ...], inputs: list[Tensor]) -> list[Tensor]:
    loss = sum((x.double() * torch.arange(x.numel()).double().cos().view(x.shape)).sum() for x in outs)
    return list(torch.autograd.grad(loss, inputs))  # type: ignore[arg-type]


def close(found: Any, want: Any, limit: float = EXACT) -> None:
    for i, (a, b) in enumerate(zip(found, want, strict=True)):
        assert a.shape == b.shape
        off = (a.detach().double() - b.detach().double()).abs().max() / b.detach().abs().max().clamp(min=1e-3)
        assert off <= limit, f"result {i} is off by {off:.1e}"


def check(found: tuple[Tensor, ...], want: tuple[Tensor, ...], inputs: list[Tensor]) -> None:
    close(found, want)
    close(gradients(found, inputs), gradients(want, inputs))


@every_form
@both_kinds
@pytest.mark.parametrize("strength", [0.0, 30.0, 1000.0])
def test_no_decay_and_strong_decay(form: str, by: str, strength: float) -> None:
    inputs = draw(21, by, strength=strength)
    check(run(*inputs, form=form), naive.decayed_attention(*inputs), inputs)


@every_form
@both_kinds
def test_a_factor_of_zero_is_a_fresh_start(form: str, by: str) -> None:
    q, k, v, decay, s = draw(13, by)
    with torch.no_grad():
        decay[:, 6] = -inf
    out, end = run(q, k, v, decay, s, form=form)
    alone, fresh = run(q[:, 6:], k[:, 6:], v[:, 6:], decay[:, 6:], None, form=form)
    close([out[:, 6:], end], [alone, fresh])
    assert all(bool(g.isfinite().all()) for g in gradients((out, end), [q, k, v, decay, s]))


@every_form
@both_kinds
@pytest.mark.parametrize("strength", [0.1, 30.0])
def test_single_precision(form: str, by: str, strength: float) -> None:
    inputs = draw(70, by, strength=strength)
    want = naive.decayed_attention(*inputs)
    narrow = [x.detach().float().requires_grad_() for x in inputs]
    found = run(*narrow, form=form, chunk_size=64)
    close(found, want, SINGLE)
    close(gradients(found, narrow), gradients(want, inputs), SINGLE)


@both_kinds
def test_a_slow_decay_after_a_strong_one_keeps_its_digits(by: str) -> None:
    """The sums of one chunk reach -2,000, where float32 knows no more than four digits behind the point."""
    inputs = draw(64, by)
    with torch.no_grad():
        inputs[3][:, :32], inputs[3][:, 32:] = -64.123, -0.0123
    found = run(*(x.detach().float() for x in inputs), chunk_size=64)
    close(found, naive.decayed_attention(*(x.detach().float() for x in inputs)), 2e-6)


@every_form
@both_kinds
@pytest.mark.parametrize("edges", [[0, 1, 19], [0, 8, 16, 19], [0, 5, 5, 18, 19]])
def test_any_split_equals_the_whole(form: str, by: str, edges: list[int]) -> None:
    inputs = draw(19, by)
    outs, s = [], inputs[4]
    for lo, hi in pairwise(edges):
        out, s = run(*(x[:, lo:hi] for x in inputs[:4]), s, form=form, chunk_size=8)
        outs.append(out)
    check((torch.cat(outs, dim=1), s), run(*inputs, form=form, chunk_size=8), inputs)


@every_form
@both_kinds
def test_padding_changes_nothing_whatever_stands_in_it(form: str, by: str) -> None:
    inputs = draw(19, by)
    mask = torch.ones(B, 19, dtype=torch.bool)
    mask[0, [0, 1, 7, 18]], mask[1, 5:12] = False, False
    dirty = [x.detach().clone() for x in inputs]
    for x in dirty[:4]:
        x[~mask] = torch.nan
    dirty = [x.requires_grad_() for x in dirty]
    found, want = run(*dirty, mask=mask, form=form, chunk_size=8), naive.decayed_attention(*inputs, mask)
    close(found, want)
    assert not found[0][~mask].any()
    close(gradients(found, dirty), gradients(want, inputs))


@every_form
@both_kinds
def test_the_future_never_changes_the_past(form: str, by: str) -> None:
    inputs = [x.detach() for x in draw(19, by)]
    later = [torch.cat([x[:, :11], -2 * x[:, 11:].abs()], dim=1) for x in inputs[:4]]
    one, other = (run(*x, inputs[4], form=form, chunk_size=8)[0] for x in (inputs[:4], later))
    assert torch.equal(one[:, :11], other[:, :11])
    assert not torch.equal(one[:, 11:], other[:, 11:])


@both_kinds
def test_one_decay_for_all_rows(by: str) -> None:
    q, k, v, decay, s = draw(11, by)
    one = decay.detach()[:1].requires_grad_()
    mask = torch.ones(B, 11, dtype=torch.bool)
    mask[1, 4:6] = False
    for how in ({}, {"mask": mask}):
        inputs = [q, k, v, one, s]
        check(
            run(*inputs, chunk_size=4, **how),
            naive.decayed_attention(q, k, v, one.expand(*decay.shape), s, **how),
            inputs,
        )


@both_kinds
def test_gradients_of_gradients_and_tangents(by: str) -> None:
    inputs = [x.detach()[:1, :, :1, ...].clone().requires_grad_() for x in draw(4, by)[:4]]
    inputs.append(draw(4, by)[4].detach()[:1, :1].clone().requires_grad_())

    def call(*x: Tensor) -> tuple[Tensor, ...]:
        return run(*x, form="chunked", chunk_size=2)

    assert torch.autograd.gradcheck(call, inputs)
    assert torch.autograd.gradgradcheck(call, inputs)
    tangents = tuple(torch.ones_like(x) for x in inputs)
    with forward_ad.dual_level():
        out = call(*(forward_ad.make_dual(x.detach(), t) for x, t in zip(inputs, tangents, strict=True)))[0]
        tangent = forward_ad.unpack_dual(out).tangent
    _, want = torch.autograd.functional.jvp(lambda *x: call(*x)[0], tuple(inputs), tangents)
    close([tangent], [want])
    each = torch.func.vmap(lambda x: call(x[None], *inputs[1:])[0][0])(torch.stack([inputs[0][0]] * 3))
    close(each, [call(*inputs)[0][0]] * 3)


@every_form
@pytest.mark.parametrize("length", [0, 1, 5])
def test_a_forked_state_is_never_altered(form: str, length: int) -> None:
    inputs = [x.detach() for x in draw(length, "channel")]
    kept = [x.clone() for x in inputs]
    out, s = run(*inputs, form=form)
    out.zero_()
    s.zero_()
    assert all(torch.equal(x, y) for x, y in zip(inputs, kept, strict=True))


@every_form
@both_kinds
@pytest.mark.parametrize(("rows", "length"), [(0, 5), (2, 0), (0, 0)])
def test_nothing_at_all(form: str, by: str, rows: int, length: int) -> None:
    inputs = [x.detach()[:rows].requires_grad_() for x in draw(length, by)]
    out, s = run(*inputs, form=form)
    assert out.shape == (rows, length, H, V)
    assert torch.equal(s, inputs[4])
    assert [g.shape for g in gradients((out, s), inputs[4:])] == [inputs[4].shape]


def test_state_bytes_do_not_grow() -> None:
    for length in (1, 9):
        _, s = run(*(x.detach().float() for x in draw(length, "head")))
        assert s.numel() * s.element_size() == B * state_bytes(length, heads=H, key_dim=D, value_dim=V)
    assert state_bytes(1, heads=H, key_dim=D, value_dim=V, dtype=torch.float16) == H * D * V * 4
    assert state_bytes(1, heads=H, key_dim=D, value_dim=V, dtype=torch.float64) == H * D * V * 8


QK, VALUE, DECAY, STATE = (
    torch.zeros(2, 4, 3, 5),
    torch.zeros(2, 4, 3, 6),
    torch.zeros(2, 4, 3),
    torch.zeros(2, 3, 5, 6),
)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": QK.int()}, r"q has dtype torch.int32; .* use q.float\(\)"),
        ({"decay": [0.0]}, "decay is a list; accepted: a torch.Tensor"),
        ({"decay": DECAY[:, :3]}, r"decay has shape \[2, 3, 3\]; accepted: \[B,T,H\] = \[2, 4, 3\] or \[B,T,H,D\] = "),
        ({"decay": torch.zeros(2, 4, 3, 6)}, r"decay has shape \[2, 4, 3, 6\]; .* \[2, 4, 3, 5\]; B may be 1"),
        ({"decay": torch.zeros(())}, r"decay has shape \[\]"),
        ({"decay": DECAY.to("meta")}, r"q is on cpu but decay on meta; use decay.to\(q.device\)"),
        ({"mask": torch.ones(2, 4)}, r"mask has dtype torch.float32; .* use mask.bool\(\)"),
        ({"form": "chunky"}, "unknown form 'chunky'; did you mean 'chunked'"),
        ({"chunk_size": 0}, "chunk_size is 0; accepted: a whole number, 1 or more"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decayed_attention(**{"q": QK, "k": QK, "v": VALUE, "decay": DECAY} | change)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (MatrixState(STATE[:1]), r"s has shape \[1, 3, 5, 6\]; accepted here: \[B,H,D,V\] = \[2, 3, 5, 6\]"),
        (MatrixState(STATE.long()), "torch.int64 on cpu.*; accepted: one dtype out of torch.float32, torch.float64"),
        (STATE, r"initial_state is a Tensor; accepted here: MatrixState; use MatrixState\(s\)"),
        ((STATE,), "the state is a tuple; accepted here: MatrixState"),
        (MatrixState(STATE.to("meta")), r"initial_state is on meta, the inputs on cpu; use state.to\('cpu'\)"),
    ],
)
def test_state_that_does_not_fit_is_refused(state: Any, message: str) -> None:
    with pytest.raises(StateError, match=message):
        decayed_attention(QK, QK, VALUE, DECAY, initial_state=state)


def test_a_step_takes_one_token() -> None:
    with pytest.raises(ValueError, match=r"q has shape \[2, 4, 3, 5\]; a step accepts one token"):
        decayed_attention_step(QK, QK, VALUE, DECAY)
    with pytest.raises(ValueError, match=r"decay has shape \[2\]; a step accepts one token"):
        decayed_attention_step(QK[:, 0], QK[:, 0], VALUE[:, 0], DECAY[:, 0, 0])
