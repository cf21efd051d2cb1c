"""The MLP as one op: plain torch's numbers and gradients, across the edges of its blocks."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from linnet.ops.fused import mlp as module
from linnet.ops.fused.mlp import mlp
from linnet.ops.native_allowed import BLOCK
from tests.ops.rows import check, check_graphs, draw, needs_library

KINDS = ("relu", "gelu", "swiglu")


def given(kind: str, tokens: tuple[int, ...], E: int = 24, F: int = 40, bias: bool = True) -> tuple[torch.Tensor, ...]:
    wide = 2 * F if kind == "swiglu" else F
    shapes = ((*tokens, E), (wide, E), (wide,) if bias else None, (E, F), (E,) if bias else None)
    x, up, b1, down, b2 = draw(*shapes)
    assert x is not None
    assert up is not None
    assert down is not None
    return x, up / E**0.5, b1, down / F**0.5, b2  # type: ignore[return-value]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_mlp(kind: str, bias: bool) -> None:
    check(partial(mlp, kind=kind), partial(module._plain, kind=kind), given(kind, (5, 67), bias=bias))


@pytest.mark.parametrize("tokens", [BLOCK - 1, BLOCK, 2 * BLOCK + 3])
def test_blocks_meet(tokens: int) -> None:
    check(partial(mlp, kind="gelu"), partial(module._plain, kind="gelu"), given("gelu", (tokens,), E=16, F=16))


@needs_library
def test_gelu_over_its_whole_range() -> None:
    """One number through identity weights: within 6e-7 of its size, or of 0.001 where it is next to nothing."""
    x = torch.linspace(-14, 14, 4096 * 16).view(-1, 16).requires_grad_()
    out = mlp(x, torch.eye(16), None, torch.eye(16), None)
    wide = x.detach().double().requires_grad_()
    want = torch.nn.functional.gelu(wide)
    assert ((out - want).abs() / (want.abs() + 1e-3)).max() < 1e-6
    slope, exact = torch.autograd.grad(out.sum(), x)[0], torch.autograd.grad(want.sum(), wide)[0]
    assert (slope - exact).abs().max() < 1e-6


@needs_library
def test_nan_and_infinity_are_not_swallowed() -> None:
    for kind in ("relu", "gelu"):
        x = torch.zeros(256, 16)
        x[3, 5], x[4, 5], x[5, 5] = float("nan"), float("inf"), float("-inf")
        hidden, act = x.clone(), torch.empty(256, 16)
        module.nn.activation(kind, hidden, None, act)
        assert act[3, 5].isnan()
        assert act[4, 5] == float("inf")
        assert act[5, 5].abs() < 1e-30


@pytest.mark.slow
def test_graphs() -> None:
    check_graphs(partial(mlp, kind="gelu"), given("gelu", (256,)))
