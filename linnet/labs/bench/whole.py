"""Benchmarks beyond a single kernel: threads, a transformer block, a million tokens, and the build.

threads   two threads against one, with many streams and with one; are the results the same bits?
block     pre-norm block, d = 512, 8 heads, MLP 4x, packed q, k, v, against the same block without attention
long      time per token at a million tokens against 2,048, and the float32 error of the last tokens
build     seconds to build the native library from source, and its size
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm, scaled_dot_product_attention

from ...native import build, memory
from ...ops import linear_attention
from . import reference, timing
from .competitors import OURS, OURS_TORCH, SDPA
from .inputs import Inputs
from .race import too_large
from .sizes import BOTH, FORWARD

D_MODEL, HEADS = 512, 8
LONG, SHORT, LONG_HEADS, LAST = 1_000_000, 2_048, 2, 64


def threads(streams: int, length: int, mode: str, counts: tuple[int, ...], rounds: int) -> dict[str, Any]:
    """Time the same call on each number of threads in turn, with an sgemm on as many."""
    given = Inputs(1, length, streams, 64, 64)
    q, k, v, g = given.given("bthd", mode)

    def attend() -> tuple[Tensor, ...]:
        with torch.set_grad_enabled(mode == BOTH):
            out, _ = linear_attention(q, k, v)
        return (out, *torch.autograd.grad(out, (q, k, v), g)) if mode == BOTH else (out,)

    results = [_with_threads(n, attend)() for n in counts]
    same = all(torch.equal(a, b) for other in results[1:] for a, b in zip(results[0], other, strict=True))
    calls = {f"linnet {n}": _with_threads(n, attend) for n in counts}
    calls |= {f"sgemm {n}": _with_threads(n, timing.sgemm()) for n in counts}
    times = {name: timing.summary(measured) for name, measured in timing.interleave(calls, rounds).items()}
    for name, measured in times.items():
        measured["speedup"] = times[f"{name.split()[0]} {counts[0]}"]["min_s"] / measured["min_s"]
    sizes = {"streams": streams, "length": length, "head_dim": 64, "mode": mode, "threads": list(counts)}
    return {**sizes, "identical": same, "times": times}


def _with_threads(count: int, call: Callable[[], Any]) -> Callable[[], Any]:
    def run() -> Any:
        torch.set_num_threads(count)
        return call()

    return run


class Block(nn.Module):
    """x + proj(attention(qkv(norm(x)))), then x + mlp(norm(x)); `attention` takes q, k, v [B,T,H,D]."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(D_MODEL, 3 * D_MODEL), nn.Linear(D_MODEL, D_MODEL)
        self.up, self.down = nn.Linear(D_MODEL, 4 * D_MODEL), nn.Linear(4 * D_MODEL, D_MODEL)

    def forward(self, x: Tensor, attention: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
        packed = self.qkv(layer_norm(x, (D_MODEL,))).unflatten(-1, (3, HEADS, -1))  # [B,T,3,H,D]
        x = x + self.proj(attention(*packed.unbind(2)).flatten(2))
        return x + self.down(gelu(self.up(layer_norm(x, (D_MODEL,)))))


ATTENTIONS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "none": lambda q, k, v: v,  # the projections of q and k stay, so only the attention differs
    OURS: lambda q, k, v: linear_attention(q, k, v)[0],
    OURS_TORCH: lambda q, k, v: linear_attention(q, k, v, backend="torch")[0],
    SDPA: lambda q, k, v: scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True
    ).transpose(1, 2),
}


def block(length: int, mode: str, count: int, rounds: int) -> dict[str, Any]:
    torch.set_num_threads(count)
    torch.manual_seed(0)
    layer = Block()
    x, g = torch.randn(1, length, D_MODEL, requires_grad=mode == BOTH), torch.randn(1, length, D_MODEL)
    wanted = [x, *layer.parameters()]

    def call(attention: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Any:
        if mode == FORWARD:
            with torch.no_grad():
                return layer(x, attention)
        return torch.autograd.grad(layer(x, attention), wanted, g)

    calls = {name: partial(call, one) for name, one in ATTENTIONS.items()}
    times = {name: timing.summary(measured) for name, measured in timing.interleave(calls, rounds).items()}
    for measured in times.values():
        measured["ratio"] = measured["min_s"] / times["none"]["min_s"]
        measured["ratio_median"] = measured["median_s"] / times["none"]["median_s"]
    return {"length": length, "mode": mode, "threads": count, "d_model": D_MODEL, "heads": HEADS, "times": times}


def long(count: int, rounds: int, length: int = LONG) -> dict[str, Any]:
    """Time the forward pass. "short" is one sequence of 2,048 in cache; "batch" is the long one split into such ones.

    The ratio to "batch" is the cost of length alone: both read and write the same memory.
    """
    torch.set_num_threads(count)
    sizes = {"length": length, "short_length": SHORT, "streams": LONG_HEADS, "head_dim": 64, "threads": count}
    reason = too_large(6 * 4.0 * length * LONG_HEADS * 64)  # q, k, v, a gradient, and two outputs
    if reason:
        return {**sizes, "left_out": reason}
    many = Inputs(1, length, LONG_HEADS, 64, 64).bthd[:3]
    out, _ = linear_attention(*many)
    off = reference.relative(out[0, -LAST:], reference.last_outputs(*(x[0] for x in many), rows=LAST))
    del out
    whole = length // SHORT * SHORT
    cut = [x[0, :whole].unflatten(0, (-1, SHORT)) for x in many]  # [length / SHORT, SHORT, H, D], the same memory
    few = [x[:1] for x in cut]
    shapes = {"long": (many, length), "short": (few, SHORT), "batch": (cut, whole)}
    calls = {name: partial(linear_attention, *given) for name, (given, _) in shapes.items()}
    times = {name: timing.summary(measured) for name, measured in timing.interleave(calls, rounds).items()}
    for name, (_, tokens) in shapes.items():
        times[name]["ns_per_token_head"] = times[name]["min_s"] / tokens / LONG_HEADS * 1e9
    memory.release()
    ns = {name: measured["ns_per_token_head"] for name, measured in times.items()}
    ratios = {"ratio": ns["long"] / ns["short"], "ratio_batch": ns["long"] / ns["batch"]}
    return {**sizes, **ratios, "error": off, "times": times}


def built() -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="linnet-bench-") as folder:
        start = perf_counter()
        try:
            path = build.build(folder)
        except build.BuildError as error:
            return {"status": "failed", "reason": str(error)[:300]}
        return {"status": "ok", "seconds": perf_counter() - start, "bytes": path.stat().st_size}
