"""One row of `linnet bench ops --family gated`: the competitors of a rule are checked, then all are timed in turns.

Statuses are those of race.py. Ratios are time / time of the baseline, linnet's native kernel or else its torch form;
`of_elu` is the baseline's time / that of elu + 1, which takes its turns in the same rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from ...json_file import finite_or_none
from . import inputs as elu_inputs
from . import reference, timing
from .gated import RuleCase
from .gated_peers import OURS, OURS_TORCH, YARDSTICK, Peer, peers, yardstick
from .gated_rules import TOLERANCE, Given, given
from .race import too_large
from .sizes import BOTH

Call = Callable[[], tuple[Tensor, ...]]


def race(case: RuleCase, mode: str, rounds: int, limit: float, competitors: list[Peer] | None = None) -> dict[str, Any]:
    """Return the row of one case; `limit` is how many seconds one competitor may take for all its rounds."""
    torch.set_num_threads(case.threads)
    row: dict[str, Any] = {"mode": mode, **case.describe(), "competitors": {}}
    entries, calls = row["competitors"], {}
    known = given(case.rule, case.streams, case.length, case.head_dim)
    for one in peers(case.rule) if competitors is None else competitors:
        entries[one.name], call = admitted(one, case, mode, known, rounds, limit)
        if call is not None:
            calls[one.name] = call
    entries[YARDSTICK], calls[YARDSTICK] = _yardstick(case, mode)
    if entries[YARDSTICK]["status"] != "ok":
        del calls[YARDSTICK]
    seconds = timing.interleave(calls, rounds)
    compare(row, {name: timing.summary(values) for name, values in seconds.items()})
    return row


def admitted(
    one: Peer, case: RuleCase, mode: str, known: Given, rounds: int, limit: float
) -> tuple[dict[str, Any], Call | None]:
    """Return the entry of a competitor, and its call if it agreed and is not too slow."""
    reason = one.about if one.run is None else None if one.bytes is None else too_large(one.bytes(case, mode))
    if reason:
        return {"status": "left out", "reason": reason}, None
    own = one.enter(known.inputs)
    call = call_of(one, own, known, mode)
    try:
        begun = perf_counter()
        results = call()
        seconds = (perf_counter() - begun) * (rounds + 1)
    except Exception as failure:  # third-party code may raise anything; the others still run
        return {"status": "failed", "reason": f"{type(failure).__name__}: {failure}"[:300]}, None
    results = tuple(x.detach() for x in results)
    off = error(one.leave(own, results), known.truth(mode))
    if not off <= TOLERANCE:
        reason = f"off by {off:.1e}, more than {TOLERANCE:.0e}: not timed"
        return {"status": "wrong", "error": finite_or_none(off), "reason": reason}, None
    if seconds > limit:
        late = f"about {seconds:.0f} s, over the limit of {limit:.0f} s"
        return {"status": "left out", "reason": late, "error": off}, None
    return {"status": "ok", "error": off}, call


def call_of(one: Peer, own: dict[str, Tensor], known: Given, mode: str) -> Call:
    """Return a call that returns out, or out and the gradients of the inputs that learn."""
    run = one.run
    assert run is not None
    if mode == BOTH:
        leaves = {name: x.detach().requires_grad_(name in known.learned) for name, x in own.items()}
        wanted = [leaves[name] for name in known.learned]
        g: list[Tensor] = []

        def both() -> tuple[Tensor, ...]:
            out = run(**leaves)
            if not g:  # in its layout, so that no copy is timed
                g.append(known.g if out.shape == known.g.shape else known.g.transpose(1, 2).contiguous())
            return out, *torch.autograd.grad(out, wanted, g[0])

        return both

    def forward() -> tuple[Tensor, ...]:
        with torch.no_grad():
            return (run(**own),)

    return forward


def error(results: tuple[Tensor, ...], wanted: tuple[Tensor, ...]) -> float:
    """Return the largest difference, relative to the largest number of each tensor."""
    return max(reference.relative(actual, want) for actual, want in zip(results, wanted, strict=True))


def _yardstick(case: RuleCase, mode: str) -> tuple[dict[str, Any], Call]:
    """Return elu + 1 on q, k, v of these sizes, checked as in the linear family."""
    drawn = elu_inputs.inputs(case.batch, case.length, case.heads, case.head_dim, case.value_dim)
    q, k, v, g = drawn.given("bthd", mode)
    run = yardstick().run
    assert run is not None

    def call() -> tuple[Tensor, ...]:
        if mode != BOTH:
            with torch.no_grad():
                return (run(q, k, v),)
        out = run(q, k, v)
        return out, *torch.autograd.grad(out, (q, k, v), g)

    off = reference.error("elu", drawn, "bthd", call())
    agreed = off <= reference.TOLERANCE
    entry = {"status": "ok" if agreed else "wrong", "error": finite_or_none(off)}
    return (entry if agreed else entry | {"reason": f"off by {off:.1e}: not timed"}), call


def compare(row: dict[str, Any], times: dict[str, dict[str, Any]]) -> None:
    """Fill in times and ratios, by minimum and by median."""
    row["baseline"] = baseline = next((name for name in (OURS, OURS_TORCH) if name in times), None)
    for name, measured in times.items():
        entry = row["competitors"][name]
        entry |= measured
        if baseline is not None:
            entry["ratio"] = measured["min_s"] / times[baseline]["min_s"]
            entry["ratio_median"] = measured["median_s"] / times[baseline]["median_s"]
    if baseline is not None and YARDSTICK in times:
        row["of_elu"] = times[baseline]["min_s"] / times[YARDSTICK]["min_s"]
        row["of_elu_median"] = times[baseline]["median_s"] / times[YARDSTICK]["median_s"]
