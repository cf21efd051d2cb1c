"""T1: is causal linear attention the same function as one dense matrix, as chunks, as an RNN, split and padded?

    out_i = sum_{j<=i} phi(q_i).phi(k_j) v_j / (sum_{j<=i} phi(q_i).phi(k_j) + eps),   phi = elu + 1

Equations 9, 12 and 18-20 of arXiv:2006.16236. Every form is compared with the sum written out in float64
(linnet/labs/bench/reference.py, which shares no code with the forms); the error is relative to the largest output.
B = 2, H = 3, T tokens, D features, V values:  q, k [B,T,H,D]   v, out [B,T,H,V]
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ....ops import linear_attention, linear_attention_step
from ...bench.reference import attend, relative
from ...core.claim import (
    NO,
    OPEN,
    YES,
    Chart,
    Claim,
    Config,
    Evidence,
    Finding,
    Number,
    Row,
    Setting,
    Table,
    Unit,
    figures,
    unit,
    untested,
)

BOUNDS = {"float64": 1e-12, "float32": 2e-5}
FAR = 100  # times the bound: more than rounding
LENGTHS = [1, 2, 3, 63, 64, 65, 257, 1000]
WIDTHS = (8, 32, 64)
PADS = 7
Run = Callable[[Tensor, Tensor, Tensor], Tensor]


def units(setting: Setting) -> list[Unit]:
    square = [(width, width) for width in WIDTHS]
    every = [(features, values) for features in WIDTHS for values in WIDTHS]
    chosen, long = {
        "smoke": ([(8, 8)], []),
        "quick": ([(8, 8), (32, 64), (64, 32)], [(32, 64)]),
        "hour": (every, square),
        "paper": (every, every),
    }[setting.budget]
    short = LENGTHS[:5] if setting.budget == "smoke" else LENGTHS[:-1]
    work = []
    for features, values in chosen:
        lengths = LENGTHS if (features, values) in long else short
        sizes = {"features": features, "values": values, "lengths": lengths, "batch": 2, "heads": 3, "seed": 0}
        guess = 0.002 * sum(lengths)
        work += [unit(errors, {"experiment": "forms", "dtype": dtype, **sizes}, guess) for dtype in BOUNDS]
    return work


def errors(config: Config) -> dict[str, Any]:
    """Return form -> relative error at each length."""
    errors_by_form: dict[str, list[float]] = {}
    for length in config["lengths"]:
        draw = torch.Generator().manual_seed(config["seed"] + length)
        widths = (config["features"], config["features"], config["values"])
        shape, dtype = (config["batch"], length, config["heads"]), getattr(torch, config["dtype"])
        q, k, v = (torch.randn(*shape, width, generator=draw, dtype=torch.float64).to(dtype) for width in widths)
        want = torch.stack([attend("elu", *rows, 0) for rows in zip(q.double(), k.double(), v.double(), strict=True)])
        for name, run in runs(length, config["seed"]).items():
            errors_by_form.setdefault(name, []).append(float(f"{relative(run(q, k, v), want):.3g}"))
    return {"errors": errors_by_form}


def runs(length: int, seed: int) -> dict[str, Run]:
    """Return every form of the same function."""
    chunks = {
        f"chunks of {size}": partial(whole, form="chunked", backend="torch", chunk_size=size) for size in (1, 16, 64)
    }
    return {
        "dense matrix": partial(whole, form="parallel"),
        **chunks,
        "one chunk": partial(whole, form="chunked", backend="torch", chunk_size=length),
        "recurrent form": partial(whole, form="recurrent", backend="torch"),
        "as dispatched": whole,
        "token by token": by_token,
        "random pieces": partial(in_pieces, seed=seed),
        "padded right": partial(padded, left=False),
        "padded left": partial(padded, left=True),
    }


def whole(q: Tensor, k: Tensor, v: Tensor, **how: Any) -> Tensor:
    return linear_attention(q, k, v, **how)[0]


def by_token(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    state, outs = None, []
    for x, y, w in zip(q.unbind(1), k.unbind(1), v.unbind(1), strict=True):
        out, state = linear_attention_step(x, y, w, state)
        outs.append(out)
    return torch.stack(outs, dim=1)


def in_pieces(q: Tensor, k: Tensor, v: Tensor, seed: int) -> Tensor:
    """Split at random places and carry the state from piece to piece."""
    length = q.shape[1]
    cuts = sorted(random.Random(seed + length).choices(range(length + 1), k=4))
    state, outs = None, []
    for low, high in zip([0, *cuts], [*cuts, length], strict=True):
        part = (x[:, low:high] for x in (q, k, v))
        out, state = linear_attention(*part, initial_state=state, output_final_state=True)
        outs.append(out)
    return torch.cat(outs, dim=1)


def padded(q: Tensor, k: Tensor, v: Tensor, left: bool) -> Tensor:
    """Pad one side with tokens of NaN."""
    length = q.shape[1]
    real = slice(PADS, PADS + length) if left else slice(0, length)
    mask = torch.zeros(q.shape[0], length + PADS, dtype=torch.bool)
    mask[:, real] = True
    longer = []
    for x in (q, k, v):
        longer.append(x.new_full((x.shape[0], length + PADS, *x.shape[2:]), float("nan")))
        longer[-1][:, real] = x
    return linear_attention(*longer, mask=mask)[0][:, real]


def read(rows: Sequence[Row]) -> Finding:
    worst = {dtype: by_form(rows, dtype) for dtype in BOUNDS}
    for dtype, by_name in worst.items():
        if not by_name:
            return untested(f"there is no comparison in {dtype}")
    largest = {dtype: max(by_name.values()) for dtype, by_name in worst.items()}
    over = {dtype: largest[dtype] / bound for dtype, bound in BOUNDS.items()}
    state = YES if max(over.values()) <= 1 else NO if max(over.values()) > FAR else OPEN
    widths = {(row["config"]["features"], row["config"]["values"]) for row in rows}
    forms = sorted(worst["float64"], key=lambda name: -worst["float32"][name])
    sentence = (
        f"{len(forms)} forms at {len(widths)} pairs of widths stay within {figures(largest['float64'])} (float64) and "
        f"{figures(largest['float32'])} (float32) of the sum written out; the bounds are 1e-12 and 2e-5, and "
        f"{forms[0]} is furthest in float32."
    )
    same = "Train with whichever form is fast and generate token by token with the same weights: the answers agree."
    differ = "The forms do not agree to rounding here: do not train with one and generate with another."
    numbers = [
        Number(f"largest relative error of any form against the sum written out, {dtype}", None, largest[dtype])
        for dtype in BOUNDS
    ]
    table = Table(
        ("form", *(f"largest error, {dtype}" for dtype in BOUNDS)),
        [(name, *(f"{worst[dtype][name]:.1e}" for dtype in BOUNDS)) for name in forms],
        "Every form against the sum written out in float64",
    )
    longest = max(length for row in rows for length in row["config"]["lengths"])
    scope = f"{len(forms)} forms, {len(widths)} pairs of widths, up to {longest:,} tokens"
    meaning = same if state == YES else differ
    return Finding(Evidence(state), sentence, numbers, scope, meaning, [table], [chart(rows)])


def by_form(rows: Sequence[Row], dtype: str) -> dict[str, float]:
    """Return form -> the largest error of all rows; infinite where one was NaN."""
    worst: dict[str, float] = {}
    for row in rows:
        if row["config"]["dtype"] == dtype:
            for name, values in row["metrics"]["errors"].items():
                finite = [float("inf") if value is None else value for value in values]
                worst[name] = max(worst.get(name, 0.0), *finite)
    return worst


def chart(rows: Sequence[Row]) -> Chart:
    """Draw the largest error of all forms and widths, by length."""
    series: dict[str, dict[int, float]] = {dtype: {} for dtype in BOUNDS}
    for row in rows:
        points = series[row["config"]["dtype"]]
        for values in row["metrics"]["errors"].values():
            for length, value in zip(row["config"]["lengths"], values, strict=True):
                points[length] = max(points.get(length, 0.0), value or 0.0)
    drawn = {dtype: [[length, y] for length, y in sorted(points.items()) if y > 0] for dtype, points in series.items()}
    return Chart(
        "Largest disagreement of any form, by length", "tokens", "relative error", drawn, log_x=True, log_y=True,
        caption="Both stay at the rounding of their number format: no form computes another function.",
    )  # fmt: skip


CLAIM = Claim(
    name="forms",
    number="T1",
    paper="rnn",
    statement="Linear attention is one function, whether computed all at once, in chunks or as an RNN.",
    source=(
        "Causal linear attention (equation 9), its cumulative sums (12) and the recurrent network (18-20) are the same "
        "function. The paper shows it by algebra and gives no number."
    ),
    rule=(
        "holds if every form is within 1e-12 (float64) and 2e-5 (float32) of the sum written out, relative to the "
        "largest output; does not hold beyond 100 times that; too close to call between"
    ),
    answers={YES: "Yes, to rounding, in every form", NO: "No, the forms differ"},
    change="a form, length, split or padding whose output differs by more than rounding",
    units=units,
    read=read,
)
