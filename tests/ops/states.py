"""One state of every kind and dtype, for the tests of states as values and of the state file."""

from __future__ import annotations

import torch

from linnet.ops.state import AnyState, ConvState, KVState, State, WindowState

B, T, H, F, D, V, E = 3, 5, 2, 6, 3, 4, 7


def linear(dtype: torch.dtype = torch.float32) -> State:
    return State(torch.randn(B, H, F, V, dtype=dtype), torch.rand(B, H, F, dtype=dtype))


def cache(length: int = T, dtype: torch.dtype = torch.float32, padded: bool = True) -> KVState:
    mask = torch.arange(B * length).reshape(B, length) % 3 > 0 if padded else None
    return KVState(torch.randn(B, length, H, D).to(dtype), torch.randn(B, length, H, V).to(dtype), mask)


def window() -> WindowState:
    return WindowState(*cache())


def conv(dtype: torch.dtype = torch.float32) -> ConvState:
    return ConvState(torch.randn(B, 2, E).to(dtype))


ALL = [
    *(linear(), linear(torch.float64)),
    *(cache(), cache(0), cache(dtype=torch.bfloat16, padded=False)),
    window(),
    *(conv(), conv(torch.bfloat16)),
]


def same(a: AnyState, b: AnyState) -> bool:
    pairs = list(zip(a, b, strict=True))
    return type(a) is type(b) and all(x is y or (x.dtype == y.dtype and torch.equal(x, y)) for x, y in pairs)
