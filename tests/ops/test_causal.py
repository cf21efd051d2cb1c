"""NaN and infinity stay where they are: not in earlier tokens, not in other sequences, not out of the padding.

The random calls of tests/fuzz check the same for all ops, forms and dtypes; here is one call of each, and gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

import linnet
from linnet.native import gate
from linnet.ops.gated.wkv import wkv
from linnet.ops.gated.wkv7 import wkv7
from linnet.ops.softmax.lsh import lsh_attention
from tests.ops.rows import needs_library
from tests.ops.runs import every_run

B, T, H, D, V, AT = 2, 21, 2, 4, 18, 11
FORMS = ("parallel", "chunked", "recurrent")


def draw(*widths: int) -> list[Tensor]:
    g = torch.Generator().manual_seed(0)
    return [torch.randn(B, T, *([H, n] if n else [H]), generator=g) for n in widths]


def decayed(form: str) -> tuple[Callable[..., Tensor], list[Tensor]]:
    q, k, v, decay = draw(D, D, V, 0)
    return lambda *x: linnet.decayed_attention(*x, **how(form))[0], [q, k, v, -decay.abs()]


def gated(form: str) -> tuple[Callable[..., Tensor], list[Tensor]]:
    q, k, v, decay = draw(D, D, V, D)
    return lambda *x: linnet.decayed_attention(*x, **how(form))[0], [q, k, v, -decay.abs()]


def delta(form: str) -> tuple[Callable[..., Tensor], list[Tensor]]:
    q, k, v, beta, decay = draw(D, D, V, 0, 0)
    return lambda *x: linnet.delta_rule(*x, **how(form))[0], [q, normalize(k, dim=-1), v, beta.sigmoid(), -decay.abs()]


def delta_by_channel(form: str) -> tuple[Callable[..., Tensor], list[Tensor]]:
    q, k, v, beta, decay = draw(D, D, V, 0, D)
    return lambda *x: linnet.delta_rule(*x, **how(form))[0], [q, normalize(k, dim=-1), v, beta.sigmoid(), -decay.abs()]


def rwkv7(form: str) -> tuple[Callable[..., Tensor], list[Tensor]]:
    r, decay, k, v, c, rate = draw(D, D, D, V, D, D)
    return lambda *x: wkv7(*x, **how(form))[0], [r, -decay.abs(), k, v, normalize(c, dim=-1), rate.sigmoid()]


def how(form: str) -> dict[str, str]:
    return {"backend": "native"} if form == "native" else {"form": form, "backend": "torch"}


def rwkv4(form: str) -> tuple[Callable[..., Tensor], list[Tensor]]:
    k, v = (x.flatten(2) for x in draw(D, D))
    return lambda *x: wkv(*x, torch.ones(H * D), torch.zeros(H * D), **how(form))[0], [k, v]


def mamba(form: str) -> tuple[Callable[..., Tensor], list[Tensor]]:
    x, dt, b, c = (x.flatten(2) for x in draw(D, D, V, V))
    a = -torch.ones(H * D, H * V)
    return lambda x, dt, b, c: linnet.selective_scan(x, dt, a, b, c, **how(form))[0], [x, dt.abs(), b, c]


def linear(form: str) -> tuple[Callable[..., Tensor], list[Tensor]]:
    return lambda *x: linnet.linear_attention(*x, **how(form))[0], draw(D, D, V)


def softmax(_: str) -> tuple[Callable[..., Tensor], list[Tensor]]:
    return lambda *x: linnet.softmax_attention(*x)[0], draw(D, D, V)


def window(_: str) -> tuple[Callable[..., Tensor], list[Tensor]]:
    return lambda *x: linnet.sliding_window_attention(*x, window=5)[0], draw(D, D, V)


def lsh(form: str) -> tuple[Callable[..., Tensor], list[Tensor]]:
    turns = torch.randn(2, H, 2, D, generator=torch.Generator().manual_seed(1))
    return lambda *x: lsh_attention(*x, turns, span=4, form=form)[0], draw(D, V)


RECURRENT = (decayed, gated, delta, delta_by_channel, rwkv7, rwkv4, mamba)
LOOSE = (
    lsh,
    delta,
    delta_by_channel,
    rwkv7,
)  # sums in the order of buckets; LAPACK leaves the last bits of a batch open


def keeps_the_past(op: Callable[..., Tensor], inputs: list[Tensor], which: int, what: float, bits: bool = True) -> None:
    before, spoiled = op(*inputs), [x.clone() for x in inputs]
    spoiled[which][0, AT, ..., 0] = what
    after = op(*spoiled)
    same = torch.equal if bits else torch.allclose
    assert same(after[0, :AT], before[0, :AT])
    assert same(after[1], before[1])
    assert not after[0, AT:].isfinite().all()


@pytest.mark.parametrize("what", [torch.nan, torch.inf])
@pytest.mark.parametrize(
    ("make", "form"),
    [
        *product([*RECURRENT, softmax, window, lsh], FORMS),
        *(pytest.param(make, "native", marks=needs_library) for make in RECURRENT),
    ],
)
def test_earlier_tokens_stay_as_they_are(make: Any, form: str, what: float) -> None:
    op, inputs = make(form)
    for which in range(len(inputs)):
        keeps_the_past(op, inputs, which, what, bits=make not in LOOSE)


@pytest.mark.parametrize("make", [*RECURRENT, softmax, window, lsh, linear])
def test_values_mode_refuses_what_gradients_would_carry_back(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "VALUES", True)
    op, inputs = make("chunked")
    op(*(x.requires_grad_() for x in inputs))
    for which in range(len(inputs)):
        spoiled = [x.detach().clone() for x in inputs]
        spoiled[which][0, AT] = torch.nan
        op(*spoiled)  # without gradients the past is guarded
        with pytest.raises(
            ValueError, match=r"an input of \w+ is nan; accepted: finite numbers in real tokens, .*unset"
        ):
            op(*(x.requires_grad_() for x in spoiled))


def test_values_mode_lets_padding_hold_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "VALUES", True)
    mask = torch.ones(B, T, dtype=torch.bool)
    mask[0, AT] = False
    for op, inputs in ((linnet.linear_attention, draw(D, D, V)), (linnet.decayed_attention, gated("chunked")[1])):
        for x in inputs:
            x[0, AT] = torch.nan
        out, _ = op(*(x.requires_grad_() for x in inputs), mask=mask)
        assert out.isfinite().all()


@every_run
@pytest.mark.parametrize("what", [torch.nan, torch.inf])
@pytest.mark.parametrize("phi", ["elu", "taylor", "identity"])
def test_linear_attention(phi: str, what: float, form: str, backend: str) -> None:
    def op(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return linnet.linear_attention(q, k, v, feature_map=phi, form=form, backend=backend)[0]

    inputs = draw(D, D, V)
    for which in range(3):
        keeps_the_past(op, inputs, which, what)
    spoiled = inputs[2].clone()
    spoiled[0, AT, 1, 3] = what
    out = op(*inputs[:2], spoiled)
    assert not out[0, AT:, 1, 3].isfinite().any()
    assert out[0, :, 0].isfinite().all()  # the other head
    assert out[0, :, 1, 4:].isfinite().all()  # the other columns


@every_run
def test_packed_neighbours(form: str, backend: str) -> None:
    q, k, v = (x[:1] for x in draw(D, D, V))
    cu = [0, 5, 13, T]
    before, _ = linnet.linear_attention(q, k, v, cu_seqlens=cu, form=form, backend=backend)
    v = v.clone()
    v[0, AT] = torch.nan
    after, _ = linnet.linear_attention(q, k, v, cu_seqlens=cu, form=form, backend=backend)
    assert torch.equal(after[:, :AT], before[:, :AT])
    assert after[:, AT:13].isnan().all()
    assert torch.equal(after[:, 13:], before[:, 13:])


@pytest.mark.parametrize("phi", ["polynomial", "taylor_full", "softmax_features"])
@pytest.mark.parametrize("twice", [False, True])
@every_run
def test_padding_without_a_floor_leaves_gradients_alone(form: str, backend: str, twice: bool, phi: str) -> None:
    """eps = 0: the denominator of a padded query is 0, and the gradient of dividing by it must not come back."""
    mask = torch.ones(B, T, dtype=torch.bool)
    mask[:, :3] = mask[:, 7] = mask[:, -2:] = False
    kept = [x.abs() + 0.1 for x in draw(D, D, 3)]
    wide = [x.masked_fill(~mask[..., None, None], torch.nan).requires_grad_() for x in kept]
    short = [x[mask].view(B, -1, *x.shape[2:]).clone().requires_grad_() for x in kept]
    results = []
    for inputs, how in ((wide, {"mask": mask}), (short, {})):
        out, _ = linnet.linear_attention(*inputs, feature_map=phi, eps=0.0, form=form, backend=backend, **how)
        grads = torch.autograd.grad(out.square().sum(), inputs, create_graph=twice)
        if twice:
            grads = torch.autograd.grad(sum(x.square().sum() for x in grads), inputs)
        results.append(grads)
    for padded, plain in zip(*results, strict=True):
        assert (padded[~mask] == 0).all()
        assert ((padded[mask].view_as(plain) - plain).abs() <= 1e-3 * plain.abs().max()).all()
