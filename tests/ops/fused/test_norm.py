"""Norms: torch's numbers and gradients in float64, whatever is left out, at any width."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from linnet.ops.fused import norm
from linnet.ops.fused.norm import layer_norm, rms_norm
from tests.ops.rows import check, check_graphs, draw, needs_library


def plain_layer(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias, 1e-5)


def plain_rms(x: Tensor, weight: Tensor | None) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], weight, 1e-5)


@pytest.mark.parametrize("width", [16, 37, 256])
@pytest.mark.parametrize("parts", ["weight and bias", "weight", "neither"])
def test_layer_norm(width: int, parts: str) -> None:
    given = draw((3, 101, width), (width,) if "weight" in parts else None, (width,) if "bias" in parts else None)
    x, *rest = given
    assert x is not None
    check(layer_norm, plain_layer, (2 * x + 1, *rest))


@pytest.mark.parametrize("width", [16, 37, 256])
@pytest.mark.parametrize("weighted", [True, False])
def test_rms_norm(width: int, weighted: bool) -> None:
    check(rms_norm, plain_rms, draw((3, 101, width), (width,) if weighted else None))


def test_a_far_mean_keeps_its_digits() -> None:
    (x,) = draw((40, 256))
    assert x is not None
    far = (x + 300.0).double()
    want = F.layer_norm(far, (256,))
    assert (layer_norm(far.float()) - want).abs().max() < 2e-4  # the inputs themselves are rounded to 1.5e-5


@needs_library
def test_the_kernel_runs_where_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*args: object, **how: object) -> Tensor:
        raise AssertionError("plain torch")

    monkeypatch.setattr(norm, "_plain", forbidden)
    (x,) = draw((64, 256))
    assert x is not None
    x.requires_grad_()
    layer_norm(x).sum().backward()
    with pytest.raises(AssertionError, match="plain torch"):
        layer_norm(x.double())
    with pytest.raises(AssertionError, match="plain torch"), torch.autocast("cpu", dtype=torch.bfloat16):
        layer_norm(x)


def test_a_gradient_from_a_view() -> None:
    """Gradients arrive transposed or expanded, and inputs may be views."""
    (base,) = draw((256, 65))
    assert base is not None
    results = []
    for op in (partial(layer_norm), lambda x: F.layer_norm(x, (256,))):
        x = base.clone().requires_grad_()
        out = op(x.t())
        results.append(torch.autograd.grad(out.t().sum() + (out * out).sum(), x)[0])
    torch.testing.assert_close(*results, rtol=2e-5, atol=2e-4)


@pytest.mark.slow
def test_graphs() -> None:
    check_graphs(layer_norm, draw((64, 128), (128,), (128,)))
    check_graphs(rms_norm, draw((64, 128), (128,)))
