"""Several processes as one: `Team` is all that the training loop knows about the others.

    gradient of a step = sum over ranks of d(summed nats) / sum over ranks of counts

so that 1, 2 or 64 processes with one global batch take the same step. A strategy says what a rank holds:
    "alone" everything   "ddp" a copy of the model, its rows   "fsdp" a slice of the model, its rows
    "sequence" a copy of the model, its part of the time axis of every row (sequence.py)
Full states are gathered on rank 0 as plain named tensors: the same whatever the number of processes or the strategy.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from ..data.order import share
from ..errors import unknown
from ..json_file import parse_json
from ..models.base import Model, check_weights
from .sequence import Batch, Relay, hand_on, part_of, sum_gradients

Loss: TypeAlias = Callable[[Batch], tuple[Tensor, Tensor]]

STRATEGIES = ("auto", "ddp", "fsdp", "sequence")
VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # what torchrun tells each process


class Team:
    """This process among its peers. Every method is called by all ranks, in the same order."""

    def __init__(self, rank: int = 0, world: int = 1, strategy: str = "alone") -> None:
        self.rank, self.world, self.strategy = rank, world, strategy
        self._ddp: DistributedDataParallel | None = None
        self._relay: Relay | None = None
        self._fsdp: Any = None  # torch's FSDPModule, which is imported when it is used

    @classmethod
    def alone(cls) -> Team:
        """One process, no process group."""
        return cls()

    @classmethod
    def from_env(cls, strategy: str = "auto") -> Team:
        """What torchrun's environment says; alone when it says nothing. "auto" is "ddp" for more than one process."""
        if strategy not in STRATEGIES:
            raise unknown("strategy", strategy, STRATEGIES)
        missing = [name for name in VARIABLES if name not in os.environ]
        if len(missing) == len(VARIABLES):
            return cls.alone()
        if missing:
            given = [name for name in VARIABLES if name in os.environ]
            are, found = "is" if len(given) == 1 else "are", ", ".join(given)
            raise ValueError(f"{found} {are} set but {', '.join(missing)} not; start with torchrun, or unset {found}")
        rank, world = (_integer(name) for name in VARIABLES[:2])
        if not 0 <= rank < world:
            raise ValueError(f"RANK is {rank} with WORLD_SIZE {world}; accepted: from 0 to {world - 1}")
        if world == 1:
            return cls.alone()
        # Before the group: DDP imports this, and its functions keep the group of that moment as a default for good.
        import torch.distributed.nn

        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
        return cls(rank, world, "ddp" if strategy == "auto" else strategy)

    def wrap(self, model: Model) -> Loss:
        """batch -> (sum, count), whose backward takes the team along. Make the optimizer after this, not before."""
        if self.strategy == "alone":
            return model.loss
        for tensor in (*model.parameters(), *model.buffers()):
            dist.broadcast(tensor.detach(), 0)
        if self.strategy == "ddp":
            self._ddp = DistributedDataParallel(_Step(model), gradient_as_bucket_view=True)
            return self._by_ddp
        if self.strategy == "fsdp":
            self._fsdp = _shard(model, self.world)
        else:
            self._relay = Relay(self.rank, self.world)
            hand_on(model, self._relay)
        return model.loss

    def share(self, rows: Sequence[int]) -> list[int]:
        """This rank's rows, contiguous and as many as any other's; all of them when it is time that is split."""
        return list(rows) if self.strategy in ("alone", "sequence") else share(rows, self.rank, self.world)

    def shard(self, batch: Batch) -> Batch:
        """This rank's part of the time axis under "sequence", else the batch as it is."""
        return part_of(batch, self.rank, self.world) if self.strategy == "sequence" else batch

    def sum(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Each tensor summed over the ranks, in one message (float64 on the way, so counts stay exact)."""
        if self.world == 1:
            return tensors
        flat = torch.cat([x.detach().double().reshape(-1) for x in tensors])
        dist.all_reduce(flat)
        parts = flat.split([x.numel() for x in tensors])
        return tuple(part.view_as(x).to(x.dtype) for part, x in zip(parts, tensors, strict=True))

    def no_sync(self, accumulating: bool) -> AbstractContextManager[None]:
        """Around forward and backward: True when more micro-batches follow, so that gradients travel once."""
        if self._fsdp is not None:
            self._fsdp.set_requires_gradient_sync(not accumulating)
        return self._ddp.no_sync() if self._ddp is not None and accumulating else nullcontext()

    @torch.no_grad()
    def clip(self, model: Model, divisor: float | Tensor, max_norm: float = 0.0, *, each: bool = False) -> float:
        """Sum gradients over the ranks, divide them by `divisor`, shorten them to `max_norm` (0: never).

        `each` shortens every tensor by itself. Returns the norm of all of them together after the division and before
        the shortening, the same on every rank.
        """
        grads = self._gradients(model)
        if self.strategy == "sequence":
            sum_gradients(grads)
        squares = torch.stack([norm.double() for norm in torch._foreach_norm(grads)]).square()  # one for each tensor
        if self.strategy == "fsdp":
            dist.all_reduce(squares)  # of slices that do not overlap
        mean = self.strategy in ("ddp", "fsdp")  # torch hands out the mean over the ranks
        factor = (self.world if mean else 1) / float(divisor)
        norm = float(squares.sum().sqrt()) * factor
        norms = [float(x) * factor for x in squares.sqrt()] if each else [norm] * len(grads)
        torch._foreach_mul_(grads, [factor * max_norm / x if 0 < max_norm < x else factor for x in norms])
        return norm

    def model_state(self, model: Model) -> dict[str, Tensor]:
        """The whole model by name, on the CPU of rank 0 (it may share memory with the model); {} elsewhere."""
        return self._gather(model.state_dict().items())

    def optimizer_state(self, model: Model, optimizer: Optimizer) -> dict[str, Tensor]:
        """The optimizer's tensors as "parameter.key", such as "head.weight.exp_avg", on rank 0; {} elsewhere."""
        params = self._parameters(model).items()
        return self._gather(
            (f"{name}.{key}", value) for name, p in params for key, value in optimizer.state.get(p, {}).items()
        )

    @torch.no_grad()
    def load_model(self, model: Model, state: Mapping[str, Tensor]) -> None:
        """Rank 0's `state` into the model of every rank; the other ranks may give {}."""
        own = model.state_dict()
        for name, value in self._spread(state, own):
            own[name].copy_(_as(value, own[name]))

    def load_optimizer(self, model: Model, optimizer: Optimizer, flat: Mapping[str, Tensor]) -> None:
        """Rank 0's `flat`, as `optimizer_state` gave it, into the optimizer of every rank."""
        params = self._parameters(model)
        numbers = {p: i for i, p in enumerate(p for group in optimizer.param_groups for p in group["params"])}
        state: dict[int, dict[str, Tensor]] = {}
        for path, value in self._spread(flat, None):
            name, _, key = path.rpartition(".")
            if name not in params:
                raise ValueError(f"the optimizer's {path!r} belongs to no parameter of this model")
            like = params[name] if value.shape == params[name].shape else value  # a step count has no slices
            state.setdefault(numbers[params[name]], {})[key] = _as(value.clone(), like)
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})

    def tell(self, note: dict[str, Any]) -> dict[str, Any]:
        """Rank 0's note on every rank, sent as JSON: torch's own broadcast of objects would unpickle."""
        if self.world == 1:
            return note
        data = torch.frombuffer(bytearray(json.dumps(note).encode()), dtype=torch.uint8)
        size = torch.tensor([data.numel()])
        dist.broadcast(size, 0)
        if self.rank != 0:
            data = torch.zeros(int(size), dtype=torch.uint8)
        dist.broadcast(data, 0)
        return parse_json(data.numpy().tobytes(), "the message of the first process", "start the run again", nan=True)

    def barrier(self) -> None:
        if self.world > 1:
            dist.barrier()

    def close(self) -> None:
        """Leave the process group, if there is one; no thread of gloo is left then. A sharded model computes no more.

        A thread of gloo that drops a tensor when Python has begun to end aborts the process. Threads end with the group
        and the group with its last holder, so it is taken from the models, which the caller may keep. Not ended by this
        are those of a group that someone else holds, such as the traceback of a collective operation that failed.
        """
        if self.world > 1:
            # Before the group: were DDP the last to hold it, it would wait for gloo's threads without letting Python
            # run, which is what they may be waiting for.
            for holder in _holders(self._ddp, self._fsdp):
                for name, value in list(vars(holder).items()):
                    if isinstance(value, dist.ProcessGroup) or name in ("reducer", "logger"):  # of DDP
                        setattr(holder, name, None)
            self._ddp = self._fsdp = None
            if self._relay is not None:
                with suppress(RuntimeError):  # a rank that has failed takes nothing more
                    self._relay.finish()
            dist.destroy_process_group()

    def _by_ddp(self, batch: Batch) -> tuple[Tensor, Tensor]:
        assert self._ddp is not None
        return self._ddp(batch)

    def _parameters(self, model: Model) -> dict[str, nn.Parameter]:
        if self._fsdp is not None:
            self._fsdp.reshard()  # a forward without a backward leaves the whole outer parameters in their place
        return dict(model.named_parameters())

    def _gradients(self, model: Model) -> list[Tensor]:
        params = {name: p for name, p in self._parameters(model).items() if p.requires_grad}
        missing = [name for name, p in params.items() if p.grad is None]
        if self.world > 1 and missing:
            raise ValueError(
                f"{missing[0]} and {len(missing) - 1} other parameters had no part in the loss, and several processes "
                "wait for their gradients; call requires_grad_(False) on them"
            )
        return [_local(p.grad) for p in params.values() if p.grad is not None]

    def _gather(self, items: Any) -> dict[str, Tensor]:
        whole = ((name, _whole(torch.as_tensor(value))) for name, value in items)
        return {name: value.detach().cpu() for name, value in whole if self.rank == 0}

    def _spread(self, state: Mapping[str, Tensor], own: Mapping[str, Tensor] | None) -> Iterator[tuple[str, Tensor]]:
        """Rank 0's tensors on every rank, one at a time, after every rank has compared them with `own`."""
        note = self.tell({name: (str(x.dtype).removeprefix("torch."), list(x.shape)) for name, x in state.items()})
        told = {
            name: torch.empty(shape, dtype=getattr(torch, kind), device="meta") for name, (kind, shape) in note.items()
        }
        if own is not None:
            check_weights(told, own, "the state")
        for name, form in told.items():
            value = state[name].contiguous() if self.rank == 0 else torch.zeros_like(form, device="cpu")
            if self.world > 1:
                dist.broadcast(value, 0)
            yield name, value


class _Step(nn.Module):
    """What DDP wraps: a module whose forward is the loss."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        return self.model.loss(batch)

    def named_buffers(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Tensor]]:
        """None: they are constants, equal since `wrap`, and DDP would broadcast them at every step."""
        return iter(())


def _shard(model: Model, world: int) -> Any:
    """FSDP2: each block is whole only while it computes, what is outside the blocks during the step."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    mesh = init_device_mesh(next(model.parameters()).device.type, (world,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    sharded: Any = fully_shard(model, mesh=mesh)
    for method in ("loss", "metrics"):  # entered from outside, like forward: parameters must be whole in them too
        register_fsdp_forward_method(sharded, method)
    return sharded


def _holders(ddp: Any, fsdp: Any) -> Iterator[Any]:
    """What of torch's own has the process group, or what has it, among its attributes."""
    if ddp is not None:
        yield ddp
    for module in () if fsdp is None else fsdp.modules():
        state = module._get_fsdp_state() if hasattr(module, "_get_fsdp_state") else None
        groups = getattr(state, "_fsdp_param_groups", None) or [getattr(state, "_fsdp_param_group", None)]
        for info in (group.mesh_info for group in groups if group is not None):
            getattr(info.mesh, "_pg_registry", {}).clear()  # not in every version of torch
            yield info


def _local(x: Tensor) -> Tensor:
    """This rank's slice of a sharded tensor, in place; others as they are."""
    return x.to_local() if hasattr(x, "to_local") else x


def _whole(x: Tensor) -> Tensor:
    return x.full_tensor() if hasattr(x, "full_tensor") else x


def _as(value: Tensor, like: Any) -> Tensor:
    """The whole `value`, cut into slices in the way `like` is if it is."""
    if not hasattr(like, "placements"):
        return value
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value.to(like.device), like.device_mesh, like.placements)


def _integer(name: str) -> int:
    try:
        return int(os.environ[name])
    except ValueError:
        raise ValueError(f"{name} is {os.environ[name]!r}; accepted: an integer, as torchrun sets it") from None
