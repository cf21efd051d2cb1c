"""Run a function in several forked gloo processes on one machine, and bring the tensors it returns back."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist
import torch.distributed.fsdp  # imported once, before the fork
import torch.multiprocessing
from safetensors.torch import load_file, save_file
from torch import Tensor

from linnet.train.distributed import ProcessGroup


def together(
    world: int, strategy: str, folder: Path, work: Callable[..., dict[str, Tensor]], *args: Any
) -> list[dict[str, Tensor]]:
    """work(group, *args) on each of `world` ranks; what each returned, by rank. World 1 stays in this process."""
    if world == 1:
        return [work(ProcessGroup.alone(), *args)]
    folder.mkdir(parents=True, exist_ok=True)
    # fork, not spawn: a spawned child imports torch again
    given = (world, strategy, folder, work, args)
    torch.multiprocessing.start_processes(_child, given, nprocs=world, daemon=True, start_method="fork")
    return [load_file(folder / f"{rank}.safetensors") for rank in range(world)]


def close(got: dict[str, Tensor], wanted: dict[str, Tensor], tolerance: float) -> None:
    """The same names, dtypes and shapes, and values within `tolerance` of the largest entry of each tensor."""
    assert set(got) == set(wanted)
    for name, value in wanted.items():
        assert (got[name].dtype, got[name].shape) == (value.dtype, value.shape), name
        error = (got[name] - value).abs().max() / value.abs().max().clamp(min=1e-30)
        assert error <= tolerance, f"{name} is {error:.1e} off"


def _child(rank: int, world: int, strategy: str, folder: Path, work: Callable[..., Any], args: tuple[Any, ...]) -> None:

    meet = {"init_method": f"file://{folder}/meet", "timeout": timedelta(seconds=60)}
    dist.init_process_group("gloo", rank=rank, world_size=world, **meet)
    group = ProcessGroup(rank, world, strategy)
    result = work(group, *args)
    group.close()
    save_file({name: x.detach().contiguous() for name, x in result.items()}, folder / f"{rank}.safetensors")
