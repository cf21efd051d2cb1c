"""The convolution of the short convolution: the sum as written, in every dtype, on any thread count, in any graph."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from linnet.ops.taps import taps
from tests.ops.rows import check, check_graphs, draw, needs_library, one_thread_or_more, run


def written_out(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """One token at a time."""
    K = weight.shape[1]
    rows = []
    for t in range(x.shape[1]):
        parts = [weight[:, K - 1 - j] * x[:, t - j] for j in range(min(K, t + 1))]
        rows.append(torch.stack(parts).sum(0))
    y = torch.stack(rows, dim=1)
    return y if bias is None else y + bias


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("size", [1, 3, 4])
@pytest.mark.parametrize("shape", [(5, 37, 24), (100, 2, 33), (1, 150, 40), (3, 4, 5)])
def test_the_sum_as_written(shape: tuple[int, int, int], size: int, bias: bool) -> None:
    """Sequences shorter than the filter, widths that fill no vector, and (the last) too small for the library."""
    width = shape[2]
    check(taps, written_out, draw(shape, (width, size), (width,) if bias else None))


def test_strided_rows() -> None:
    """A slice of a wider tensor, as a gated convolution has it."""
    wide, weight = draw((4, 60, 80), (40, 3))
    assert wide is not None
    assert weight is not None
    torch.testing.assert_close(taps(wide[..., 40:], weight, None), taps(wide[..., 40:].contiguous(), weight, None))


@needs_library
def test_any_number_of_threads() -> None:
    given = draw((8, 130, 40), (40, 3), (40,))
    one_thread_or_more(lambda: run(taps, given))


@pytest.mark.slow
def test_graphs() -> None:
    check_graphs(taps, draw((4, 40, 32), (32, 3), (32,)))
