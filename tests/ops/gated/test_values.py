"""Numbers that a rule does not take are refused in one sentence on every backend; extreme ones are computed exactly."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor

from linnet.native import library
from linnet.ops.gated import naive
from tests.ops.table import TABLE, Row

BACKENDS = [
    "torch",
    pytest.param("native", marks=pytest.mark.skipif(library.library() is None, reason="no native library")),
]
CLOSE = 2e-5  # of the largest number, float32
T, AT = 20, (1, 7)  # tokens; the row and the token of the bad number

REFUSED = [  # row of the table, input, what becomes of the token, what is said
    ("decay by head", "decay", 0.5, "decay is 0.5; accepted: logarithms of factors, 0 or below; use -decay"),
    ("decay by channel", "decay", 0.5, "decay is 0.5; accepted: logarithms of factors, 0 or below"),
    ("delta", "beta", 2.5, "beta is 2.5; accepted: from 0 to 2; use 2 * sigmoid(...)"),
    ("delta", "beta", -0.5, "beta is -0.5; accepted: from 0 to 2"),
    ("delta", "k", 1.0, "the length of a key in k is 2.0; accepted: 1, or less; use torch.nn.functional.normalize(k"),
    ("gated delta", "decay", 1.0, "decay is 1.0; accepted: logarithms"),
    ("delta by channel", "decay", 1.0, "decay is 1.0; accepted: logarithms"),
    ("wkv7", "decay", 1.0, "decay is 1.0; accepted: logarithms"),
    ("wkv7", "rate", 1.5, "rate is 1.5; accepted: from 0 to 1; use sigmoid(...)"),
    ("wkv7", "remove", 1.0, "the length of a key in remove is 2.0; accepted: 1, or less"),
    ("selective scan", "dt", -0.5, "dt is -0.5; accepted: steps of 0 or more; use softplus(dt)"),
    ("selective scan", "a", 0.5, "a is 0.5; accepted: 0 or below; use -a"),
    ("wkv", "decay", -0.5, "decay is -0.5; accepted: rates of 0 or more; use decay.exp()"),
]
FAMILY = {name: row for name, row in TABLE.items() if row.op in {TABLE[one].op for one, *_ in REFUSED}}
MIXED = [(name, other) for name, row in FAMILY.items() for other in ("k", "v") if "q" in row.inputs(1, 1)]


def given(row: Row, length: int = T) -> dict[str, Tensor]:
    return row.inputs(2, length, torch.float32)


def spoiled(row: Row, name: str, value: float) -> dict[str, Tensor]:
    inputs = given(row)
    (inputs[name] if name in row.fixed else inputs[name][AT])[:] = value
    return inputs


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("name", "bad", "value", "sentence"), REFUSED)
def test_a_number_out_of_range_is_refused(name: str, bad: str, value: float, sentence: str, backend: str) -> None:
    row = TABLE[name]
    inputs = spoiled(row, bad, value)
    one = {key: x if key in row.fixed else x[:, AT[1]] for key, x in inputs.items()}
    learned = {key: x.clone().requires_grad_() for key, x in inputs.items()}
    for call in (lambda: row(inputs, backend=backend), lambda: row.step(one, None, backend=backend),
                 lambda: row(learned, backend=backend)):  # fmt: skip
        with pytest.raises(ValueError, match=f"^{re.escape(sentence)}") as refused:
            call()
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("name", "bad", "value"), [one[:3] for one in REFUSED if one[1] not in TABLE[one[0]].fixed])
def test_padding_may_hold_anything(name: str, bad: str, value: float, backend: str) -> None:
    row = TABLE[name]
    mask = torch.ones(2, T, dtype=torch.bool)
    mask[AT] = False
    want, end = row(given(row), mask=mask, backend=backend, output_final_state=True)
    for garbage in (value, 1e30, -1e30, torch.nan):
        out, state = row(spoiled(row, bad, garbage), mask=mask, backend=backend, output_final_state=True)
        assert torch.equal(out, want)
        assert torch.equal(state.s, end.s)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("name", "other"), MIXED)
def test_mixed_dtypes_are_refused(name: str, other: str, backend: str) -> None:
    inputs = given(TABLE[name])
    with pytest.raises(ValueError, match=rf"^q is torch.float32 but {other} is torch.bfloat16; accepted: one dtype"):
        TABLE[name](inputs | {other: inputs[other].bfloat16()}, backend=backend)


EXTREMES = {  # what becomes of which inputs; wkv decays by a rate
    "fast": {"decay": -50.0, "dt": 50.0},
    "keys of zeros": {"k": 0.0, "remove": 0.0, "b": 0.0},
    "reflected": {"beta": 2.0},
}
CASES = [
    (name, extreme)
    for name, row in FAMILY.items()
    for extreme, changes in EXTREMES.items()
    if set(changes) & set(row.inputs(1, 1))
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("name", "extreme"), CASES)
def test_extremes_are_finite_and_exact(name: str, extreme: str, backend: str) -> None:
    """-50 per token, keys of zeros, beta = 2: outputs and gradients of every input, and of a slow token among them."""
    row, inputs = TABLE[name], given(TABLE[name], 70)
    slow = {key: x[:, 33].clone() for key, x in inputs.items() if key in ("decay", "dt") and x.ndim > 2}
    for key, value in EXTREMES[extreme].items():
        if key in inputs:
            inputs[key].fill_(-value if key in row.fixed else value)
    for key, x in slow.items():
        inputs[key][:, 33] = x
    leaves = {key: x.clone().requires_grad_() for key, x in inputs.items()}
    exact = {key: x.double().requires_grad_() for key, x in inputs.items()}
    out, want = row(leaves, backend=backend)[0], getattr(naive, row.op)(*exact.values())[0]
    weight = torch.arange(want.numel()).double().cos().view(want.shape)
    slopes = torch.autograd.grad((out.double() * weight).sum(), list(leaves.values()), materialize_grads=True)
    wanted = torch.autograd.grad((want * weight).sum(), list(exact.values()), materialize_grads=True)
    largest = max(float(x.abs().max()) for x in wanted)
    for found, right, scale in [(out, want, None), *((a, b, largest) for a, b in zip(slopes, wanted, strict=True))]:
        size = float(right.detach().abs().max()) if scale is None else scale
        assert found.isfinite().all()
        assert float((found.detach().double() - right.detach()).abs().max()) <= CLOSE * max(size, 1.0)
