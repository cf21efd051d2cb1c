"""Gradient checkpointing: a block's activations are thrown away and computed again on the way back.

Memory falls from that of every layer to that of one layer and the inputs of the others, for one more forward pass.
Chen et al. 2016, arXiv:1604.06174. Dropout draws the same numbers again, so the gradients are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

Recompute = Callable[..., Any]  # (function, *inputs) -> its outputs, computed again in the backward pass
RECOMPUTE: Recompute = partial(checkpoint, use_reentrant=False)


@contextmanager
def recomputed(blocks: Iterable[nn.Module], enabled: bool = True, recompute: Recompute = RECOMPUTE) -> Iterator[None]:
    """While open, each block keeps only its input; names of parameters stay as they are."""
    chosen = list(blocks) if enabled else []
    before = [vars(block).get("forward") for block in chosen]  # of an instance: a hook of another library
    for block in chosen:
        block.forward = _light(block.forward, recompute)
    try:
        yield
    finally:
        for block, own in zip(chosen, before, strict=True):
            del block.forward  # the class's own again
            if own is not None:
                block.forward = own


def _light(forward: Callable[..., Any], recompute: Recompute) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        return recompute(partial(forward, **kwargs), *args)

    return run
