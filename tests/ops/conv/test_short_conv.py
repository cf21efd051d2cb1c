"""The short convolution against a loop over tokens and taps: outputs, states, gradients, splits, padding, packing."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import forward_ad

from linnet.errors import StateError
from linnet.ops.conv import naive
from linnet.ops.conv.short_conv import empty_state, short_conv, short_conv_step, state_bytes
from linnet.ops.state import ConvState, KVState

EXACT = {"rtol": 1e-10, "atol": 1e-10}
SINGLE = {"rtol": 2e-5, "atol": 2e-5}
HALF = {torch.bfloat16: {"rtol": 8e-3, "atol": 8e-3}, torch.float16: {"rtol": 1e-3, "atol": 1e-3}}  # one rounding
E = 3
KINDS = ["left", "right", "middle", "all"]


def draw(batch: int, length: int, taps: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """x [B,T,E], weight [E,K], bias [E], state [B,K-1,E]"""
    g = torch.Generator().manual_seed(length)
    shapes = [(batch, length, E), (E, taps), (E,), (batch, taps - 1, E)]
    return [torch.randn(x, generator=g, dtype=torch.float64).to(dtype).requires_grad_() for x in shapes]


def padding(kind: str, batch: int, length: int) -> Tensor:
    """Row b has about 2 b + 1 padded tokens, so that rows differ."""
    mask = torch.ones(batch, length, dtype=torch.bool)
    for b in range(batch):
        n = length if kind == "all" else min(2 * b + 1, length)
        start = {"left": 0, "right": length - n, "middle": (length - n) // 2, "all": 0}[kind]
        mask[b, start : start + n] = False
    return mask


def gradients(outs: list[Tensor], inputs: list[Tensor]) -> tuple[Tensor, ...]:
    loss = sum((x * torch.arange(x.numel(), dtype=torch.float64).cos().to(x.dtype).view(x.shape)).sum() for x in outs)
    return torch.autograd.grad(loss, inputs, materialize_grads=True, retain_graph=True, allow_unused=True)


def check(found: list[Tensor], want: list[Tensor], inputs: list[Tensor]) -> None:
    for got, value in zip(found, want, strict=True):
        torch.testing.assert_close(got, value, **EXACT)
    for got, grad in zip(gradients(found, inputs), gradients(want, inputs), strict=True):
        torch.testing.assert_close(got, grad, **EXACT)


def run(x: Tensor, weight: Tensor, bias: Tensor | None, state: Tensor | None, **how: Any) -> list[Tensor]:
    start = None if state is None else ConvState(state)
    y, final = short_conv(x, weight, bias, initial_state=start, output_final_state=True, **how)
    assert final is not None
    return [y, final.x]


@pytest.mark.parametrize("taps", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("length", [0, 1, 2, 3, 5, 20])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("with_state", [True, False])
def test_equals_reference(taps: int, length: int, with_bias: bool, with_state: bool) -> None:
    x, weight, bias, state = draw(2, length, taps)
    given_inputs = (x, weight, bias if with_bias else None, state if with_state else None)
    check(run(*given_inputs), list(naive.short_conv(*given_inputs)), [x, weight, bias, state])
    y, none = short_conv(x, weight, bias)
    assert none is None
    torch.testing.assert_close(y, naive.short_conv(x, weight, bias, None)[0], **EXACT)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("length", "taps"), [(1, 1), (1, 3), (9, 3), (12, 4), (4, 7)])
@pytest.mark.parametrize("with_state", [True, False])
def test_padding_is_as_if_it_were_not_there(kind: str, length: int, taps: int, with_state: bool) -> None:
    inputs, mask = draw(3, length, taps), padding(kind, 3, length)
    x, weight, bias, state = inputs
    start = state if with_state else None
    y, final = run(x, weight, bias, start, mask=mask)
    check([y, final], list(naive.short_conv(x, weight, bias, start, mask)), inputs)
    assert (y[~mask] == 0).all()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_stands_in_the_padding_is_never_read(value: float) -> None:
    inputs, mask = draw(3, 9, 3), padding("middle", 3, 9)
    x, weight, bias, state = inputs
    dirty = torch.where(mask[..., None], x, value)
    found, want = run(dirty, weight, bias, state, mask=mask), run(x, weight, bias, state, mask=mask)
    assert all(torch.equal(a, b) for a, b in zip(found, want, strict=True))
    for got, grad in zip(gradients(found, inputs), gradients(want, inputs), strict=True):
        assert torch.equal(got, grad)
    assert (gradients(want, [x])[0][~mask] == 0).all()


@settings(max_examples=100)
@given(st.data())
def test_any_split_and_any_mask_hand_the_state_on(data: st.DataObject) -> None:
    length, taps = data.draw(st.integers(0, 12)), data.draw(st.integers(1, 5))
    cuts = sorted(data.draw(st.lists(st.integers(0, length), max_size=4)))
    bits = data.draw(st.none() | st.lists(st.booleans(), min_size=2 * length, max_size=2 * length))
    mask = None if bits is None else torch.tensor(bits, dtype=torch.bool).reshape(2, length)
    inputs = x, weight, bias, state = draw(2, length, taps)
    ys, now = [], state
    for a, b in pairwise([0, *cuts, length]):
        y, now = run(x[:, a:b], weight, bias, now, mask=None if mask is None else mask[:, a:b])
        ys.append(y)
    check([torch.cat(ys, dim=1), now], list(naive.short_conv(x, weight, bias, state, mask)), inputs)


@settings(max_examples=60)
@given(st.data())
def test_packed_sequences_do_not_see_each_other(data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=4))
    taps, length = data.draw(st.integers(1, 4)), sum(lengths)
    bits = data.draw(st.none() | st.lists(st.booleans(), min_size=length, max_size=length))
    mask = None if bits is None else torch.tensor(bits, dtype=torch.bool).reshape(1, length)
    offsets = [sum(lengths[:i]) for i in range(len(lengths) + 1)]
    x, weight, bias, _ = draw(1, length, taps)
    state = draw(len(lengths), length, taps)[3] if data.draw(st.booleans()) else None
    found = run(x, weight, bias, state, mask=mask, cu_seqlens=offsets)
    parts = []
    for i, (a, b) in enumerate(pairwise(offsets)):
        row, part = None if state is None else state[i : i + 1], None if mask is None else mask[:, a:b]
        parts.append(naive.short_conv(x[:, a:b], weight, bias, row, part))
    want = [torch.cat([y for y, _ in parts], dim=1), torch.cat([final for _, final in parts])]
    check(found, want, [x, weight, bias, *([] if state is None else [state])])


def test_offsets_may_be_a_tensor() -> None:
    x, weight, bias, _ = draw(1, 9, 3)
    found = run(x, weight, bias, None, cu_seqlens=torch.tensor([0, 4, 4, 9], dtype=torch.int32))
    want = run(x, weight, bias, None, cu_seqlens=[0, 4, 4, 9])
    assert all(torch.equal(a, b) for a, b in zip(found, want, strict=True))


@pytest.mark.parametrize("taps", [1, 3, 4])
def test_steps_equal_parallel_after_a_padded_prompt(taps: int) -> None:
    inputs, mask = draw(3, 12, taps), padding("right", 3, 6)
    x, weight, bias, state = inputs
    prompt, now = run(x[:, :6], weight, bias, state, mask=mask)
    ys, final = [], ConvState(now)
    for t in range(6, 12):
        y, final = short_conv_step(x[:, t], weight, bias, final)
        ys.append(y)
    whole = torch.cat([mask, torch.ones(3, 6, dtype=torch.bool)], dim=1)
    found = [torch.cat([prompt, torch.stack(ys, dim=1)], dim=1), final.x]
    check(found, list(naive.short_conv(x, weight, bias, state, whole)), inputs)


def test_first_step_needs_neither_state_nor_bias() -> None:
    x, weight, _, _ = draw(2, 1, 3)
    y, state = short_conv_step(x[:, 0], weight)
    torch.testing.assert_close(y, x[:, 0] * weight[:, -1], **EXACT)
    assert torch.equal(state.x, torch.cat([torch.zeros_like(x), x], dim=1))


@pytest.mark.parametrize("padded", [False, True])
def test_float32(padded: bool) -> None:
    """Gradients of the weight are sums over 3,000 tokens."""
    x, weight, bias, state = draw(2, 1500, 4, torch.float32)
    mask = padding("middle", 2, 1500) if padded else None
    wide = [v.detach().double().requires_grad_() for v in (x, weight, bias, state)]
    found, want = run(x, weight, bias, state, mask=mask), run(*wide, mask=mask)
    for got, value in zip(found, want, strict=True):
        assert got.dtype == torch.float32
        torch.testing.assert_close(got.double(), value, **SINGLE)
    ours, theirs = gradients(found, [x, weight, bias, state]), gradients(want, wide)
    for got, grad in zip(ours, theirs, strict=True):
        torch.testing.assert_close(got.double() / grad.abs().max(), grad / grad.abs().max(), **SINGLE)


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("wide_weight", [False, True])
def test_half_precision_is_added_up_in_float32(dtype: torch.dtype, wide_weight: bool) -> None:
    x, weight, bias, state = (v.detach() for v in draw(2, 10, 7, dtype))
    if wide_weight:  # parameters stay float32 under autocast
        weight, bias = weight.float(), bias.float()
    y, final = run(x, weight, bias, state)
    want, _ = naive.short_conv(x, weight, bias, state)
    assert y.dtype == final.dtype == dtype
    torch.testing.assert_close(y.double(), want, **HALF[dtype])
    assert torch.equal(y, want.to(dtype))  # rounded once, at the end
    step, _ = short_conv_step(x[:, 0], weight, bias, ConvState(state))
    assert torch.equal(step, want[:, 0].to(dtype))


def test_a_wide_weight_makes_no_wide_output() -> None:
    x, weight, bias, state = (v.detach() for v in draw(2, 5, 3))
    y, final = run(x.float(), weight, bias, state.float())
    assert y.dtype == final.dtype == torch.float32


@pytest.mark.parametrize("how", [{}, {"mask": padding("left", 2, 8)}])
def test_the_future_never_changes_the_past(how: dict[str, Any]) -> None:
    x, weight, bias, _ = draw(2, 8, 4)
    later = torch.cat([x[:, :5], -3 * x[:, 5:]], dim=1)
    y, other = (short_conv(v, weight, bias, **how)[0] for v in (x, later))
    assert torch.equal(y[:, :5], other[:, :5])
    assert not torch.equal(y[:, 5:], other[:, 5:])


@pytest.mark.parametrize("mask", [None, padding("left", 2, 8)])
@pytest.mark.parametrize("length", [0, 2, 8])
def test_a_forked_state_is_never_altered(mask: Tensor | None, length: int) -> None:
    x, weight, bias, start = (v.detach() for v in draw(2, length, 4))
    state, how = ConvState(start), {"mask": None if mask is None else mask[:, :length], "output_final_state": True}
    kept = state.clone()
    _, fork = short_conv(x, weight, bias, initial_state=state, **how)
    _, fresh = short_conv(x, weight, bias, **how)
    _, step = short_conv_step(start[:, 0], weight, bias, state)
    before = x.clone()
    for value in (fork, fresh, step):
        assert value is not None
        value.x.zero_()
    assert torch.equal(state.x, kept.x)
    assert torch.equal(x, before)


@pytest.mark.parametrize("mask", [None, padding("middle", 2, 5)])
def test_gradients_of_gradients_and_tangents(mask: Tensor | None) -> None:
    inputs = draw(2, 5, 3)

    def call(x: Tensor, weight: Tensor, bias: Tensor, state: Tensor) -> tuple[Tensor, ...]:
        return tuple(run(x, weight, bias, state, mask=mask))

    assert torch.autograd.gradcheck(call, inputs)
    assert torch.autograd.gradgradcheck(call, inputs)
    tangents = [torch.ones_like(v) for v in inputs]
    with forward_ad.dual_level():
        y = call(*(forward_ad.make_dual(v.detach(), t) for v, t in zip(inputs, tangents, strict=True)))[0]
        tangent = forward_ad.unpack_dual(y).tangent
    _, want = torch.autograd.functional.jvp(lambda *v: call(*v)[0], tuple(inputs), tuple(tangents))
    torch.testing.assert_close(tangent, want, **EXACT)


@pytest.mark.parametrize("need", range(3))
def test_only_the_gradients_that_are_needed(need: int) -> None:
    inputs = [v.detach() for v in draw(2, 6, 3)[:3]]
    inputs[need].requires_grad_()
    y, _ = short_conv(*inputs)
    (found,) = torch.autograd.grad(y.square().sum(), [inputs[need]])
    (value,) = torch.autograd.grad(naive.short_conv(*inputs, None)[0].square().sum(), [inputs[need]])
    torch.testing.assert_close(found, value, **EXACT)


def test_strides_do_not_matter() -> None:
    x, weight, bias, _ = (v.detach() for v in draw(2, 8, 3))
    want, _ = short_conv(x, weight, bias)
    twisted = [v.transpose(0, -1).contiguous().transpose(0, -1) for v in (x, weight)]
    assert torch.equal(short_conv(*twisted, bias)[0], want)
    assert torch.equal(short_conv(x[:1].expand(2, -1, -1), weight, bias)[0], want[:1].expand(2, -1, -1))


def test_memory_is_linear_in_time() -> None:
    """Autograd keeps x and the weight, nothing else."""
    sizes: list[int] = []

    def pack(x: Tensor) -> Tensor:
        sizes.append(x.numel())
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        short_conv(*draw(2, 100, 4)[:3])
    assert sorted(sizes) == [E * 4, 2 * 100 * E]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_state_bytes_do_not_grow(dtype: torch.dtype) -> None:
    for length in (0, 1, 50):
        x, weight, bias, _ = draw(2, length, 4, dtype)
        _, state = short_conv(x, weight, bias, output_final_state=True)
        assert state is not None
        assert state.nbytes == 2 * state_bytes(length, width=E, kernel_size=4, dtype=dtype)
        assert state.nbytes == empty_state(2, E, 4, dtype=dtype).nbytes == 2 * 3 * E * dtype.itemsize


X, WEIGHT, BIAS = torch.zeros(2, 4, E), torch.zeros(E, 3), torch.zeros(E)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": X.int()}, r"x has dtype torch.int32; .* use x.float\(\)"),
        ({"x": X[0]}, r"x has shape \[4, 3\]; accepted: three axes \[batch, time, channels\]"),
        ({"x": [1.0]}, "x is a list; accepted: a torch.Tensor"),
        (
            {"weight": WEIGHT[:2]},
            r"weight has shape \[2, 3\] for x .*; accepted: \[channels, taps\] = \[3, 1 or more\]",
        ),
        ({"weight": WEIGHT[:, :0]}, r"weight has shape \[3, 0\]"),
        ({"weight": WEIGHT[:, None]}, r"weight has shape \[3, 1, 3\]"),
        ({"weight": WEIGHT.to("meta")}, r"x is on cpu but weight on meta; use weight.to\(x.device\)"),
        ({"bias": BIAS[:2]}, r"bias has shape \[2\]; accepted: \[channels\] = \[3\], or None"),
        ({"mask": torch.ones(2, 4)}, r"mask has dtype torch.float32; .* use mask.bool\(\)"),
        ({"cu_seqlens": [0, 8]}, "batch must be 1"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        short_conv(**{"x": X, "weight": WEIGHT, "bias": BIAS} | change)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (KVState(torch.zeros(2, 2, 1, 3), torch.zeros(2, 2, 1, 3)), "a KVState; accepted here: ConvState"),
        (empty_state(2, E, 4), r"shape \[2, 3, 3\]; accepted here: \[rows, taps - 1, channels\] = \[2, 2, 3\]"),
        (empty_state(1, E, 3), r"shape \[1, 2, 3\]"),
        (
            empty_state(2, E, 3, dtype=torch.float64),
            r"float64 on cpu but x is torch.float32 on cpu; use state.to\('cpu'",
        ),
        (empty_state(2, E, 3, "meta"), "on meta"),
    ],
)
def test_state_that_does_not_fit_is_refused(state: Any, message: str) -> None:
    with pytest.raises(StateError, match=message):
        short_conv(X, WEIGHT, BIAS, initial_state=state)
    with pytest.raises(StateError, match=message):
        short_conv_step(X[:, 0], WEIGHT, BIAS, state)


def test_packed_state_has_a_row_for_each_sequence() -> None:
    with pytest.raises(StateError, match=r"= \[2, 2, 3\]"):
        short_conv(X[:1], WEIGHT, BIAS, cu_seqlens=[0, 1, 4], initial_state=empty_state(1, E, 3))


@pytest.mark.parametrize("shape", [(0, 5, 3), (2, 0, 3), (0, 0, 3), (2, 5, 0)])
@pytest.mark.parametrize("padded", [False, True])
def test_nothing_at_all(shape: tuple[int, int, int], padded: bool) -> None:
    x, weight = torch.zeros(shape).requires_grad_(), torch.ones(shape[2], 3).requires_grad_()
    start = empty_state(shape[0], shape[2], 3)
    mask = torch.ones(shape[:2], dtype=torch.bool) if padded else None
    y, state = short_conv(x, weight, mask=mask, initial_state=start, output_final_state=True)
    assert state is not None
    assert y.shape == shape
    assert state.x.shape == (shape[0], 2, shape[2])
    assert [g.shape for g in torch.autograd.grad(y.sum(), [x, weight])] == [x.shape, weight.shape]
