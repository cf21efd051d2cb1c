"""The gate of recurrent mixers and the mixtures of token shift: float64's numbers and gradients, strided inputs too."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu

from linnet.ops.fused import gate as gate_file
from linnet.ops.fused import token_shift
from linnet.ops.fused.gate import gate
from linnet.ops.fused.token_shift import mixtures
from tests.ops.rows import check, check_graphs, draw, needs_library, threads


def plain_gate(x: Tensor, z: Tensor, u: Tensor | None = None, skip: Tensor | None = None) -> Tensor:
    return (x if u is None or skip is None else x + skip * u) * silu(z)


def plain_mixtures(x: Tensor, change: Tensor, share: Tensor) -> tuple[Tensor, ...]:
    return tuple(x + one * change for one in share)


def in_columns(wide: Tensor, x: Tensor, skip: Tensor) -> Tensor:
    """z and u are columns of one projection, as the layers give them."""
    z, u = wide.split([x.shape[-1]] * 2, dim=-1)
    return gate(x, z, u, skip)


@pytest.mark.parametrize("width", [16, 37, 256])
@pytest.mark.parametrize("skipped", [True, False])
def test_gate(width: int, skipped: bool) -> None:
    shape = (3, 101, width)
    check(gate, plain_gate, draw(shape, shape, shape if skipped else None, (width,) if skipped else None))


def test_a_gate_reads_columns_where_they_lie() -> None:
    def plain(wide: Tensor, x: Tensor, skip: Tensor) -> Tensor:
        z, u = wide.chunk(2, dim=-1)
        return plain_gate(x, z, u, skip)

    check(in_columns, plain, draw((2, 90, 74), (2, 90, 37), (37,)))


@pytest.mark.parametrize("count", [1, 3, 6, 9])
@pytest.mark.parametrize("width", [16, 37])
def test_mixtures(count: int, width: int) -> None:
    """Nine are more than the kernel takes."""
    check(mixtures, plain_mixtures, draw((3, 101, width), (3, 101, width), (count, width)))


def test_a_mixture_that_nothing_depends_on_has_no_gradient() -> None:
    x, change, share = (y.requires_grad_() for y in draw((40, 128), (40, 128), (3, 128)) if y is not None)
    mixtures(x, change, share)[1].sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, torch.ones_like(x))
    assert share.grad is not None
    assert not share.grad[[0, 2]].any()


@needs_library
@pytest.mark.parametrize(("op", "file", "count"), [(gate, gate_file, 0), (mixtures, token_shift, 4)])
def test_the_kernel_runs_where_it_can(op: object, file: object, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*args: object) -> Tensor:
        raise AssertionError("plain torch")

    x, z, share = draw((64, 256), (64, 256), (count, 256))
    given = (x, z, share)[: 3 if count else 2]
    check_graphs(op, given)  # type: ignore[arg-type]
    monkeypatch.setattr(file, "_plain", forbidden)
    leaves = [y.clone().requires_grad_() for y in given if y is not None]
    bits = []
    for several in (1, 2):
        with threads(several):
            out = op(*leaves)  # type: ignore[operator]
            total = out.sum() if isinstance(out, Tensor) else sum(y.sum() for y in out)
            bits.append(torch.autograd.grad(total, leaves))
    assert all(torch.equal(a, b) for a, b in zip(*bits, strict=True))
    with pytest.raises(AssertionError, match="plain torch"):
        op(*(y.double() for y in leaves))  # type: ignore[operator]
