"""One row of the benchmark: every competitor of a case is checked, then all are timed in turns.

    status  ok: agreed, timed | wrong: disagreed, not timed | failed: raised | left out: too slow, too large, absent

Ratios are time / time of the baseline: linnet's native kernel, or its torch form where there is none.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from . import timing
from .competitors import OURS, OURS_TORCH, PLAIN_TORCH, Competitor
from .inputs import Inputs, inputs
from .reference import error, tolerance
from .sizes import BOTH, Case

LARGEST = 0.4  # of the available memory: what one call may take
LARGE = 1 << 16  # tokens times heads: from here on, what a first call pays for does not show
BATCH_OF_INPUTS = 12  # tensors as large as v that a well-behaved forward and backward keeps at once


def race(case: Case, mode: str, competitors: list[Competitor], rounds: int, limit: float) -> dict[str, Any]:
    """The row of one case; `limit` is how many seconds one competitor may take in all its rounds."""
    torch.set_num_threads(case.threads)
    row: dict[str, Any] = {"mode": mode, **case.describe(), "competitors": {}}
    entries = row["competitors"]
    reason = too_large(BATCH_OF_INPUTS * 4.0 * case.tokens * case.value_dim)
    if reason:
        return row | {"left_out": reason}
    sgemm = timing.sgemm()
    rate = timing.sgemm_rate(min(timing.interleave({"": sgemm}, 2)[""]))
    calls: dict[str, Callable[[], Any]] = {}
    for one in competitors:
        entries[one.name] = entry = admit(one, case, mode, rate, rounds, limit)
        if not entry:
            own = one.case(case)
            given = inputs(own.batch, own.length, own.heads, own.head_dim, own.value_dim)
            calls[one.name] = call_of(one, given, mode)
            entry |= check(one, own, given, calls[one.name]) | {"floor_flops": own.floor(mode)}
            if entry["status"] != "ok":
                del calls[one.name]
    seconds = timing.interleave({**calls, "sgemm": sgemm}, rounds)
    row["sgemm"] = timing.summary(seconds.pop("sgemm"))
    row["sgemm"]["gflops"] = timing.sgemm_rate(row["sgemm"]["min_s"]) / 1e9
    compare(row, case, {name: timing.summary(found) for name, found in seconds.items()})
    return row


def admit(one: Competitor, case: Case, mode: str, rate: float, rounds: int, limit: float) -> dict[str, Any]:
    """Empty when it may run; else why it is left out. `rate` is the sgemm rate in flops per second."""
    if one.run is None:
        return {"status": "left out", "reason": one.about}
    if one.flops is not None:
        seconds = one.flops(case, mode) / (0.8 * rate) * rounds
        if seconds > limit:
            return {"status": "left out", "reason": f"about {seconds:.0f} s, over the limit of {limit:.0f} s"}
    reason = None if one.bytes is None else too_large(one.bytes(case, mode), most=float(1 << 29))
    return {"status": "left out", "reason": reason} if reason else {}


def too_large(size: float, most: float | None = None) -> str | None:
    available = timing.available_memory()
    bounds = [x for x in (most, None if available is None else LARGEST * available) if x is not None]
    if not bounds or size <= min(bounds):
        return None
    return f"about {size / 2**30:.1f} GiB of memory, over the limit of {min(bounds) / 2**30:.1f} GiB"


def call_of(one: Competitor, given: Inputs, mode: str) -> Callable[[], tuple[Tensor, ...]]:
    """out, or out, dq, dk, dv."""
    run = one.run
    assert run is not None
    q, k, v, g = given.given(one.layout, mode)
    if mode == BOTH:

        def both() -> tuple[Tensor, ...]:
            out = run(q, k, v)
            return out, *torch.autograd.grad(out, (q, k, v), g)

        return both

    def forward() -> tuple[Tensor, ...]:
        with torch.no_grad():
            return (run(q, k, v),)

    return forward


def check(one: Competitor, case: Case, given: Inputs, call: Callable[[], tuple[Tensor, ...]]) -> dict[str, Any]:
    """Does it agree with the reference, and what does a call add to memory?"""
    try:
        if case.tokens < LARGE:
            call()  # the first call pays for what is kept ever after: threads, buffers, code
        result, extra = timing.extra_memory(call)
    except Exception as failure:  # someone else's code: whatever it raises, the others still run
        return {"status": "failed", "reason": f"{type(failure).__name__}: {failure}"[:300]}
    kernel = one.kernel or case.feature_map
    off, accepted = error(kernel, given, one.layout, result), tolerance(kernel)
    if not off <= accepted:
        shown = off if isfinite(off) else None  # JSON has no infinity
        return {"status": "wrong", "error": shown, "reason": f"off by {off:.1e}, more than {accepted:.0e}: not timed"}
    outputs = sum(x.numel() * x.element_size() for x in result)
    return {"status": "ok", "error": off, "extra_bytes": extra, "output_bytes": outputs}


def compare(row: dict[str, Any], case: Case, times: dict[str, dict[str, Any]]) -> None:
    """Fill in times, ratios and per cent of sgemm, and name the best plain torch form."""
    baseline = next((name for name in (OURS, OURS_TORCH) if name in times), None)
    row["baseline"] = baseline
    for name, found in times.items():
        entry = row["competitors"][name]
        entry |= found
        entry["ns_per_token_head"] = found["min_s"] / case.tokens * 1e9
        entry["floor_percent"] = 100 * entry["floor_flops"] / found["min_s"] / (row["sgemm"]["gflops"] * 1e9)
        if baseline is not None:
            entry["ratio"] = found["min_s"] / times[baseline]["min_s"]
            entry["ratio_median"] = found["median_s"] / times[baseline]["median_s"]
    plain = [name for name in times if name.startswith(PLAIN_TORCH) or name == OURS_TORCH]
    row["best_torch"] = min(plain, key=lambda name: times[name]["min_s"], default=None)
