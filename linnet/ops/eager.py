"""When an op may run a native kernel behind autograd's back, and what to do when a gradient needs a gradient.

    native when: the library is there, float32 on the cpu, plain tensors, no autocast, and nobody looks on

torch.compile, tracing, dispatch modes, forward-mode AD, vmap and other functorch transforms, and tensor subclasses
(DTensor, fake tensors, a user's own) see plain torch instead, with the same numbers. How a tensor lies in memory is no
reason against: the gate (native/gate.py) reads it right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ..native.gate import dense, in_memory
from ..native.library import library

BLOCK = 1024  # rows of one matrix product: its output is still in the cache when the next sweep reads it
SMALLEST = 4096  # numbers: below this a call into the library costs more than it saves
_PLAIN = (Tensor, torch.nn.Parameter)


def readable(*tensors: Tensor | None) -> bool:
    """True when these are numbers in this machine's memory, not names in a graph that is being recorded."""
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return False
    for t in tensors:  # noqa: SIM110  loops, here and below: generators would cost more than all the rest
        if t is not None and not (type(t) in _PLAIN and t.is_cpu):
            return False
    return True


def plain(*tensors: Tensor | None) -> bool:
    """True unless one of these is of a class that may stand for something else than its own numbers."""
    for t in tensors:  # noqa: SIM110
        if t is not None and type(t) not in _PLAIN:
            return False
    return True


def transformed() -> bool:
    """True inside vmap, grad, jvp and dual levels: only plain torch, written without kernels, carries what they add."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def recorded() -> bool:
    """True while someone writes down which operators run: a kernel's result would be taken for a constant."""
    return torch._C._len_torch_dispatch_stack() > 0 or torch._C._is_tracing()


def native(*tensors: Tensor | None) -> bool:
    """True when all of these may be handed to a kernel."""
    if not readable(*tensors):
        _check_devices(tensors)
        return False
    if forward_ad._current_level >= 0 or torch._C._len_torch_dispatch_stack() or torch._C._is_tracing():
        return False
    for t in tensors:
        if t is not None and t.dtype is not torch.float32:
            return False
    return library() is not None and not torch.is_autocast_enabled("cpu")


def _check_devices(tensors: tuple[Tensor | None, ...]) -> None:
    """ValueError for shapes among numbers: torch's own products take a bias without numbers, and answer anything."""
    kinds = {t.device.type for t in tensors if t is not None} if not torch.compiler.is_compiling() else set()
    if "meta" in kinds and len(kinds) > 1:
        raise ValueError(f"the tensors are on {' and '.join(sorted(kinds))}; accepted: one device; use x.to(device)")


def wants_graph(*tensors: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def by_kernel(*grads: Tensor | None) -> bool:
    """True when a backward pass may run its kernel on these: nobody differentiates it, and no vmap runs through it."""
    return not torch.is_grad_enabled() and readable(*grads) and in_memory(*grads) and not recorded()


def by_hand(*grads: Tensor | None) -> bool:
    """True when a backward pass written in torch may run: nobody differentiates it, and no batched gradients arrive."""
    return not torch.is_grad_enabled() and (not plain(*grads) or in_memory(*grads))


def gradients(plain: Callable[..., Any], inputs: tuple[Tensor | None, ...], grads: tuple[Any, ...]) -> list[Any]:
    """Gradients of `plain` that can be differentiated again: for backward passes with create_graph."""
    wanted = [t for t in inputs if t is not None and t.requires_grad]
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        outs = plain(*inputs)
        outs = (outs,) if isinstance(outs, Tensor) else outs
        used = [(out, g) for out, g in zip(outs, grads, strict=True) if g is not None and out.requires_grad]
        results, given = [out for out, _ in used], [g for _, g in used]
        found = iter(torch.autograd.grad(results, wanted, given, create_graph=again, allow_unused=True))
    return [next(found) if t is not None and t.requires_grad else None for t in inputs]


def rows(x: Tensor) -> Tensor:
    """[..., N] as dense rows [R,N]."""
    x = x.reshape(-1, x.shape[-1])
    if torch.compiler.is_compiling():  # no kernel reads them, and a graph cannot ask for a pending negation
        return x.contiguous()
    return dense(x, x.dtype) if x.is_neg() else x.contiguous()
