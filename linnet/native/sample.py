"""Values of an image drawn in native code: `ImageModel.sample` at temperature 1, without twenty torch operations.

    values [B] = choose(params [B,P], uniforms [B,2], levels, mixture)

One value at a time these operations cost as much as the step of the model. models/mixture.py is the reference.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .library import STATUS, library


def can_choose(params: Tensor) -> bool:
    return library() is not None and params.is_cpu and params.dtype == torch.float32 and params.is_contiguous()


def choose(params: Tensor, uniforms: Tensor, levels: int, mixture: bool) -> Tensor:
    """[B] long; params float32 and uniforms float64, contiguous on the cpu."""
    lib = library()
    assert lib is not None
    rows, width = params.shape
    assert uniforms.shape == (rows, 2)
    assert uniforms.dtype == torch.float64
    assert uniforms.is_contiguous()
    values = torch.empty(rows, dtype=torch.int64)
    pointers = (x.data_ptr() for x in (params, uniforms, values))
    status = lib.linnet_choose(*pointers, rows, width, levels, mixture)
    if status:
        raise RuntimeError(f"linnet_choose refused the call: {STATUS.get(status, status)}")
    return values
