"""q, k and v from one product: the split and turn of plain torch, and one table for all sequences of a batch."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

from linnet.ops.fused import projection
from linnet.ops.fused.projection import project, turn
from linnet.ops.native_allowed import BLOCK
from tests.ops.rows import check, check_graphs, draw


def table(rows: int, width: int) -> tuple[Tensor, Tensor]:
    angle = torch.arange(rows, dtype=torch.float64)[:, None] / 7 ** torch.arange(width // 2, dtype=torch.float64)
    return angle.cos().float(), angle.sin().float()


def turned(x: Tensor, rows: int, width: int) -> Tensor:
    """Complex numbers instead of sines and cosines: x [B,T,H D]."""
    cos, sin = (t.double() for t in table(rows, width))
    heads = x.double().unflatten(-1, (-1, 2, width // 2))
    out = torch.complex(heads[..., 0, :], heads[..., 1, :]) * torch.complex(cos, sin)[:, None]
    return torch.stack((out.real, out.imag), dim=-2).flatten(-3)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("width", [None, 8, 12])
def test_project(width: int | None, bias: bool) -> None:
    widths = (48, 24, 20)
    how = {"widths": widths, "table": None if width is None else table(70, width)}
    given = draw((3, 70, 24), (sum(widths), 24), (sum(widths),) if bias else None)
    check(partial(project, **how), partial(projection._plain, **how), given)


@pytest.mark.parametrize("length", [BLOCK - 1, BLOCK + 5])
def test_blocks_and_sequences_meet(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection, "NUMBERS", 1)
    how = {"widths": (16, 16, 8), "table": table(length, 8)}
    check(partial(project, **how), partial(projection._plain, **how), draw((2, length, 16), (40, 16), (40,)))


def test_the_turn_is_a_rotation() -> None:
    x, weight = draw((2, 300, 16), (40, 16))
    assert x is not None
    assert weight is not None
    q, k, v = project(x, weight, None, (16, 16, 8), table(300, 8))
    plain = x.double() @ weight.double().t()
    torch.testing.assert_close(q.double(), turned(plain[..., :16], 300, 8), rtol=0, atol=2e-5 * 20)
    torch.testing.assert_close(k.double(), turned(plain[..., 16:32], 300, 8), rtol=0, atol=2e-5 * 20)
    torch.testing.assert_close(v.double(), plain[..., 32:], rtol=0, atol=2e-5 * 20)
    assert turn(x[:, :0], table(0, 8)).shape == (2, 0, 16)


def test_a_part_that_nobody_reads_has_no_gradient() -> None:
    x, weight = draw((2, 300, 16), (40, 16))
    assert x is not None
    assert weight is not None
    weight.requires_grad_()
    _, _, v = project(x, weight, None, (16, 16, 8))
    v.sum().backward()
    assert weight.grad is not None
    assert (weight.grad[:32] == 0).all()
    assert (weight.grad[32:] != 0).all()


@pytest.mark.slow
def test_graphs() -> None:
    check_graphs(partial(project, widths=(16, 16, 8), table=table(300, 8)), draw((300, 16), (40, 16), (40,)))
