"""A loss that is not a number: where did it begin?

The step that went wrong is taken again with a hook on every module. The first module, in the order in which they
finish, whose output is not finite is where it began: innermost first, so a layer is named, not the block around it.
If every output is finite it began in the loss, or on the way back: then the last layer with a bad gradient is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

Batch = dict[str, Tensor]


class TrainingDiverged(ValueError):
    """Loss, gradient or weights are no longer numbers; the sentence says when and where that began."""


def where_it_began(model: nn.Module, batches: Sequence[Batch], run: Callable[[Batch], Tensor]) -> str:
    """Words for the place. `run` is forward and backward of one batch, and returns its loss.

    Everything runs before anything is decided, because other processes may take part in each forward and backward.
    """
    model.zero_grad(set_to_none=True)
    with _watched(model) as (finished, bad):
        losses = [run(batch) for batch in batches]
    for batch in batches:
        for name, x in batch.items():
            if not finite(x):
                return f"in the data: {name!r} of the batch holds a value that is not finite"
    if bad:
        return f"in layer {bad[0]!r} ({_kind(model, bad[0])}){_own_parameter(model, bad[0])}"
    if not all(finite(loss) for loss in losses):
        return "in the loss itself, where the output of every layer is still finite"
    for name in reversed(finished):  # the way back starts at the end
        for part, p in model.get_submodule(name).named_parameters(recurse=False):
            if p.grad is not None and not finite(p.grad):
                return f"on the way back, in the gradient of {f'{name}.{part}'!r}, with a finite loss"
    return _elsewhere(model)


def not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """The first name whose tensor holds NaN or infinity."""
    return next((name for name, x in tensors.items() if not finite(x)), None)


def finite(value: Any) -> bool:
    """No NaN and no infinity in a tensor, or in any tensor of a tuple, list or dict."""
    if isinstance(value, Tensor):
        local = value.to_local() if hasattr(value, "to_local") else value  # a shard, under FSDP2
        return not local.is_floating_point() or bool(torch.isfinite(local.detach()).all())
    if isinstance(value, Mapping):
        return all(finite(x) for x in value.values())
    return all(finite(x) for x in value) if isinstance(value, (tuple, list)) else True


@contextmanager
def _watched(model: nn.Module) -> Iterator[tuple[list[str], list[str]]]:
    """Names of the modules as they finish, and of those among them whose output is not finite."""
    finished: list[str] = []
    bad: list[str] = []

    def hook(name: str) -> Callable[..., None]:
        def look(module: nn.Module, inputs: Any, output: Any) -> None:
            finished.append(name)
            if not finite(output):
                bad.append(name)

        return look

    handles = [module.register_forward_hook(hook(name)) for name, module in model.named_modules() if name]
    try:
        yield finished, bad
    finally:
        for handle in handles:
            handle.remove()


def _kind(model: nn.Module, name: str) -> str:
    return type(model.get_submodule(name)).__name__


def _own_parameter(model: nn.Module, name: str) -> str:
    part = not_finite(dict(model.get_submodule(name).named_parameters()))
    return f", whose parameter {part!r} is not finite" if part else ""


def _elsewhere(model: nn.Module) -> str:
    grads = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    name = not_finite(grads)
    if name is not None:
        return f"on the way back, in the gradient of {name!r}, with a finite loss"
    return "in the norm of the whole gradient, or in another process: here every number is finite by itself"
