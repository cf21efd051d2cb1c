"""The contract of every sequence op: arguments, state, dtypes, packing, forms and backends, and their float64 truth."""

from __future__ import annotations

from inspect import Parameter, signature
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

import linnet
from linnet.errors import BackendError, StateError
from linnet.native import gated as native_gated
from linnet.native import linear_attention as native_linear
from linnet.native import nn
from linnet.native.library import info
from linnet.ops.dispatch import FORMS, OPS
from linnet.ops.linear import operators
from linnet.ops.state import BaseState, MatrixState
from tests.ops.table import TABLE, E, Inputs, Row

EXACT = 1e-10  # of the largest number
CONTRACT = ["initial_state", "output_final_state", "mask", "cu_seqlens", "form", "backend"]
HALVES = [torch.bfloat16, torch.float16]
NATIVE = info()["loaded"]
ROWS = list(TABLE.values())
every_op = pytest.mark.parametrize("row", ROWS, ids=list(TABLE))
every_form = pytest.mark.parametrize(
    ("row", "form"),
    [(row, form) for row in ROWS for form in OPS[row.op].forms],
    ids=[f"{name}-{form}" for name, row in TABLE.items() for form in OPS[row.op].forms],
)


def leaves(inputs: Inputs) -> Inputs:
    return {name: x.detach().clone().requires_grad_() for name, x in inputs.items()}


def gradients(outs: tuple[Tensor, ...], inputs: Inputs) -> tuple[Tensor, ...]:
    loss = 0 * next(iter(inputs.values())).sum()  # in the graph, even when there are no tokens
    for x in outs:
        loss = loss + (x.double() * torch.arange(x.numel()).double().cos().view(x.shape)).sum()
    return torch.autograd.grad(loss, tuple(inputs.values()), materialize_grads=True)


def close(got: tuple[Tensor, ...], want: tuple[Tensor, ...]) -> None:
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        assert a.shape == b.shape
        if b.numel():
            off = (a.detach() - b.detach()).abs().max() / b.detach().abs().max().clamp(min=1e-3)
            assert off <= EXACT, f"result {i} is off by {off:.1e}"


def chunks_of(row: Row, size: int) -> dict[str, int]:
    return {"chunk_size": size} if "chunk_size" in signature(getattr(linnet, row.op)).parameters else {}


def changed(state: Any, change: Any) -> Any:
    """The state with `change` applied to its numbers; flags stay."""
    return type(state)._make(x if x is None or x.dtype == torch.bool else change(x) for x in state)


def test_every_public_op_is_in_the_table() -> None:
    assert {row.op for row in ROWS} == set(OPS) - {"base_conv"}  # base_conv: whole sequences, a tensor as its result


@every_op
def test_the_signature(row: Row) -> None:
    parameters = signature(getattr(linnet, row.op)).parameters
    *_, last = names = [name for name, p in parameters.items() if p.kind is Parameter.KEYWORD_ONLY]
    assert names[-len(CONTRACT) - (last == "chunk_size") :] == [*CONTRACT, *(["chunk_size"] * (last == "chunk_size"))]
    defaults = {name: parameters[name].default for name in CONTRACT}
    assert defaults == dict.fromkeys(CONTRACT, None) | {"output_final_state": False, "form": "auto", "backend": "auto"}
    step = signature(getattr(linnet, f"{row.op}_step")).parameters
    assert step["state"].default is None
    assert step["backend"].default == "auto"
    assert step["backend"].kind is Parameter.KEYWORD_ONLY


@every_op
def test_the_state_is_of_its_class_or_none(row: Row) -> None:
    inputs = row.inputs(2, 5)
    out, none = row(inputs)
    again, state = row(inputs, output_final_state=True)
    assert none is None
    assert type(state) is row.state
    assert torch.equal(out, again)
    assert all(isinstance(x, Tensor) for x in state.tensors.values())
    token, state = row.step(row.part(inputs, 0), None)
    assert type(state) is row.state
    close((token,), (out[:, 0],))


@every_form
@pytest.mark.parametrize("length", [0, 1, 2, 9, 17])
def test_every_form_is_the_equation(row: Row, form: str, length: int) -> None:
    """Whole and in two parts, with and without padding: outputs, states and all gradients."""
    how = {"form": form, "backend": "torch", "output_final_state": True, **chunks_of(row, 4)}
    mask = torch.rand(2, length, generator=torch.Generator().manual_seed(length)) > 0.4
    for real in (None, mask):
        exact, given, parts = (leaves(row.inputs(2, length)) for _ in range(3))
        want = row.truth(exact, real)
        slopes = gradients(want, exact)
        out, state = row(given, mask=real, **how)
        got = (out, *row.value(state))
        close(got[: len(want)], want)
        close(gradients(got[: len(want)], given), slopes)
        outs, state, cut = [], None, length // 3
        for at in (slice(0, cut), slice(cut, length)):
            piece = None if real is None else real[:, at]
            out, state = row(row.part(parts, at), initial_state=state, mask=piece, **how)
            outs.append(out)
        got = (torch.cat(outs, dim=1), *row.value(state))
        close(got[: len(want)], want)
        close(gradients(got[: len(want)], parts), slopes)


@every_op
def test_steps_are_the_whole(row: Row) -> None:
    whole, given = leaves(row.inputs(2, 5)), leaves(row.inputs(2, 5))
    out, end = row(whole, output_final_state=True)
    outs, state = [], None
    for t in range(5):
        token, state = row.step(row.part(given, t), state)
        outs.append(token)
    got, want = (torch.stack(outs, dim=1), *row.value(state)), (out, *row.value(end))
    close(got, want)
    close(gradients(got, given), gradients(want, whole))


@every_op
@pytest.mark.parametrize("padded", [False, True], ids=["plain", "padded"])
@pytest.mark.parametrize("offsets", [[0, 10], [0, 0, 4, 4, 9, 10], [0, 0]], ids=str)
def test_packed_sequences_are_separate(row: Row, offsets: list[int], padded: bool) -> None:
    """Outputs, states and gradients, with an initial state for each sequence; sequences may be empty."""
    length, count = offsets[-1], len(offsets) - 1
    mask = torch.rand(1, length, generator=torch.Generator().manual_seed(3)) > 0.3 if padded else None
    _, start = row(row.inputs(count, 6, seed=1), output_final_state=True)
    packed, apart = leaves(row.inputs(1, length)), leaves(row.inputs(1, length))
    how = {"output_final_state": True}
    out, state = row(packed, initial_state=start, cu_seqlens=torch.tensor(offsets), mask=mask, **how)
    assert state.rows == count
    outs, ends = [], []
    for i, (lo, hi) in enumerate(pairwise(offsets)):
        part = None if mask is None else mask[:, lo:hi]
        one, end = row(row.part(apart, slice(lo, hi)), initial_state=start.select([i]), mask=part, **how)
        outs.append(one)
        ends.append(end)
    got, want = (out, *row.value(state)), (torch.cat(outs, dim=1), *row.value(linnet.join_states(ends)))
    close(got, want)
    close(gradients(got, packed), gradients(want, apart))
    fresh, _ = row(packed, cu_seqlens=offsets, mask=mask)
    assert fresh.shape == out.shape


@every_op
def test_the_widest_of_all_inputs(row: Row) -> None:
    """One input in float64 makes the sums float64; the output keeps the dtype of v or x."""
    single = row.inputs(2, 7, torch.float32)
    for name in single:
        given = single | {name: single[name].double()}
        if name not in row.mixed:
            with pytest.raises(ValueError, match="accepted: one dtype"):
                row(given)
            continue
        out, state = row(given, output_final_state=True)
        want, end = row({n: x.double() for n, x in given.items()}, output_final_state=True)
        assert out.dtype == given[row.out].dtype
        if row.op == "lsh_attention":  # the rotations only choose buckets
            continue
        assert torch.equal(out, want.to(out.dtype))
        if row.sums:
            assert {x.dtype for x in state} == {torch.float64}
            assert all(torch.equal(a, b) for a, b in zip(state, end, strict=True))


@pytest.mark.parametrize("half", HALVES, ids=str)
@pytest.mark.parametrize("name", [name for name, row in TABLE.items() if row.sums or name == "conv"])
def test_half_precision_is_rounded_once(name: str, half: torch.dtype) -> None:
    """Sums and products in float32, also under autocast, then one rounding."""
    row = TABLE[name]
    given = row.inputs(2, 7, half)
    out, state = row(given, output_final_state=True)
    want, end = row({n: x.float() for n, x in given.items()}, output_final_state=True)
    assert torch.equal(out, want.to(half))
    if row.sums:
        assert all(a.dtype == torch.float32 and torch.equal(a, b) for a, b in zip(state, end, strict=True))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(row(given)[0], out)


@every_op
@pytest.mark.parametrize("half", HALVES, ids=str)
def test_a_half_precision_state_is_widened(row: Row, half: torch.dtype) -> None:
    """The result and the gradients are those of the same numbers in float32."""
    inputs = row.inputs(2, 5, torch.float32)
    _, state = row(inputs, output_final_state=True)
    one = row.part(inputs, 0)
    for run in (lambda s: row(inputs, initial_state=s, output_final_state=True), lambda s: row.step(one, s)):
        narrow = changed(state, lambda x: x.to(half).requires_grad_())
        wide = changed(narrow, lambda x: x.detach().float().requires_grad_())
        (out, new), (want, end) = run(narrow), run(wide)
        assert torch.equal(out, want)
        for a, b in zip(new.tensors.values(), end.tensors.values(), strict=True):
            assert a.dtype == b.dtype
            assert torch.equal(a, b)
        for x, y in zip(narrow.tensors.values(), wide.tensors.values(), strict=True):
            if x.dtype != torch.bool:
                a, b = (torch.autograd.grad(o.sum(), s, allow_unused=True, retain_graph=True)[0]
                        for o, s in ((out, x), (want, y)))  # fmt: skip
                assert (a is None) == (b is None)
                assert a is None or (a.dtype == half and torch.equal(a, b.to(half)))


@every_op
def test_a_state_that_does_not_fit_is_refused(row: Row) -> None:
    inputs = row.inputs(2, 5, torch.float32)
    _, state = row(inputs, output_final_state=True)
    other: BaseState = MatrixState(torch.zeros(2, 1, 1, 1)) if row.state is not MatrixState else linnet.ConvState(E)
    for wrong in (state.select([0]), other, 3, next(iter(state.tensors.values()))):
        with pytest.raises(StateError, match=r"(initial_state|state).*; accepted"):
            row(inputs, initial_state=wrong)
        with pytest.raises(StateError, match=r"(initial_state|state).*; accepted"):
            row.step(row.part(inputs, 0), wrong)
    if row.state is MatrixState:
        with pytest.raises(StateError, match=r"initial_state.x has shape \[2, 1, 5\], .* use MatrixState\(state.s\)"):
            row(inputs, initial_state=MatrixState(state.s, torch.zeros(2, 1, 5)))


@every_op
def test_names_are_refused_in_one_sentence(row: Row) -> None:
    inputs, forms = row.inputs(2, 5, torch.float32), OPS[row.op].forms
    with pytest.raises(ValueError, match=f"unknown form 'fast'. Accepted: auto, {', '.join(forms)}"):
        row(inputs, form="fast")
    for form in set(FORMS) - set(forms):
        with pytest.raises(ValueError, match=f"form is '{form}', which {row.op} does not have; accepted: auto, "):
            row(inputs, form=form)
    for call in (lambda **how: row(inputs, **how), lambda **how: row.step(row.part(inputs, 0), None, **how)):
        with pytest.raises(ValueError, match=r"unknown backend 'Torch'; did you mean 'torch'\?"):
            call(backend="Torch")
        with pytest.raises(BackendError, match="no GPU kernel in this version"):
            call(backend="triton")


@every_op
def test_the_native_backend_runs_or_says_why_not(row: Row) -> None:
    inputs = row.inputs(2, 5, torch.float32)
    if not OPS[row.op].native:
        for call in (row, lambda x, **how: row.step(row.part(x, 0), None, **how)):
            with pytest.raises(BackendError, match="has no native kernel; use backend='auto'"):
                call(inputs, backend="native")
    elif NATIVE:
        for got, want in zip(row(inputs, backend="native"), row(inputs, backend="torch"), strict=True):
            assert got is want is None or torch.allclose(got, want, rtol=2e-5, atol=2e-6)
        with pytest.raises(BackendError, match=r"float32.* not torch.float64; use backend='auto' or 'torch'"):
            row(row.inputs(2, 5), backend="native")


@every_op
def test_the_torch_backend_calls_no_native_code(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*args: object, **how: object) -> None:
        raise AssertionError("a native kernel ran")

    for name in ("forward", "backward", "step"):
        monkeypatch.setattr(native_linear, name, forbidden)
    for name in ("forward", "backward"):
        monkeypatch.setattr(native_gated, name, forbidden)
    for name in ("causal_conv", "causal_conv_backward", "norm"):
        monkeypatch.setattr(nn, name, forbidden)
    if row.op in ("selective_scan", "wkv"):
        monkeypatch.setattr(row.module, "KERNEL", row.module.KERNEL._replace(forward=forbidden, backward=forbidden))
    inputs = leaves(row.inputs(2, 600, torch.float32))
    out, _ = row(inputs, backend="torch")
    out.sum().backward()
    row.step(row.part(inputs, 0), None, backend="torch")


@every_op
@pytest.mark.parametrize("length", [1, 5, 600])
def test_explain_dispatch_is_what_runs(row: Row, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, str]] = []

    def spy(home: Any, name: str, record: tuple[str, str]) -> None:
        inner = home[name] if isinstance(home, dict) else getattr(home, name)

        def call(*args: Any, **how: Any) -> Any:
            ran.append(record)
            return inner(*args, **how)

        if isinstance(home, dict):
            monkeypatch.setitem(home, name, call)
        else:
            monkeypatch.setattr(home, name, call)

    for form in OPS[row.op].forms if row.op != "short_conv" else ():
        spy(row.module.FORMS, form, (form, "torch"))
    if row.op == "linear_attention":
        spy(operators, "chunked", ("chunked", "torch"))
        spy(native_linear, "forward", ("chunked", "native"))
    spy(native_gated, "forward", ("chunked", "native"))
    if row.op in ("selective_scan", "wkv"):
        spy(row.module, "run", ("chunked", "native"))
    if row.op == "short_conv":
        spy(row.module, "causal_conv", ("parallel", "torch"))
        spy(nn, "causal_conv", ("parallel", "native"))
    for dtype in (torch.float32, torch.float64):
        inputs = row.inputs(2, length, dtype)
        shape = next(iter(inputs.values())).shape
        _, state = row(inputs, output_final_state=True)
        told = linnet.explain_dispatch(shape, op=row.op, dtype=dtype, value_dim=3, **row.sizes)
        assert ran[-1] == told[:2]
        ran.clear()
        assert f"state {state.nbytes // 2:,} bytes per sequence" in str(told)


def test_explain_dispatch_names_the_op_it_does_not_know() -> None:
    with pytest.raises(ValueError, match=r"unknown op 'delta'; did you mean 'delta_rule'\?"):
        linnet.explain_dispatch((1, 2, 3, 4), op="delta")
    with pytest.raises(ValueError, match=r"accepted for wkv: three sizes \(batch, time, channels\)"):
        linnet.explain_dispatch((1, 2, 3, 4), op="wkv")
    with pytest.raises(
        ValueError, match="window is None; accepted: a whole number, 1 or more; sliding_window_attention"
    ):
        linnet.explain_dispatch((1, 2, 3, 4), op="sliding_window_attention")
    with pytest.raises(ValueError, match="unknown size for wkv 'window'"):
        linnet.explain_dispatch((1, 2, 3), op="wkv", window=4)
    assert "no state" in str(linnet.explain_dispatch((1, 2, 3), op="base_conv"))
