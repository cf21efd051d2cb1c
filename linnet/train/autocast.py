"""Choose bfloat16 where it is faster: "auto" times a linear layer of the model's width in both precisions.

The measurement runs in a child process, because a machine may list bfloat16 instructions and still crash on them
(SIGILL): a crash, or a speedup too small to matter, means float32. Weights and optimizer stay in float32 either way;
autocast computes matrix products in bfloat16 and leaves sums, norms and losses alone.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from ..json_file import parse_json
from ..processor import CPUINFO, cpu_flags

WORTH = 1.2  # least speedup; below it the lost precision is not worth it
TOKENS = 1024
TIME_LIMIT = 120  # seconds; a child that takes longer counts as failed

# Forward and backward of x W^T, the fastest of several rounds, with the parent's number of threads.
CHILD = """
import json, sys, time
import torch
tokens, width, out, threads = map(int, sys.argv[1:])
torch.set_num_threads(threads)
x, layer = torch.randn(tokens, width, requires_grad=True), torch.nn.Linear(width, out)
def seconds(enabled):
    best = 1e9
    for _ in range(5):
        start = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            y = layer(x)
        y.float().sum().backward()
        best = min(best, time.perf_counter() - start)
    return best
print(json.dumps([seconds(False), seconds(True)]))
"""


class Choice(NamedTuple):
    """The precision of a run and the reason for it."""

    name: str  # "none" or "bf16"
    text: str

    def context(self) -> AbstractContextManager[object]:
        """Return the context manager for the forward pass."""
        return torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.name == "bf16")


def choose_autocast(requested: str, model: nn.Module, before: str | None = None) -> Choice:
    """Resolve "auto", "none" or "bf16" for this model and machine; `before` is the precision of a resumed run."""
    if requested == "none" or (requested == "auto" and before == "none"):
        return Choice("none", "float32, as in the resumed run" if before else "float32, as requested")
    if requested == "auto" and not has_bf16():
        return Choice("none", "float32: this machine has no bfloat16 instructions")
    width, out = largest_linear(model)
    speedup, reason = measure_speedup(width, out, torch.get_num_threads())
    if requested == "bf16" or before == "bf16":  # a resumed run keeps its precision, whatever the speed
        if reason:
            raise ValueError(
                f"autocast is {requested!r}, but bfloat16 does not run on this machine ({reason}); accepted: 'none', "
                "or set ONEDNN_MAX_CPU_ISA=AVX512_CORE in the environment, which is slower than float32"
            )
        why = "in the resumed run" if before else "requested"
        return Choice("bf16", f"bfloat16, as {why}: {speedup:.2f}x as fast as float32 here")
    if reason:
        return Choice("none", f"float32: bfloat16 does not run on this machine ({reason})")
    if speedup < WORTH:
        slow = f"bfloat16 is {speedup:.2f}x as fast for layers of width {width}"
        return Choice("none", f"float32: {slow}, and {WORTH}x is required")
    return Choice("bf16", f"bfloat16: {speedup:.2f}x as fast as float32 for layers of width {width}")


@cache
def measure_speedup(width: int, out: int, threads: int) -> tuple[float, str]:
    """Return how many times faster bfloat16 is, and "" or the reason it cannot run; measured once per process."""
    sizes = [str(n) for n in (TOKENS, width, out, threads)]
    try:
        done = subprocess.run(
            [sys.executable, "-c", CHILD, *sizes], capture_output=True, timeout=TIME_LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        return 0.0, f"no result after {TIME_LIMIT} s"
    if done.returncode:
        status = f"signal {-done.returncode}" if done.returncode < 0 else f"exit status {done.returncode}"
        return 0.0, f"the trial ended with {status}"
    full, half = parse_json(done.stdout, "the measurement", "choose --autocast none or bf16")
    return full / half, ""


def has_bf16(cpuinfo: Path = CPUINFO) -> bool:
    """Return False only if the machine lists its instructions without bfloat16, whose emulation is always slower."""
    flags = cpu_flags(cpuinfo)
    return not flags or any("bf16" in flag for flag in flags)


def largest_linear(model: nn.Module) -> tuple[int, int]:
    """Return the input and output width of the model's largest linear layer."""
    layers = [m for m in model.modules() if isinstance(m, nn.Linear)]
    if not layers:
        return 256, 256
    largest = max(layers, key=lambda m: m.in_features * m.out_features)
    return largest.in_features, largest.out_features
