"""Locate the origin of a loss that is not finite.

The failed step is repeated with a forward hook on every module. The origin is the first module, in the order in which
they finish, whose output is not finite: innermost first, so a layer is named, not the block around it. If every output
is finite, the origin is the loss or the backward pass: then the last layer with a non-finite gradient is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

Batch = dict[str, Tensor]


class TrainingDiverged(ValueError):
    """The loss, the gradient or a weight is no longer finite; the message says at which step and where it began."""


def locate_divergence(model: nn.Module, batches: Sequence[Batch], run: Callable[[Batch], Tensor]) -> str:
    """Return a description of the origin. `run` does forward and backward of one batch and returns its loss.

    Every batch runs before anything is decided, because other processes may take part in each forward and backward.
    """
    model.zero_grad(set_to_none=True)
    with _record_outputs(model) as (finished, bad):
        losses = [run(batch) for batch in batches]
    for batch in batches:
        for name, x in batch.items():
            if not is_finite(x):
                return f"in the data: {name!r} of the batch has a value that is not finite"
    if bad:
        return f"in layer {bad[0]!r} ({_kind(model, bad[0])}){_own_parameter(model, bad[0])}"
    if not all(is_finite(loss) for loss in losses):
        return "in the loss itself, where the output of every layer is still finite"
    for name in reversed(finished):  # the backward pass starts at the end
        for part, p in model.get_submodule(name).named_parameters(recurse=False):
            if p.grad is not None and not is_finite(p.grad):
                return f"in the backward pass, in the gradient of {f'{name}.{part}'!r}, with a finite loss"
    return _elsewhere(model)


def first_not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """Return the first name whose tensor has NaN or infinity, or None."""
    return next((name for name, x in tensors.items() if not is_finite(x)), None)


def is_finite(value: Any) -> bool:
    """Return True unless a tensor, or any tensor in a tuple, list or dict, has NaN or infinity."""
    if isinstance(value, Tensor):
        local = value.to_local() if hasattr(value, "to_local") else value  # a shard, under FSDP2
        return not local.is_floating_point() or bool(torch.isfinite(local.detach()).all())
    if isinstance(value, Mapping):
        return all(is_finite(x) for x in value.values())
    return all(is_finite(x) for x in value) if isinstance(value, (tuple, list)) else True


@contextmanager
def _record_outputs(model: nn.Module) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the names of the modules in the order they finish, and of those whose output is not finite."""
    finished: list[str] = []
    bad: list[str] = []

    def hook(name: str) -> Callable[..., None]:
        def record(module: nn.Module, inputs: Any, output: Any) -> None:
            finished.append(name)
            if not is_finite(output):
                bad.append(name)

        return record

    handles = [module.register_forward_hook(hook(name)) for name, module in model.named_modules() if name]
    try:
        yield finished, bad
    finally:
        for handle in handles:
            handle.remove()


def _kind(model: nn.Module, name: str) -> str:
    return type(model.get_submodule(name)).__name__


def _own_parameter(model: nn.Module, name: str) -> str:
    part = first_not_finite(dict(model.get_submodule(name).named_parameters()))
    return f", whose parameter {part!r} is not finite" if part else ""


def _elsewhere(model: nn.Module) -> str:
    grads = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    name = first_not_finite(grads)
    if name is not None:
        return f"in the backward pass, in the gradient of {name!r}, with a finite loss"
    return "in the norm of the whole gradient, or in another process: every single number of this one is finite"
