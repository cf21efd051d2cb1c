"""One row of `linnet bench ops`: every competitor of a case is checked, then all are timed in turns.

    status  ok: agreed, timed | wrong: disagreed, not timed | failed: raised | left out: too slow, too large, absent

Ratios are time / time of the baseline: linnet's native kernel, or its torch form if there is none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...json_file import finite_or_none
from . import timing
from .competitors import OURS, OURS_TORCH, PLAIN_TORCH, Competitor
from .inputs import Inputs, inputs
from .reference import error, tolerance
from .sizes import BOTH, Case

LARGEST = 0.4  # share of the available memory that one call may take
LARGE = 1 << 16  # tokens times heads from which one-time costs of a first call are negligible
BATCH_OF_INPUTS = 12  # tensors as large as v that a forward and backward pass holds


def race(case: Case, mode: str, competitors: list[Competitor], rounds: int, limit: float) -> dict[str, Any]:
    """Return the row of one case; `limit` is how many seconds one competitor may take for all its rounds."""
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
    compare(row, case, {name: timing.summary(values) for name, values in seconds.items()})
    return row


def admit(one: Competitor, case: Case, mode: str, rate: float, rounds: int, limit: float) -> dict[str, Any]:
    """Return {} if it may run, else why it is left out; `rate` is the sgemm rate in flops per second."""
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
    """Return a call that returns out, or out, dq, dk, dv."""
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
    """Check agreement with the reference, and measure the memory that a call adds."""
    try:
        if case.tokens < LARGE:
            call()  # the first call creates threads, buffers and code that stay
        result, extra = timing.extra_memory(call)
    except Exception as failure:  # third-party code may raise anything; the others still run
        return {"status": "failed", "reason": f"{type(failure).__name__}: {failure}"[:300]}
    kernel = one.kernel or case.feature_map
    off, accepted = error(kernel, given, one.layout, result), tolerance(kernel)
    if not off <= accepted:
        return {
            "status": "wrong",
            "error": finite_or_none(off),
            "reason": f"off by {off:.1e}, more than {accepted:.0e}: not timed",
        }
    outputs = sum(x.numel() * x.element_size() for x in result)
    return {"status": "ok", "error": off, "extra_bytes": extra, "output_bytes": outputs}


def compare(row: dict[str, Any], case: Case, times: dict[str, dict[str, Any]]) -> None:
    """Fill in times, ratios and percentages of sgemm, and name the best plain torch form."""
    baseline = next((name for name in (OURS, OURS_TORCH) if name in times), None)
    row["baseline"] = baseline
    for name, measured in times.items():
        entry = row["competitors"][name]
        entry |= measured
        entry["ns_per_token_head"] = measured["min_s"] / case.tokens * 1e9
        entry["floor_percent"] = 100 * entry["floor_flops"] / measured["min_s"] / (row["sgemm"]["gflops"] * 1e9)
        if baseline is not None:
            entry["ratio"] = measured["min_s"] / times[baseline]["min_s"]
            entry["ratio_median"] = measured["median_s"] / times[baseline]["median_s"]
    plain = [name for name in times if name.startswith(PLAIN_TORCH) or name == OURS_TORCH]
    row["best_torch"] = min(plain, key=lambda name: times[name]["min_s"], default=None)
