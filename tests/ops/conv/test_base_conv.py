"""BaseConv as one op: convolution times gate beside the input, as plain torch has it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from linnet.layers import BaseConv
from linnet.ops.conv.base_conv import base_conv
from tests.ops.rows import check, check_graphs, draw

E = 24


def plain(x: Tensor, weight: Tensor, bias: Tensor, gate_weight: Tensor, gate_bias: Tensor) -> Tensor:
    """The convolution by torch's own conv1d."""
    K = weight.shape[1]
    conv = F.conv1d(F.pad(x.mT, (K - 1, 0)), weight[:, None], bias, groups=x.shape[2]).mT
    return conv * (x @ gate_weight.t() + gate_bias) + x


@pytest.mark.parametrize("size", [1, 3, 4])
@pytest.mark.parametrize("shape", [(5, 37, E), (100, 2, E), (1, 200, E), (2, 3, E)])
def test_numbers_and_gradients(shape: tuple[int, int, int], size: int) -> None:
    check(base_conv, plain, draw(shape, (E, size), (E,), (E, E), (E,)))


def test_the_layer_gives_the_same_with_its_state() -> None:
    """With a state the layer takes the convolution and the gate apart."""
    torch.manual_seed(0)
    layer, (x,) = BaseConv(E), draw((3, 80, E))
    together, none = layer(x)
    apart, state = layer(x, output_state=True)
    assert none is None
    assert state is not None
    torch.testing.assert_close(together, apart, rtol=2e-5, atol=2e-5)
    torch.testing.assert_close(layer(x, mask=torch.ones(3, 80, dtype=torch.bool))[0], together, rtol=2e-5, atol=2e-5)


@pytest.mark.slow
def test_graphs() -> None:
    check_graphs(base_conv, draw((4, 60, E), (E, 3), (E,), (E, E), (E,)))
