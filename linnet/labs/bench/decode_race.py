"""Compare decoding steps of one model: competitors are checked against float64, then timed in turns.

    linnet float32 | bfloat16 | int8   the native engine, with weights of that dtype
    model.step                         the torch engine: the eager step of the model, states as values
    torch in place, softmax cache      plain torch (decode_torch.py); softmax sees `context` tokens at every step
    softmax recompute                  the softmax model on all `context` tokens, without a cache

Percentages are of the limits measured in the same rounds, see decode_limits.py. B streams, P width of an output.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from ...generate import Engine, open_engine
from ...models import ImageModel, ModelConfig, build, preset
from . import decode_limits as limits
from . import timing
from .decode_torch import LinearStep, SoftmaxStep, cache_bytes
from .race import too_large
from .reference import relative

EAGER, IN_PLACE, CACHE, RECOMPUTE = "model.step", "torch in place", "softmax cache", "softmax recompute"
Wanted: TypeAlias = "dict[tuple[str, str], Tensor]"  # by model, "linear" or "softmax", and type of its weights
# Largest accepted difference from float64, relative to the largest output. bfloat16 is compared with a model of rounded
# weights, since some models amplify that rounding (GLA twentyfold); int8 is not, and rounds its inputs as well.
TOLERANCES = {"float32": 1e-4, "bfloat16": 2e-2, "int8": 1e-1}
CHECKED = 24  # tokens on which each competitor is checked before it is timed
# A generator steps without pause, so a turn first brings its weights back into the caches, then runs for a while.
TURN, WARM = 0.02, 2
RECOMPUTE_ROUNDS, RECOMPUTE_LIMIT = 2, 60.0  # the limit is in seconds per round
ABOUT = {
    **{f"linnet {kind}": f"the whole step in native code, weights stored as {kind}" for kind in TOLERANCES},
    EAGER: "linnet's torch engine: the step of the model, op by op; the previous state is kept",
    IN_PLACE: "the same step in plain torch, with the state updated in place",
    CACHE: "softmax attention in plain torch, with keys and values in a preallocated cache (the step of the softmax "
    "model would copy its cache at every token)",
    RECOMPUTE: f"the softmax model on the whole context for every token, in {RECOMPUTE_ROUNDS} separate rounds",
}
Step: TypeAlias = "Callable[[Tensor], Tensor]"  # [B] -> [B,P]
Prepared: TypeAlias = "tuple[Step, Callable[[], None]]"


def random_model(name: str, **changes: Any) -> ImageModel:
    """Return the preset with random weights of size 1 / sqrt(d_model), large enough for every layer to matter."""
    torch.manual_seed(0)
    config: ModelConfig = preset(name, **changes)
    model = build(config.replace(init_std=config.d_model**-0.5))
    assert isinstance(model, ImageModel)
    return model.eval()


def softmax_model(model: ImageModel) -> ImageModel:
    """Return the same weights with softmax attention."""
    other = build(model.config.replace(mixer="softmax"))
    other.load_state_dict(model.state_dict())
    assert isinstance(other, ImageModel)
    return other.eval()


def native_engine(model: ImageModel, weights: str, *, exact: bool = True) -> Engine:
    """Return the native engine; raise BackendError if there is none."""
    return open_engine(model, weights=weights, backend="native", exact=exact)


@dataclass(frozen=True)
class Candidate:
    """`make` returns the step, and what to do between checking and timing; it may raise a ValueError."""

    name: str
    make: Callable[[], Prepared]
    softmax: bool = False
    weights: str = "float32"


def candidates(
    model: ImageModel, other: ImageModel, batch: int, context: int, weights: tuple[str, ...]
) -> list[Candidate]:
    """Return the candidates; `other` is the softmax model."""

    def native(kind: str) -> Prepared:
        return stepped(native_engine(model, kind))

    def stepped(engine: Engine) -> Prepared:
        return partial(engine.step, rows=engine.add(rows=batch)), nothing

    def cached() -> Prepared:
        reason = too_large(cache_bytes(other, batch, context))
        if reason:
            raise ValueError(reason)
        by_hand = SoftmaxStep(other, batch, context)
        return by_hand.step, partial(by_hand.fill, context)

    return [
        *(Candidate(f"linnet {kind}", partial(native, kind), weights=kind) for kind in weights),
        Candidate(EAGER, lambda: stepped(open_engine(model, backend="torch"))),
        Candidate(IN_PLACE, lambda: (LinearStep(model, batch).step, nothing)),
        Candidate(CACHE, cached, softmax=True),
    ]


def nothing() -> None:
    """Do nothing before timing."""


def race(
    name: str, *, threads: int, batch: int, context: int, weights: tuple[str, ...], rounds: int, recompute: bool = False
) -> dict[str, Any]:
    """Return one row: every competitor on `threads` threads with `batch` streams."""
    torch.set_num_threads(threads)
    model = random_model(name)
    other = softmax_model(model)
    tokens = torch.randint(model.levels, (batch, min(CHECKED, context)))
    wanted = expected(model, tokens) | {("softmax", "float32"): answers(other, tokens)}
    entries, calls = admitted(candidates(model, other, batch, context, weights), tokens, wanted)
    kinds = tuple(dict.fromkeys(("float32", *weights)))
    seconds = timing.interleave({**calls, **limits.calls(model, batch, kinds)}, rounds, shortest=TURN, warm=WARM)
    summaries = {name: timing.summary(one) for name, one in seconds.items()}
    row: dict[str, Any] = {"preset": name, "threads": threads, "batch": batch, "context": context}
    row |= {"weights": limits.weights_of(model), **limits.reached(summaries, model, batch, kinds)}
    times = {name: summaries[name] for name in calls}
    if recompute:
        entries[RECOMPUTE] = again = recomputed(other, tokens, wanted["softmax", "float32"], row)
        times |= {RECOMPUTE: again} if "min_s" in again else {}
    compare(row, entries, times)
    return row | {"competitors": entries}


def admitted(
    given: list[Candidate], tokens: Tensor, wanted: Wanted
) -> tuple[dict[str, dict[str, Any]], dict[str, Callable[[], Any]]]:
    """Return an entry for each candidate, and what to time for those that run and agree."""
    entries: dict[str, dict[str, Any]] = {}
    calls: dict[str, Callable[[], Any]] = {}
    for one in given:
        try:
            step, ready = one.make()
        except ValueError as error:  # including BackendError
            entries[one.name] = {"status": "left out", "reason": str(error)}
            continue
        model = "softmax" if one.softmax else "linear"
        answer = wanted.get((model, one.weights), wanted[model, "float32"])
        entries[one.name] = agreement(step, tokens, answer, TOLERANCES[one.weights])
        if entries[one.name]["status"] == "ok":
            ready()
            calls[one.name] = partial(step, tokens[:, 0].contiguous())
    return entries, calls


def expected(model: ImageModel, tokens: Tensor) -> Wanted:
    """Return the answers of the model, and of the model whose matrices are rounded as its bfloat16 weights are."""
    rounded = deepcopy(model)
    with torch.no_grad():
        for parameter in rounded.parameters():
            if parameter.ndim == 2:
                parameter.copy_(parameter.bfloat16())
    return {("linear", "float32"): answers(model, tokens), ("linear", "bfloat16"): answers(rounded, tokens)}


def answers(model: ImageModel, tokens: Tensor) -> Tensor:
    """Return the expected output after each token, [R,T,P]: the parallel form in float64, first and last row."""
    with torch.inference_mode():
        return deepcopy(model).double()(ends(tokens), output_state=False)[0]


def ends(x: Tensor) -> Tensor:
    """Return the first and the last row, or the only one."""
    return x[[0, -1]] if len(x) > 1 else x


def agreement(step: Step, tokens: Tensor, wanted: Tensor, accepted: float) -> dict[str, Any]:
    given = torch.stack([step(x.contiguous()) for x in tokens.T], dim=1)  # [B,T,P]
    return verdict(relative(ends(given), wanted), accepted)


def verdict(off: float, accepted: float) -> dict[str, Any]:
    if off <= accepted:
        return {"status": "ok", "error": off}
    return {"status": "wrong", "reason": f"off by {off:.1e}, more than {accepted:.0e}: not timed"}


def recomputed(other: ImageModel, tokens: Tensor, wanted: Tensor, row: dict[str, Any]) -> dict[str, Any]:
    """Time the whole context at every token, unless the sgemm rate predicts that it takes too long."""
    context, wide = row["context"], other.config.d_model * other.config.n_layers
    flops = 2.0 * row["batch"] * context * (row["weights"] + context * wide)
    guess = flops / (row["sgemm"]["gflops"] * 1e9)
    if guess > RECOMPUTE_LIMIT:
        return {"status": "left out", "reason": f"about {guess:.0f} s a step, over the limit of {RECOMPUTE_LIMIT:.0f}"}
    drawn = torch.randint(other.levels, (len(tokens), context))

    @torch.inference_mode()
    def last(x: Tensor) -> Tensor:
        return other.read(x)[0]

    entry = verdict(relative(ends(last(tokens)), wanted[:, -1]), TOLERANCES["float32"])
    if entry["status"] == "ok":
        entry |= timing.summary(timing.interleave({"": partial(last, drawn)}, RECOMPUTE_ROUNDS)[""])
    return entry


def compare(row: dict[str, Any], entries: dict[str, Any], times: dict[str, Any]) -> None:
    """Fill in times, speedups over three competitors, and percentages of the limits."""
    flops = 2.0 * row["weights"] * row["batch"] / (row["sgemm"]["gflops"] * 1e9)
    for name, one in times.items():
        entry = entries[name]
        entry |= one
        entry["us_per_step"], entry["tokens_per_s"] = one["min_s"] * 1e6, row["batch"] / one["min_s"]
        others = {base: times[base] for base in (EAGER, IN_PLACE, CACHE) if base in times}
        entry["faster_than"] = {base: other["min_s"] / one["min_s"] for base, other in others.items()}
        entry["faster_than_median"] = {base: other["median_s"] / one["median_s"] for base, other in others.items()}
        entry["sgemm_percent"] = 100 * flops / one["min_s"]
        kind = name.removeprefix("linnet ")
        if name not in (CACHE, RECOMPUTE):  # these also read their keys and values
            entry["read_percent"] = 100 * row["reads"].get(kind, row["reads"]["float32"])["min_s"] / one["min_s"]
