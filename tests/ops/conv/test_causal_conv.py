"""The convolution of the short convolution: the sum as written, in every dtype, on any thread count, in any graph."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from linnet.ops.conv import naive
from linnet.ops.conv.causal_conv import causal_conv
from tests.ops.rows import check, check_graphs, draw, needs_library, one_thread_or_more, run


def written_out(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return naive.short_conv(x, weight, bias)[0]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("size", [1, 3, 4])
@pytest.mark.parametrize("shape", [(5, 37, 24), (100, 2, 33), (1, 150, 40), (3, 4, 5)])
def test_the_sum_as_written(shape: tuple[int, int, int], size: int, bias: bool) -> None:
    """Sequences shorter than the filter, widths that fill no vector, and (the last) too small for the library."""
    width = shape[2]
    check(causal_conv, written_out, draw(shape, (width, size), (width,) if bias else None))


def test_strided_rows() -> None:
    """A slice of a wider tensor, as a gated convolution has it."""
    wide, weight = draw((4, 60, 80), (40, 3))
    assert wide is not None
    assert weight is not None
    part = wide[..., 40:]
    torch.testing.assert_close(causal_conv(part, weight, None), causal_conv(part.contiguous(), weight, None))


@needs_library
def test_any_number_of_threads() -> None:
    given = draw((8, 130, 40), (40, 3), (40,))
    one_thread_or_more(lambda: run(causal_conv, given))


@pytest.mark.slow
def test_graphs() -> None:
    check_graphs(causal_conv, draw((4, 40, 32), (32, 3), (32,)))
