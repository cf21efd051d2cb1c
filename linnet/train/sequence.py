"""Sequence parallelism: rank r computes tokens r T .. (r + 1) T - 1 and sends its states to rank r + 1.

    forward   state of layer l after rank r's tokens    r -> r + 1        backward   its gradient    r + 1 -> r

A message holds the state of a mixer, whose size does not depend on T. Nothing is approximated: outputs, loss and
gradients equal those of one process on the whole sequence. While rank r + 1 computes layer l, rank r is at layer l + 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..ops.state import KVState

Batch: TypeAlias = "dict[str, Tensor]"

PER_TOKEN = {"tokens", "values", "targets"}  # entries of a batch whose second axis is time
MOST = 16  # tensors in a state; the tag of a message is MOST * layer + index


class Form(NamedTuple):
    """Shape, dtype and device of a tensor."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device


class StateRelay:
    """Called by a backbone around each block: `receive` the state before its tokens, `send` the state after them."""

    def __init__(self, rank: int, world: int) -> None:
        self.rank, self.world = rank, world
        self._forms: dict[int, list[Form]] = {}  # layer -> its state, as passed to `receive`
        self._sent: dict[tuple[int, int], tuple[Any, Tensor]] = {}  # (to, tag) -> a message in flight

    def offset(self, length: int) -> int:
        """Return the position of this rank's first token if every rank holds `length` tokens."""
        return self.rank * length

    def receive(self, layer: int, like: Any) -> Any:
        """Return the state of rank - 1 after its tokens, a NamedTuple of tensors shaped as `like`; None on rank 0."""
        if isinstance(like, KVState):
            raise ValueError(
                f"layer {layer} keeps every token it has read, so its state grows; accepted under strategy "
                '"sequence": mixers with a state of fixed size; use "ddp" or "fsdp" for this model'
            )
        self._forms[layer] = _forms(like)
        if self.rank == 0:
            return None
        hook = torch.zeros((), requires_grad=True)  # autograd calls our backward only if an input requires a gradient
        return type(like)._make(_Receive.apply(hook, self, layer))

    def send(self, layer: int, x: Tensor, state: Any) -> Tensor:
        """Send `state` to rank + 1. Use the returned x: its backward receives the gradient of the state."""
        if _forms(state) != self._forms[layer]:
            got, accepted = ([f"{list(f.shape)} {f.dtype}" for f in fs] for fs in (_forms(state), self._forms[layer]))
            raise ValueError(f"layer {layer} ends with a state of {got}; accepted: as passed to `receive`, {accepted}")
        return x if self.rank == self.world - 1 else _Send.apply(self, layer, x, *state)

    def post(self, to: int, layer: int, tensors: Iterable[Tensor]) -> None:
        """Start sending; wait only for the message with the same tag of the previous pass."""
        for tag, tensor in enumerate(tensors, MOST * layer):
            if (to, tag) in self._sent:
                self._sent.pop((to, tag))[0].wait()
            message = tensor.contiguous()
            self._sent[to, tag] = (dist.isend(message, to, tag=tag), message)  # keep the memory alive until it is sent

    def take(self, source: int, layer: int, forms: Sequence[Form]) -> list[Tensor]:
        """Return new tensors of these forms, received from `source`."""
        tensors = [torch.zeros(f.shape, dtype=f.dtype, device=f.device) for f in forms]
        works: list[Any] = [dist.irecv(x, source, tag=tag) for tag, x in enumerate(tensors, MOST * layer)]
        for work in works:
            work.wait()
        return tensors

    def finish(self) -> None:
        """Wait until every message has arrived: those of a process that exits earlier are lost."""
        for work, _ in self._sent.values():
            work.wait()
        self._sent.clear()

    def forms(self, layer: int, floating: bool = False) -> list[Form]:
        """Return the forms of a layer's state; `floating`: only those with a gradient, which a mask has not."""
        return [f for f in self._forms[layer] if f.dtype.is_floating_point or not floating]


class _Receive(torch.autograd.Function):
    """Forward: take the state from rank - 1. Backward: send its gradient there."""

    @staticmethod
    def forward(ctx: Any, hook: Tensor, relay: StateRelay, layer: int) -> tuple[Tensor, ...]:
        ctx.relay, ctx.layer = relay, layer
        tensors = relay.take(relay.rank - 1, layer, relay.forms(layer))
        ctx.mark_non_differentiable(*(x for x in tensors if not x.is_floating_point()))
        ctx.floating = [x.is_floating_point() for x in tensors]
        return tuple(tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, None, None]:
        floating = (g for g, is_floating in zip(grads, ctx.floating, strict=True) if is_floating)
        ctx.relay.post(ctx.relay.rank - 1, ctx.layer, floating)
        return None, None, None


class _Send(torch.autograd.Function):
    """Forward: send the state to rank + 1 and pass x through. Backward: take the gradient of the state from there."""

    @staticmethod
    def forward(ctx: Any, relay: StateRelay, layer: int, x: Tensor, *state: Tensor) -> Tensor:
        ctx.relay, ctx.layer, ctx.forms = relay, layer, relay.forms(layer, floating=True)
        ctx.floating = [t.is_floating_point() for t in state]
        relay.post(relay.rank + 1, layer, state)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        taken = iter(ctx.relay.take(ctx.relay.rank + 1, ctx.layer, ctx.forms))
        return None, None, grad, *(next(taken) if floating else None for floating in ctx.floating)


def _forms(state: Any) -> list[Form]:
    return [Form(x.shape, x.dtype, x.device) for x in state]


def time_slice(batch: Batch, rank: int, world: int) -> Batch:
    """Return this rank's tokens of every row: one of `world` equal parts of the time axis."""
    if set(batch) - PER_TOKEN or "targets" not in batch:
        raise ValueError(
            f"a batch of {', '.join(sorted(batch))} cannot be split along time; accepted: tokens or values with "
            'targets for each of them; use strategy "ddp" or "fsdp"'
        )
    length = batch["targets"].shape[1]
    if length % world:
        raise ValueError(f"{length} tokens do not divide over {world} processes; use a multiple of {world}")
    size = length // world
    return {name: x[:, rank * size : (rank + 1) * size].contiguous() for name, x in batch.items()}


def attach(model: nn.Module, relay: StateRelay) -> None:
    """Make the backbone of `model` call `relay`."""
    parts: list[Any] = [module for module in model.modules() if hasattr(module, "relay")]
    if not parts or not all(module.causal for module in parts):
        raise ValueError(
            f"{type(model).__name__} is not a causal backbone, so no state summarises the earlier tokens; accepted "
            'strategies for it: "ddp", "fsdp"'
        )
    for module in parts:
        module.relay = relay


def sum_gradients(grads: Sequence[Tensor]) -> None:
    """Sum the gradients over the ranks in place, with one message for each dtype."""
    for dtype in dict.fromkeys(g.dtype for g in grads):  # in the same order on every rank
        same = [g for g in grads if g.dtype == dtype]
        flat = torch.cat([g.reshape(-1) for g in same])
        dist.all_reduce(flat)
        parts = flat.split([g.numel() for g in same])
        for grad, part in zip(same, parts, strict=True):
            grad.copy_(part.view_as(grad))
