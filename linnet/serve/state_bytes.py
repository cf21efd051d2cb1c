"""The state of one row as bytes, for the server's own store and for sealed states.

The bytes are trusted: they come from the store or carry a seal. A state file that a client uploads is read by
`ModelState`, which trusts nothing.
"""

from __future__ import annotations

from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from ..models import ModelState, StreamModel

POSITION, LOGITS = "position", "logits"


def pack_state(state: ModelState, logits: Tensor | None = None) -> bytes:
    """Return a state, and the logits after it if there are any, as bytes."""
    tensors = {
        f"{i}.{name}": x.contiguous() for i, layer in enumerate(state.layers) for name, x in layer.tensors.items()
    }
    tensors[POSITION] = state.position
    if logits is not None:
        tensors[LOGITS] = logits.contiguous()
    return save(tensors)


def unpack_state(data: bytes, model: StreamModel) -> tuple[ModelState, Tensor | None]:
    """Return what `pack_state` packed."""
    tensors = load(data)
    layers: list[Any] = []
    for i, empty in enumerate(model.backbone.empty_state(1, dtype=torch.float32).layers):
        kind: Any = type(empty)
        layers.append(kind._make([tensors.get(f"{i}.{name}") for name in kind._fields]))
    return ModelState(tuple(layers), tensors[POSITION]), tensors.get(LOGITS)
