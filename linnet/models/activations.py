"""Activation checkpointing: discard a block's activations and recompute them in the backward pass.

Peak memory falls to one layer's activations and the inputs of the others, at the cost of one more forward pass.
Chen et al. 2016, arXiv:1604.06174. Dropout repeats its draws, so the gradients are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

Recompute = Callable[..., Any]  # (function, *inputs) -> outputs, recomputed in the backward pass
RECOMPUTE: Recompute = partial(checkpoint, use_reentrant=False)


@contextmanager
def recomputed(blocks: Iterable[nn.Module], enabled: bool = True, recompute: Recompute = RECOMPUTE) -> Iterator[None]:
    """Within the context, each block keeps only its input; the names of parameters do not change."""
    chosen = list(blocks) if enabled else []
    before = [vars(block).get("forward") for block in chosen]  # an instance attribute: the hook of another library
    for block in chosen:
        block.forward = _recomputing(block.forward, recompute)
    try:
        yield
    finally:
        for block, own in zip(chosen, before, strict=True):
            del block.forward  # back to the method of the class
            if own is not None:
                block.forward = own


def _recomputing(forward: Callable[..., Any], recompute: Recompute) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        return recompute(partial(forward, **kwargs), *args)

    return run
