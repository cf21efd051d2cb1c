"""When an op may run a native kernel that autograd does not see, and how second derivatives are taken.

    native when: the library is loaded, float32 on the CPU, plain tensors, no autocast, and nothing records the call

torch.compile, tracing, dispatch modes, forward-mode AD, vmap and other functorch transforms, and tensor subclasses
(DTensor, fake tensors, a user's own) get plain torch instead, with the same numbers. Memory layout does not matter: the
gate (native/gate.py) handles strides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ..native.gate import PLAIN, dense, in_memory
from ..native.library import library, reason
from .checks import NARROW

BLOCK = 1024  # rows of one matrix product: its output is still in the cache when the next pass reads it
SMALLEST = 4096  # numbers: below this a call into the library costs more than it saves


def readable(*tensors: Tensor | None) -> bool:
    """Return True when these are numbers in this machine's memory, not symbols of a graph that is being recorded."""
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return False
    for t in tensors:  # noqa: SIM110  loops, here and below: generators would cost more than all the rest
        if t is not None and not (type(t) in PLAIN and t.is_cpu):
            return False
    return True


def plain(*tensors: Tensor | None) -> bool:
    """Return True unless one of these is a tensor subclass, which may stand for something other than its numbers."""
    for t in tensors:  # noqa: SIM110
        if t is not None and type(t) not in PLAIN:
            return False
    return True


def transformed() -> bool:
    """Return True inside vmap, grad, jvp and dual levels, which only plain torch operations support."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def recorded() -> bool:
    """Return True while operators are recorded: the result of a kernel would be taken for a constant."""
    return torch._C._len_torch_dispatch_stack() > 0 or torch._C._is_tracing()


def native(*tensors: Tensor | None) -> bool:
    """Return True when all of these may be passed to a kernel."""
    if not readable(*tensors):
        _check_devices(tensors)
        return False
    if forward_ad._current_level >= 0 or torch._C._len_torch_dispatch_stack() or torch._C._is_tracing():
        return False
    for t in tensors:
        if t is not None and t.dtype is not torch.float32:
            return False
    return library() is not None and not torch.is_autocast_enabled("cpu")


def unsupported(dtype: torch.dtype, device: str, size: int | None = None) -> str | None:
    """Return why the kernels on rows cannot take such tensors, as the rest of a sentence; None if they can.

    `size` is how many numbers there are, where the choice depends on it.
    """
    if library() is None:
        return reason()
    if device != "cpu":
        return f"the native kernels run on cpu tensors, these are on {device}"
    if dtype != torch.float32:
        return f"this native kernel takes float32, not {dtype}"
    if size is not None and size < SMALLEST:
        return f"a kernel call pays off from {SMALLEST} numbers, these are {size}"
    return None


def refused(size: int | None, *tensors: Tensor | None) -> str | None:
    """Return why no kernel may run on these, as `unsupported`; None if one may."""
    recorded = "the call is recorded, transformed or under autocast, or a tensor is of a subclass"
    if torch.compiler.is_compiling():
        return recorded
    if size is not None and size < SMALLEST:
        return f"a kernel call pays off from {SMALLEST} numbers, these are {size}"
    if native(*tensors):
        return None
    given = [t for t in tensors if t is not None]
    dtype = next((t.dtype for t in given if t.dtype != torch.float32), torch.float32)
    return unsupported(dtype, given[0].device.type) or recorded


def refused_sequence(*tensors: Tensor | None) -> str | None:
    """Return why a kernel of the recurrent ops cannot take these, as `unsupported`; None if it can.

    Half precision is widened on the way in, and the kernel computes in float32, as the torch forms do under autocast.
    """
    recorded_call = "the call is recorded or transformed, or a tensor is of a subclass"
    if torch.compiler.is_compiling():
        return recorded_call
    given = [t for t in tensors if t is not None]
    device = next((t.device.type for t in given if not t.is_cpu), "cpu")
    if not readable(*given) or forward_ad._current_level >= 0 or recorded():
        _check_devices(tensors)
        return unsupported(torch.float32, device) or recorded_call
    wide = next((t.dtype for t in given if t.dtype not in (torch.float32, *NARROW)), torch.float32)
    return unsupported(wide, device)


def _check_devices(tensors: tuple[Tensor | None, ...]) -> None:
    """Raise for meta tensors among others: the matrix products of torch accept a meta bias and return garbage."""
    kinds = {t.device.type for t in tensors if t is not None} if not torch.compiler.is_compiling() else set()
    if "meta" in kinds and len(kinds) > 1:
        raise ValueError(f"the tensors are on {' and '.join(sorted(kinds))}; accepted: one device; use x.to(device)")


def wants_graph(*tensors: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def by_kernel(*grads: Tensor | None) -> bool:
    """Return True when a backward pass may run its kernel on these: it is neither differentiated nor inside vmap."""
    return not torch.is_grad_enabled() and readable(*grads) and in_memory(*grads) and not recorded()


def by_hand(*grads: Tensor | None) -> bool:
    """Return True when a hand-written backward pass may run: it is not differentiated, its gradients not batched."""
    return not torch.is_grad_enabled() and (not plain(*grads) or in_memory(*grads))


def gradients(plain: Callable[..., Any], inputs: tuple[Tensor | None, ...], grads: tuple[Any, ...]) -> list[Any]:
    """Return gradients of `plain` that can be differentiated again: for backward passes with create_graph."""
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        # Views, because one input may depend on another, as a state does on the weights that made it: only what the
        # equation does with each of them counts here.
        inputs = tuple(t if t is None or not t.requires_grad else t.view_as(t) for t in inputs)
        wanted = [t for t in inputs if t is not None and t.requires_grad]
        outs = plain(*inputs)
        outs = (outs,) if isinstance(outs, Tensor) else outs
        used = [(out, g) for out, g in zip(outs, grads, strict=True) if g is not None and out.requires_grad]
        results, given = [out for out, _ in used], [g for _, g in used]
        grads_of = iter(torch.autograd.grad(results, wanted, given, create_graph=again, allow_unused=True))
    return [next(grads_of) if t is not None and t.requires_grad else None for t in inputs]


def rows(x: Tensor) -> Tensor:
    """Return [..., N] as contiguous rows [R,N]."""
    x = x.reshape(-1, x.shape[-1])
    if torch.compiler.is_compiling():  # no kernel reads them, and a graph cannot query the negative bit
        return x.contiguous()
    return dense(x, x.dtype) if x.is_neg() else x.contiguous()
