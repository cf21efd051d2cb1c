"""Distributed training: `ProcessGroup` is the training loop's only interface to the other processes.

    gradient of a step = sum over ranks of d(summed nats) / sum over ranks of counts

so 1, 2 or 64 processes with the same global batch take the same step. The strategy determines what a rank holds:
    "alone" everything   "ddp" a copy of the model, its rows   "fsdp" a shard of the model, its rows
    "sequence" a copy of the model, its part of the time axis of every row (sequence.py)
Full states are gathered on rank 0 as plain named tensors, which depend on neither the strategy nor the number of ranks.
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
from .sequence import Batch, StateRelay, attach, sum_gradients, time_slice

Loss: TypeAlias = Callable[[Batch], tuple[Tensor, Tensor]]

STRATEGIES = ("auto", "ddp", "fsdp", "sequence")
VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # set by torchrun


class ProcessGroup:
    """This process among its peers. All ranks call every method, in the same order."""

    def __init__(self, rank: int = 0, world: int = 1, strategy: str = "alone") -> None:
        self.rank, self.world, self.strategy = rank, world, strategy
        self._ddp: DistributedDataParallel | None = None
        self._relay: StateRelay | None = None
        self._fsdp: Any = None  # torch's FSDPModule, imported only when needed

    @classmethod
    def alone(cls) -> ProcessGroup:
        """Return the group of a single process."""
        return cls()

    @classmethod
    def from_env(cls, strategy: str = "auto") -> ProcessGroup:
        """Join the group that torchrun's environment describes, if any; "auto" means "ddp"."""
        if strategy not in STRATEGIES:
            raise unknown("strategy", strategy, STRATEGIES)
        missing = [name for name in VARIABLES if name not in os.environ]
        if len(missing) == len(VARIABLES):
            return cls.alone()
        if missing:
            present = [name for name in VARIABLES if name in os.environ]
            are, names = "is" if len(present) == 1 else "are", ", ".join(present)
            raise ValueError(f"{names} {are} set but {', '.join(missing)} not; start with torchrun, or unset {names}")
        rank, world = (_integer(name) for name in VARIABLES[:2])
        if not 0 <= rank < world:
            raise ValueError(f"RANK is {rank} with WORLD_SIZE {world}; accepted: from 0 to {world - 1}")
        if world == 1:
            return cls.alone()
        # Before the group: DDP imports this module, whose functions bind the group of that moment as a default.
        import torch.distributed.nn

        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
        return cls(rank, world, "ddp" if strategy == "auto" else strategy)

    def wrap(self, model: Model) -> Loss:
        """Return batch -> (sum, count) whose backward sums over the ranks; create the optimizer afterwards."""
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
            self._relay = StateRelay(self.rank, self.world)
            attach(model, self._relay)
        return model.loss

    def share(self, rows: Sequence[int]) -> list[int]:
        """Return this rank's contiguous part of the rows, equally large on every rank; all rows under "sequence"."""
        return list(rows) if self.strategy in ("alone", "sequence") else share(rows, self.rank, self.world)

    def shard(self, batch: Batch) -> Batch:
        """Return this rank's part of the time axis under "sequence", else the batch unchanged."""
        return time_slice(batch, self.rank, self.world) if self.strategy == "sequence" else batch

    def sum(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Sum each tensor over the ranks, in one message (in float64, so that counts stay exact)."""
        if self.world == 1:
            return tensors
        flat = torch.cat([x.detach().double().reshape(-1) for x in tensors])
        dist.all_reduce(flat)
        parts = flat.split([x.numel() for x in tensors])
        return tuple(part.view_as(x).to(x.dtype) for part, x in zip(parts, tensors, strict=True))

    def no_sync(self, accumulating: bool) -> AbstractContextManager[None]:
        """Return the context for forward and backward; `accumulating` postpones the exchange of gradients."""
        if self._fsdp is not None:
            self._fsdp.set_requires_gradient_sync(not accumulating)
        return self._ddp.no_sync() if self._ddp is not None and accumulating else nullcontext()

    @torch.no_grad()
    def clip(self, model: Model, divisor: float | Tensor, max_norm: float = 0.0, *, each: bool = False) -> float:
        """Sum the gradients over the ranks, divide them by `divisor` and clip them to `max_norm` (0: no clipping).

        `each` clips every tensor by its own norm. Returns the norm of the whole gradient after the division and before
        the clipping, the same on every rank.
        """
        grads = self._gradients(model)
        if self.strategy == "sequence":
            sum_gradients(grads)
        squares = torch.stack([torch.linalg.vector_norm(grad).double() for grad in grads]).square()  # [tensors]
        if self.strategy == "fsdp":
            dist.all_reduce(squares)  # shards do not overlap
        mean = self.strategy in ("ddp", "fsdp")  # torch averages gradients over the ranks
        factor = (self.world if mean else 1) / float(divisor)
        norm = float(squares.sum().sqrt()) * factor
        norms = [float(x) * factor for x in squares.sqrt()] if each else [norm] * len(grads)
        for grad, x in zip(grads, norms, strict=True):
            grad.mul_(factor * max_norm / x if 0 < max_norm < x else factor)
        return norm

    def model_state(self, model: Model) -> dict[str, Tensor]:
        """Return the full model by name, on the CPU of rank 0 (it may share memory with the model); {} elsewhere."""
        return self._gather(model.state_dict().items())

    def optimizer_state(self, model: Model, optimizer: Optimizer) -> dict[str, Tensor]:
        """Return the optimizer's tensors as "parameter.key", such as "head.weight.exp_avg", on rank 0; {} elsewhere."""
        params = self._parameters(model).items()
        return self._gather(
            (f"{name}.{key}", value) for name, p in params for key, value in optimizer.state.get(p, {}).items()
        )

    @torch.no_grad()
    def load_model(self, model: Model, state: Mapping[str, Tensor]) -> None:
        """Load rank 0's `state` into the model of every rank; the other ranks may pass {}."""
        own = model.state_dict()
        for name, value in self._broadcast(state, own):
            own[name].copy_(_shard_like(value, own[name]))

    def load_optimizer(self, model: Model, optimizer: Optimizer, flat: Mapping[str, Tensor]) -> None:
        """Load rank 0's `flat`, as returned by `optimizer_state`, into the optimizer of every rank."""
        params = self._parameters(model)
        numbers = {p: i for i, p in enumerate(p for group in optimizer.param_groups for p in group["params"])}
        state: dict[int, dict[str, Tensor]] = {}
        for path, value in self._broadcast(flat, None):
            name, _, key = path.rpartition(".")
            if name not in params:
                raise ValueError(
                    f"the optimizer's {path!r} belongs to no parameter of this model; resume with the model it was "
                    "saved with"
                )
            like = params[name] if value.shape == params[name].shape else value  # a step count is not sharded
            state.setdefault(numbers[params[name]], {})[key] = _shard_like(value.clone(), like)
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})

    def broadcast_json(self, note: dict[str, Any]) -> dict[str, Any]:
        """Return rank 0's note on every rank, sent as JSON because torch's broadcast of objects unpickles."""
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
        """Leave the process group, if there is one, and end gloo's threads. A sharded model cannot run afterwards.

        A thread of gloo that frees a tensor while the interpreter shuts down aborts the process. Its threads end with
        the group, and the group with its last reference, so the references inside the models are dropped here; the
        caller may keep the models. A reference elsewhere, such as in the traceback of a failed collective, keeps the
        threads alive.
        """
        if self.world > 1:
            # Before destroying the group: if DDP had the last reference, it would wait for gloo's threads while holding
            # the interpreter lock that they may be waiting for.
            for owner in _group_owners(self._ddp, self._fsdp):
                for name, value in list(vars(owner).items()):
                    if isinstance(value, dist.ProcessGroup) or name in ("reducer", "logger"):  # of DDP
                        setattr(owner, name, None)
            self._ddp = self._fsdp = None
            if self._relay is not None:
                with suppress(RuntimeError):  # a rank that has failed receives nothing more
                    self._relay.finish()
            dist.destroy_process_group()

    def _by_ddp(self, batch: Batch) -> tuple[Tensor, Tensor]:
        assert self._ddp is not None
        return self._ddp(batch)

    def _parameters(self, model: Model) -> dict[str, nn.Parameter]:
        if self._fsdp is not None:
            self._fsdp.reshard()  # a forward without a backward leaves the outer parameters gathered
        return dict(model.named_parameters())

    def _gradients(self, model: Model) -> list[Tensor]:
        params = {name: p for name, p in self._parameters(model).items() if p.requires_grad}
        missing = [name for name, p in params.items() if p.grad is None]
        if self.world > 1 and missing:
            raise ValueError(
                f"{missing[0]} and {len(missing) - 1} other parameters do not contribute to the loss, and the "
                "processes would wait for their gradients; call requires_grad_(False) on them"
            )
        return [_local(p.grad) for p in params.values() if p.grad is not None]

    def _gather(self, items: Any) -> dict[str, Tensor]:
        full = ((name, _full_tensor(torch.as_tensor(value))) for name, value in items)
        return {name: value.detach().cpu() for name, value in full if self.rank == 0}

    def _broadcast(self, state: Mapping[str, Tensor], own: Mapping[str, Tensor] | None) -> Iterator[tuple[str, Tensor]]:
        """Yield rank 0's tensors on every rank, one at a time, after every rank has compared them with `own`."""
        note = self.broadcast_json(
            {name: (str(x.dtype).removeprefix("torch."), list(x.shape)) for name, x in state.items()}
        )
        templates = {
            name: torch.empty(shape, dtype=getattr(torch, dtype), device="meta")
            for name, (dtype, shape) in note.items()
        }
        if own is not None:
            check_weights(templates, own, "the state")
        for name, template in templates.items():
            value = state[name].contiguous() if self.rank == 0 else torch.zeros_like(template, device="cpu")
            if self.world > 1:
                dist.broadcast(value, 0)
            yield name, value


class _Step(nn.Module):
    """The module that DDP wraps: its forward is the loss."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        return self.model.loss(batch)

    def named_buffers(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Tensor]]:
        """Yield nothing: buffers are constants, equal since `wrap`, and DDP would broadcast them at every step."""
        return iter(())


def _shard(model: Model, world: int) -> Any:
    """Apply FSDP2: a block is gathered only while it computes, the parameters outside the blocks for the whole step."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    mesh = init_device_mesh(next(model.parameters()).device.type, (world,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    sharded: Any = fully_shard(model, mesh=mesh)
    for method in ("loss", "metrics"):  # called directly, like forward: they need gathered parameters too
        register_fsdp_forward_method(sharded, method)
    return sharded


def _group_owners(ddp: Any, fsdp: Any) -> Iterator[Any]:
    """Yield the objects of torch that refer to the process group in an attribute.

    torch has no public interface that detaches a group from a sharded model (as of 2.13, FSDPModule can be resharded
    and configured, not dissolved), so private attributes are read here; if a version lacks them, nothing is yielded.
    """
    if ddp is not None:
        yield ddp
    for module in () if fsdp is None else fsdp.modules():
        state = module._get_fsdp_state() if hasattr(module, "_get_fsdp_state") else None
        groups = getattr(state, "_fsdp_param_groups", None) or [getattr(state, "_fsdp_param_group", None)]
        for info in (group.mesh_info for group in groups if group is not None):
            getattr(info.mesh, "_pg_registry", {}).clear()  # absent in some versions of torch
            yield info


def _local(x: Tensor) -> Tensor:
    """Return this rank's shard of a sharded tensor, sharing its memory; any other tensor unchanged."""
    return x.to_local() if hasattr(x, "to_local") else x


def _full_tensor(x: Tensor) -> Tensor:
    return x.full_tensor() if hasattr(x, "full_tensor") else x


def _shard_like(value: Tensor, like: Any) -> Tensor:
    """Return the full `value`, sharded in the same way as `like` if that is sharded."""
    if not hasattr(like, "placements"):
        return value
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value.to(like.device), like.device_mesh, like.placements)


def _integer(name: str) -> int:
    try:
        return int(os.environ[name])
    except ValueError:
        raise ValueError(f"{name} is {os.environ[name]!r}; accepted: an integer, as torchrun sets it") from None
