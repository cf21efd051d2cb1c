"""One long sequence over several processes: rank r computes tokens r T .. (r + 1) T - 1 and hands its states on.

    forward   state of layer l after rank r's tokens    r -> r + 1        backward   its gradient    r + 1 -> r

What travels is the state of the mixer, whose size does not depend on T, and nothing is approximated: outputs, loss and
gradients are those of one process on the whole sequence. While rank r + 1 computes layer l, rank r is at layer l + 1.
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
    """What a tensor looks like, without the tensor."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device


class Relay:
    """What a backbone calls around each block: `receive` the state of the tokens before, `send` the state after."""

    def __init__(self, rank: int, world: int) -> None:
        self.rank, self.world = rank, world
        self._forms: dict[int, list[Form]] = {}  # layer -> its state, as announced to `receive`
        self._sent: dict[tuple[int, int], tuple[Any, Tensor]] = {}  # (to, tag) -> a message on its way

    def offset(self, length: int) -> int:
        """Position of this rank's first token when every rank holds `length` of them."""
        return self.rank * length

    def receive(self, layer: int, like: Any) -> Any:
        """The state of rank - 1 after its tokens, a NamedTuple of tensors of the form of `like`; None on rank 0."""
        if isinstance(like, KVState):
            raise ValueError(
                f"layer {layer} keeps every token it has seen, so its state grows; accepted under strategy "
                '"sequence": mixers with a state of fixed size; use "ddp" or "fsdp" for this model'
            )
        self._forms[layer] = _forms(like)
        if self.rank == 0:
            return None
        hook = torch.zeros((), requires_grad=True)  # an input that wants a gradient, or backward would not call us
        return type(like)._make(_Receive.apply(hook, self, layer))

    def send(self, layer: int, x: Tensor, state: Any) -> Tensor:
        """Hand `state` to rank + 1. Use the x returned: backward through it brings the gradient of the state."""
        if _forms(state) != self._forms[layer]:
            got, wanted = ([f"{list(f.shape)} {f.dtype}" for f in fs] for fs in (_forms(state), self._forms[layer]))
            raise ValueError(f"layer {layer} ends with a state of {got}; accepted: what `receive` was told, {wanted}")
        return x if self.rank == self.world - 1 else _Send.apply(self, layer, x, *state)

    def post(self, to: int, layer: int, tensors: Iterable[Tensor]) -> None:
        """Start sending; wait only for the message of the same name in the pass before."""
        for tag, tensor in enumerate(tensors, MOST * layer):
            if (to, tag) in self._sent:
                self._sent.pop((to, tag))[0].wait()
            whole = tensor.contiguous()
            self._sent[to, tag] = (dist.isend(whole, to, tag=tag), whole)  # kept: nobody else may hold the memory

    def take(self, source: int, layer: int, forms: Sequence[Form]) -> list[Tensor]:
        """New tensors of these forms, filled by `source`."""
        tensors = [torch.zeros(f.shape, dtype=f.dtype, device=f.device) for f in forms]
        works: list[Any] = [dist.irecv(x, source, tag=tag) for tag, x in enumerate(tensors, MOST * layer)]
        for work in works:
            work.wait()
        return tensors

    def finish(self) -> None:
        """Wait until everything sent has arrived: a process that leaves earlier takes its messages along."""
        for work, _ in self._sent.values():
            work.wait()
        self._sent.clear()

    def forms(self, layer: int, floating: bool = False) -> list[Form]:
        """The state of a layer; only what has a gradient if `floating`, so a mask travels forward only."""
        return [f for f in self._forms[layer] if f.dtype.is_floating_point or not floating]


class _Receive(torch.autograd.Function):
    """Forward: take the state from rank - 1. Backward: send its gradient there."""

    @staticmethod
    def forward(ctx: Any, hook: Tensor, relay: Relay, layer: int) -> tuple[Tensor, ...]:
        ctx.relay, ctx.layer = relay, layer
        tensors = relay.take(relay.rank - 1, layer, relay.forms(layer))
        ctx.mark_non_differentiable(*(x for x in tensors if not x.is_floating_point()))
        ctx.floating = [x.is_floating_point() for x in tensors]
        return tuple(tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, None, None]:
        wanted = (g for g, floating in zip(grads, ctx.floating, strict=True) if floating)
        ctx.relay.post(ctx.relay.rank - 1, ctx.layer, wanted)
        return None, None, None


class _Send(torch.autograd.Function):
    """Forward: send the state to rank + 1 and pass x through. Backward: take the gradient of the state from there."""

    @staticmethod
    def forward(ctx: Any, relay: Relay, layer: int, x: Tensor, *state: Tensor) -> Tensor:
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


def part_of(batch: Batch, rank: int, world: int) -> Batch:
    """Rank's tokens of every row: the time axis in `world` equal parts."""
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


def hand_on(model: nn.Module, relay: Relay) -> None:
    """Let the backbone of `model` use `relay`."""
    parts: list[Any] = [module for module in model.modules() if hasattr(module, "relay")]
    if not parts or not all(module.causal for module in parts):
        raise ValueError(
            f"{type(model).__name__} is not a causal backbone, so no state says all about the tokens before; accepted "
            'strategies for it: "ddp", "fsdp"'
        )
    for module in parts:
        module.relay = relay


def sum_gradients(grads: Sequence[Tensor]) -> None:
    """Sum over the ranks in place, one message for each dtype."""
    for dtype in dict.fromkeys(g.dtype for g in grads):  # in the same order on every rank
        same = [g for g in grads if g.dtype == dtype]
        flat = torch.cat([g.reshape(-1) for g in same])
        dist.all_reduce(flat)
        parts = flat.split([g.numel() for g in same])
        torch._foreach_copy_(same, [x.view_as(g) for x, g in zip(parts, same, strict=True)])
