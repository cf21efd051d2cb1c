"""A layer widens an initial state in half precision; what is not of one half precision is refused.

The ops themselves are in test_contract.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from linnet import ops
from linnet.errors import StateError
from linnet.layers import MIXERS, build_mixer
from linnet.ops.state import State

B, T, H, D, V = 2, 6, 2, 4, 3


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


Q, KEYS, VALUES = draw(B, T, H, D), draw(B, T, H, D) / 2, draw(B, T, H, V)


def changed(state: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The state with `change` applied to its numbers; flags stay."""
    return type(state)._make(x if x is None or x.dtype == torch.bool else change(x) for x in state)


def compared(run: Callable[[Any], tuple[Tensor, Any]], state: Any, half: torch.dtype) -> None:
    """`run` on the half state and on the same numbers in float32: results and gradients."""
    narrow = changed(state, lambda x: x.detach().to(half).requires_grad_())
    wide = changed(narrow, lambda x: x.detach().float().requires_grad_())
    (out, new), (want, end) = run(narrow), run(wide)
    assert torch.equal(out, want)
    for a, b in zip(new.tensors.values(), end.tensors.values(), strict=True):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)
    given, same = ([x for x in s.tensors.values() if x.requires_grad] for s in (narrow, wide))
    grads = [torch.autograd.grad(y.square().sum(), xs, allow_unused=True) for y, xs in ((out, given), (want, same))]
    for x, a, b in zip(given, *grads, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert a.dtype == x.dtype == half
            assert torch.equal(a, b.to(half))


@pytest.mark.parametrize("name", MIXERS)
def test_every_layer_widens(name: str) -> None:
    torch.manual_seed(0)
    layer = build_mixer(name, d_model=8, n_heads=2)
    x = draw(B, 7, 8)
    _, state = layer(x, output_state=True)
    compared(lambda s: layer(x, s, output_state=True), state, torch.bfloat16)
    compared(lambda s: layer.step(x[:, 0], s), state, torch.bfloat16)


def test_what_is_not_of_one_half_precision_is_refused() -> None:
    _, sums = ops.linear_attention(Q, KEYS, VALUES, output_final_state=True)
    assert sums is not None
    with pytest.raises(StateError, match=r"one dtype out of torch\.float32, torch\.float64"):
        ops.linear_attention(Q, KEYS, VALUES, initial_state=State(sums.s.half(), sums.z))
    _, cache = ops.softmax_attention(Q, KEYS, VALUES, output_final_state=True)
    assert cache is not None
    with pytest.raises(StateError, match=r"float64 on cpu but k is torch\.float32"):
        ops.softmax_attention(Q, KEYS, VALUES, initial_state=cache.to(dtype=torch.float64))
    narrow = [x.bfloat16() for x in (Q, KEYS, VALUES)]
    with pytest.raises(StateError, match=r"float16 on cpu but k is torch\.bfloat16"):
        ops.softmax_attention(*narrow, initial_state=cache.to(dtype=torch.float16))
