"""bfloat16 where it pays: "auto" times a linear layer of the model's width in both precisions and says what it found.

The measurement runs in a process of its own, because a machine may name bfloat16 instructions among its own and then
die of them (SIGILL): a crash, or a gain too small to matter, means float32. Weights and optimizer stay in float32
either way; autocast turns matrix products to bfloat16 and leaves sums, norms and losses alone.
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

WORTH = 1.2  # times faster; below that the lost digits buy nothing
TOKENS = 1024
TIME_LIMIT = 120  # seconds; a child that takes longer is a child that failed

# Forward and backward of x W^T, smallest of several rounds, in the parent's number of threads.
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
    """The precision of a run, and the sentence that says why."""

    name: str  # "none" or "bf16"
    text: str

    def context(self) -> AbstractContextManager[object]:
        """What the forward pass runs in."""
        return torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.name == "bf16")


def choose_autocast(wanted: str, model: nn.Module, before: str | None = None) -> Choice:
    """What "auto", "none" or "bf16" means for this model here; `before` is what a resumed run was trained with."""
    if wanted == "none" or (wanted == "auto" and before == "none"):
        return Choice("none", "float32, as the run began" if before else "float32, as asked for")
    if wanted == "auto" and not names_bf16():
        return Choice("none", "float32: this machine has no bfloat16 instructions")
    width, out = widest(model)
    gain, reason = measured_gain(width, out, torch.get_num_threads())
    if wanted == "bf16" or before == "bf16":  # the same numbers as before come before speed
        if reason:
            raise ValueError(
                f"autocast is {wanted!r}, but bfloat16 does not run on this machine ({reason}); accepted: 'none', "
                "or set ONEDNN_MAX_CPU_ISA=AVX512_CORE in the environment, which is slower than float32"
            )
        return Choice("bf16", f"bfloat16, as {'the run began' if before else 'asked for'}: {gain:.2f}x float32 here")
    if reason:
        return Choice("none", f"float32: bfloat16 does not run on this machine ({reason})")
    if gain < WORTH:
        return Choice("none", f"float32: bfloat16 is {gain:.2f}x as fast for layers of width {width} ({WORTH}x wanted)")
    return Choice("bf16", f"bfloat16: {gain:.2f}x as fast as float32 for layers of width {width}")


@cache
def measured_gain(width: int, out: int, threads: int) -> tuple[float, str]:
    """How many times faster bfloat16 is than float32, and "" or the reason why it cannot run; once per process."""
    sizes = [str(n) for n in (TOKENS, width, out, threads)]
    try:
        done = subprocess.run(
            [sys.executable, "-c", CHILD, *sizes], capture_output=True, timeout=TIME_LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        return 0.0, f"no answer in {TIME_LIMIT} s"
    if done.returncode:
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit status {done.returncode}"
        return 0.0, f"the trial ended with {how}"
    full, half = parse_json(done.stdout, "the measurement", "choose --autocast none or bf16")
    return full / half, ""


def names_bf16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """False only where the machine lists its instructions and bfloat16 is not among them: emulation never pays."""
    try:
        return "bf16" in cpuinfo.read_text()
    except OSError:
        return True


def widest(model: nn.Module) -> tuple[int, int]:
    """In and out width of the model's largest linear layer."""
    layers = [m for m in model.modules() if isinstance(m, nn.Linear)]
    if not layers:
        return 256, 256
    largest = max(layers, key=lambda m: m.in_features * m.out_features)
    return largest.in_features, largest.out_features
