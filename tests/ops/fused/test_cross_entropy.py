"""Cross entropy of a linear head: plain torch's numbers and gradients without the scores of all tokens."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from linnet.native.process_memory import extra_memory
from linnet.ops.fused import cross_entropy as module
from linnet.ops.fused.cross_entropy import linear_cross_entropy
from tests.ops.rows import check, check_graphs, draw, needs_library, run


def targets(rows: int, vocabulary: int) -> Tensor:
    drawn = torch.randint(vocabulary, (rows,), generator=torch.Generator().manual_seed(1))
    drawn[::5] = -100
    drawn[1], drawn[2] = 0, vocabulary - 1
    return drawn


def few_targets(rows: int, vocabulary: int, every: int = 4) -> Tensor:
    """As in recall tasks: one row in `every` has a target."""
    drawn = targets(rows, vocabulary).abs().clamp(max=vocabulary - 1)
    drawn[torch.arange(rows) % every != 0] = -100
    return drawn


def ours(h: Tensor, weight: Tensor, bias: Tensor | None, *, at: Tensor) -> Tensor:
    return linear_cross_entropy(h, weight, bias, at)[0]


def plain(h: Tensor, weight: Tensor, bias: Tensor | None, *, at: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(h, weight, bias), at, ignore_index=-100, reduction="sum")


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("vocabulary", [3, 17, 256])
def test_sum_and_gradients(vocabulary: int, bias: bool) -> None:
    at = targets(150, vocabulary)
    given = draw((150, 24), (vocabulary, 24), (vocabulary,) if bias else None)
    check(partial(ours, at=at), partial(plain, at=at), given)
    h, weight, _ = given
    assert h is not None
    assert weight is not None
    total, count = linear_cross_entropy(h.view(5, 30, 24), weight, None, at.view(5, 30))
    assert count == 120
    torch.testing.assert_close(total, plain(h, weight, None, at=at))
    assert torch.equal(linear_cross_entropy(h, weight, None, at.int())[0], total)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("every", [2, 4, 150])
def test_rows_without_a_target_are_not_looked_at(every: int, bias: bool) -> None:
    """The numbers and gradients of all rows, from the rows that count; NaN in the others reaches nothing."""
    at = few_targets(150, 17, every)
    given = draw((150, 24), (17, 24), (17,) if bias else None)
    check(partial(ours, at=at), partial(plain, at=at), given)
    h, weight, _ = given
    assert h is not None
    assert weight is not None
    spoiled = torch.where((at < 0)[:, None], float("nan"), h).view(5, 30, 24)
    for dtype in (torch.float32, torch.float64):
        one, other = (
            run(partial(ours, at=at.view(5, 30)), (x.to(dtype), weight, None), dtype)
            for x in (h.view(5, 30, 24), spoiled)
        )
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_no_target_at_all() -> None:
    h, weight = (torch.ones(40, 8, requires_grad=True), torch.ones(5, 8, requires_grad=True))
    total, count = linear_cross_entropy(h, weight, None, torch.full((40,), -100))
    total.backward()
    assert (total.item(), count.item()) == (0, 0)
    assert h.grad is not None
    assert weight.grad is not None
    assert not h.grad.any()
    assert not weight.grad.any()


def test_blocks_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SCORES", 17 * 20)
    at = targets(150, 17)
    check(partial(ours, at=at), partial(plain, at=at), draw((150, 24), (17, 24), (17,)))


@needs_library
def test_large_scores_and_nan() -> None:
    h, weight = torch.full((300, 16), 30.0), torch.randn(9, 16, generator=torch.Generator().manual_seed(0))
    at = torch.arange(300) % 9
    wide = plain(h.double(), weight.double(), None, at=at)
    assert abs(ours(h, weight, None, at=at) / wide - 1) < 2e-6
    h[7, 7] = float("nan")
    assert ours(h, weight, None, at=at).isnan()
    h[7, 7] = float("inf")
    assert not ours(h, weight, None, at=at).isfinite()
    assert linear_cross_entropy(h, weight, None, torch.full((300,), -100)) == (0, 0)


@pytest.mark.parametrize("wrong", [9, -5])
def test_a_target_outside_the_vocabulary_is_named(wrong: int) -> None:
    h, weight = draw((300, 16), (9, 16))
    at = torch.zeros(300, dtype=torch.long)
    at[3] = wrong
    assert h is not None
    assert weight is not None
    with pytest.raises(ValueError, match=rf"targets has {wrong}; accepted: 0 to 8, or -100"):
        linear_cross_entropy(h, weight, None, at)


@needs_library
def test_memory_is_that_of_a_slice() -> None:
    h, weight = torch.randn(4096, 16), torch.randn(4096, 16)  # all scores: 64 MiB
    h.requires_grad_()
    at = torch.zeros(4096, dtype=torch.long)
    total, extra = extra_memory(lambda: linear_cross_entropy(h, weight, None, at)[0])
    assert total.requires_grad
    assert extra is None or extra < 16 << 20


@pytest.mark.slow
def test_graphs() -> None:
    check_graphs(partial(ours, at=targets(300, 17)), draw((300, 24), (17, 24), (17,)))
