"""Draw the values of an image in native code: `ImageModel.sample` at temperature 1, without twenty torch operations.

    values [B] = choose(params [B,P], uniforms [B,2], levels, mixture)

One value at a time these operations cost as much as the step of the model. models/mixture.py is the reference.
"""

from __future__ import annotations

import torch
from torch import Tensor

from . import gate, structs
from .call import Function
from .library import library
from .memory import fresh

CHOOSE = Function(structs.Choose)


def can_choose(params: Tensor) -> bool:
    return library() is not None and params.is_cpu and params.dtype == torch.float32 and params.is_contiguous()


def choose(params: Tensor, uniforms: Tensor, levels: int, mixture: bool) -> Tensor:
    """Return [B] int64; params [B,P] float32 and uniforms [B,2] float64 on the cpu."""
    rows, width = params.shape
    if uniforms.shape != (rows, 2):
        raise ValueError(f"uniforms has shape {list(uniforms.shape)}; accepted: [{rows}, 2], two for each row")
    params, uniforms = gate.dense(params), gate.dense(uniforms, torch.float64)
    values = fresh(rows, dtype=torch.int64)
    CHOOSE.call(values=values, params=params, uniforms=uniforms, rows=rows, width=width, levels=levels, mixture=mixture)
    return values
