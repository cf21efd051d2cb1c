"""Gradient checkpointing: a block's activations are thrown away and computed again on the way back.

Memory falls from that of every layer to that of one layer and the inputs of the others, for one more forward pass.
Chen et al. 2016, arXiv:1604.06174. Dropout draws the same numbers again, so the gradients are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


@contextmanager
def recomputed(blocks: nn.ModuleList, enabled: bool = True) -> Iterator[None]:
    """While open, each block keeps only its input; names of parameters stay as they are."""
    chosen = list(blocks) if enabled else []
    for block in chosen:
        block.forward = _light(block.forward)
    try:
        yield
    finally:
        for block in chosen:
            del block.forward  # the class's own again


def _light(forward: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    return run
