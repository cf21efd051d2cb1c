"""When an op may run a native kernel behind autograd's back, and what to do when a gradient needs a gradient.

    native when: the library is there, float32 on the cpu, plain tensors, no autocast, and nobody records the graph

torch.compile, forward-mode AD, vmap and other functorch transforms, and tensor subclasses (DTensor, fake tensors) see
plain torch instead, with the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ..native.library import library

BLOCK = 1024  # rows of one matrix product: its output is still in the cache when the next sweep reads it
SMALLEST = 4096  # numbers: below this a call into the library costs more than it saves
_PLAIN = (Tensor, torch.nn.Parameter)


def readable(*tensors: Tensor | None) -> bool:
    """True when these are numbers in this machine's memory, not names in a graph that is being recorded."""
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return False
    return all(t is None or (type(t) in _PLAIN and t.is_cpu) for t in tensors)


def native(*tensors: Tensor | None) -> bool:
    """True when all of these may be handed to a kernel."""
    if not readable(*tensors) or library() is None or forward_ad._current_level >= 0:
        return False
    return not torch.is_autocast_enabled("cpu") and all(t is None or t.dtype == torch.float32 for t in tensors)


def wants_graph(*tensors: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def gradients(plain: Callable[..., Any], inputs: tuple[Tensor | None, ...], grads: tuple[Any, ...]) -> list[Any]:
    """Gradients of `plain` that can be differentiated again: for backward passes with create_graph."""
    wanted = [t for t in inputs if t is not None and t.requires_grad]
    outs = plain(*inputs)
    outs = (outs,) if isinstance(outs, Tensor) else outs
    used = [(out, g) for out, g in zip(outs, grads, strict=True) if g is not None and out.requires_grad]
    results, given = [out for out, _ in used], [g for _, g in used]
    found = iter(torch.autograd.grad(results, wanted, given, create_graph=True, allow_unused=True))
    return [next(found) if t is not None and t.requires_grad else None for t in inputs]


def rows(x: Tensor) -> Tensor:
    """[..., N] as dense rows [R,N]."""
    return x.reshape(-1, x.shape[-1]).contiguous()
