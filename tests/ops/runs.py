"""Every form and backend that can run here, random inputs and one comparison, for the tests of linear attention."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from linnet.native.library import info
from linnet.ops.linear.forms import FORMS

TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}
RUNS = [*((form, "torch") for form in FORMS), *([("chunked", "native")] if info()["loaded"] else [])]
every_run = pytest.mark.parametrize(("form", "backend"), RUNS)


def qkv(*shape: int, value: int = 4, dtype: torch.dtype = torch.float32, seed: int = 0) -> tuple[Tensor, ...]:
    g = torch.Generator().manual_seed(seed)
    B, T, H, D = shape
    return tuple(torch.randn(B, T, H, n, generator=g).to(dtype) for n in (D, D, value))


def close(a: Tensor, b: Tensor, dtype: torch.dtype | None = None) -> bool:
    limit = TOLERANCE[dtype or a.dtype] * b.double().abs().max().clamp(min=1e-3)
    return bool(((a.double() - b.double()).abs() <= limit).all())
