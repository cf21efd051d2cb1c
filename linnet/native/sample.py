"""Values of an image drawn in native code: `ImageModel.sample` at temperature 1, without twenty torch operations.

    values [B] = choose(params [B,P], uniforms [B,2], levels, mixture)

One value at a time these operations cost as much as the step of the model. models/mixture.py is the reference.
"""

from __future__ import annotations

import torch
from torch import Tensor

from . import gate
from .library import STATUS, library
from .memory import fresh


def can_choose(params: Tensor) -> bool:
    return library() is not None and params.is_cpu and params.dtype == torch.float32 and params.is_contiguous()


def choose(params: Tensor, uniforms: Tensor, levels: int, mixture: bool) -> Tensor:
    """[B] long; params [B,P] float32 and uniforms [B,2] float64 on the cpu."""
    lib = library()
    assert lib is not None
    rows, width = params.shape
    if uniforms.shape != (rows, 2):
        raise ValueError(f"uniforms has shape {list(uniforms.shape)}; accepted: [{rows}, 2], two for each row")
    params, uniforms = gate.dense(params), gate.dense(uniforms, torch.float64)
    values = fresh(rows, dtype=torch.int64)
    if gate.CHECK:
        gate.verify("linnet_choose: params", params, (rows, width))
        gate.verify("linnet_choose: uniforms", uniforms, (rows, 2), torch.float64)
    status = lib.linnet_choose(*gate.addresses((params, uniforms, values)), rows, width, levels, mixture)
    if status:
        raise RuntimeError(f"linnet_choose refused the call: {STATUS.get(status, status)}")
    return values
