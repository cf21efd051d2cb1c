"""Compile per_token.c on demand and wrap it for torch: the reference library's CPU algorithm, with two sets of flags.

    num_t = q_t sum_{j<=t} k_j v_j^T  (C, one token at a time)      out = num / (q . cumsum(k) + eps)  (torch)

"its flags": the -O level of this Python's sysconfig, as with setuptools, plus the library's -fopenmp -ffast-math, so no
instruction set beyond the baseline. "native": -O3 -march=native -ffast-math -fopenmp.
N batch x heads, T time, F features, V values, all contiguous float32:  q, k [N,T,F]   v, out [N,T,V].
"""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...native.gate import addresses

SOURCE = Path(__file__).with_name("per_token.c")
COMPILERS = ("cc", "gcc", "clang")
TUNED = "-O3 -march=native -ffast-math -fopenmp".split()


class Unavailable(RuntimeError):
    """A competitor that cannot run here, with the reason."""


def its_flags() -> list[str]:
    """Return the reference library's flags, with Python's own -O level: -O3 in most builds, -O2 in Debian's."""
    levels = [flag for flag in shlex.split(sysconfig.get_config_var("CFLAGS") or "") if flag.startswith("-O")]
    return [levels[-1] if levels else "-O2", "-fwrapv", "-fopenmp", "-ffast-math"]


def causal_product(flags: list[str]) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Return the differentiable numerator, compiled with `flags`; raise Unavailable if that fails."""
    library = _compiled(tuple(flags))

    def product(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return _CausalProduct.apply(q, k, v, library)

    return product


class _CausalProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, library: ctypes.CDLL) -> Tensor:
        ctx.library = library
        ctx.save_for_backward(q, k, v)
        out = torch.zeros_like(v)
        _call(library.per_token_forward, (out,), q, k, v)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k, v = ctx.saved_tensors
        grads = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        _call(ctx.library.per_token_backward, grads, q, k, v, g.contiguous())
        return *grads, None


def _call(function: Any, outputs: tuple[Tensor, ...], q: Tensor, k: Tensor, v: Tensor, *gradient: Tensor) -> None:
    tensors = (*outputs, q, k, v, *gradient)
    if not all(x.is_contiguous() and x.dtype == torch.float32 and not x.is_neg() for x in tensors):
        raise ValueError("the per-token kernel takes contiguous float32 tensors; call .clone() on them first")
    T, F, V = *q.shape[-2:], v.shape[-1]
    sizes = (q.shape[:-2].numel(), T, F, V, torch.get_num_threads())
    if function(*(ctypes.c_void_p(at) for at in addresses(tensors)), *map(ctypes.c_int64, sizes)):
        raise MemoryError(f"the per-token kernel could not allocate its {F} x {V} state")


@lru_cache(maxsize=4)
def _compiled(flags: tuple[str, ...]) -> ctypes.CDLL:
    command = compiler()
    with tempfile.TemporaryDirectory(prefix="linnet-bench-") as tmp:  # not needed once loaded
        out = Path(tmp, "per_token.so")
        line = [*command, "-std=c11", *flags, "-fPIC", "-shared", str(SOURCE), "-o", str(out)]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unavailable(f"{command[0]} {' '.join(flags)} failed: {done.stderr.strip()[-300:]}")
        return ctypes.CDLL(str(out))


def compiler() -> list[str]:
    """Return the C compiler command: $CC, or the first of `COMPILERS` on the PATH."""
    named = os.environ.get("CC")
    for command in [shlex.split(named)] if named else [[name] for name in COMPILERS]:
        if command and shutil.which(command[0]):
            return command
    raise Unavailable(f"no C compiler found (looked for {named or ', '.join(COMPILERS)})")
