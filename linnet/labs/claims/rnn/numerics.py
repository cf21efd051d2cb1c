"""T16: may the state be float32 over a million tokens, and where does float16 break?

    z_T = sum phi(k_t),   phi(q).z_T is about 1.347 C T for elu + 1 of normal numbers: past 65,504 at T = 48,600 / C

Errors: outputs of a float32 state against float64, tokens added one at a time (numpy) or in blocks (linnet). Limits:
the length at which an exact denominator, or entry of z, no longer fits float16; and what a float16 sum reaches.
Follows from equations 18-20 of arXiv:2006.16236.
T tokens, C features and values:  q, k, v [1,T,1,C]   sums [C,C+1], of which the last column is z
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import e, erfc, pi, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import elu

from ....ops import linear_attention
from ...core.claim import (
    NO,
    OPEN,
    YES,
    Chart,
    Claim,
    Config,
    Evidence,
    Finding,
    Row,
    Setting,
    Table,
    Unit,
    by_seed,
    figures,
    number,
    rounded,
    unit,
    untested,
)

ONE, BLOCKS = "one token at a time", "in blocks"
BOUNDS = {ONE: 1e-3, BLOCKS: 1e-5}
MILLION, BLOCK = 1_000_000, 10_000
LARGEST = 65504.0  # of float16
MEAN = 1 / sqrt(2 * pi) + 0.5 + sqrt(e) * erfc(1 / sqrt(2)) / 2  # of elu(x) + 1, x standard normal: 1.1605
NEAR, FAR = 0.05, 0.5  # of the predicted length
TOKENS_16, QUERIES = 64_000, 256
WIDTHS_16 = (32, 64)
Floats = npt.NDArray[Any]


def units(setting: Setting) -> list[Unit]:
    tokens, seeds = {"smoke": (2 * BLOCK, 1), "quick": (MILLION, 5)}.get(setting.budget, (MILLION, 3))
    widths = {"hour": (8, 16), "paper": (8, 32)}.get(setting.budget, (8,))  # 5 streams or more in all
    base = {"experiment": "numerics"}
    work = [
        unit(drift, {**base, "kind": "drift", "tokens": tokens, "width": width, "seed": seed}, 2.0 * width / 8)
        for width in widths
        for seed in range(seeds)
    ]
    limits = [{**base, "kind": "float16", "width": width, "seed": seed} for width in WIDTHS_16 for seed in range(seeds)]
    return work + [unit(float16, config, 0.5) for config in limits]


def drift(config: Config) -> dict[str, Any]:
    """Return variant -> relative error of the last output of every block, at most 50 of them."""
    width = config["width"]
    exact = torch.zeros(width, width + 1, dtype=torch.float64)
    alone, state = torch.zeros(width, width + 1), None
    errors: dict[str, list[float]] = {ONE: [], BLOCKS: []}
    for q, k, v in blocks(config):
        values = torch.cat([v, torch.ones_like(v[..., :1])], dim=-1)[0, :, 0]  # [T,C+1]
        phi_q, phi_k = elu(q[0, -1, 0]) + 1, elu(k[0, :, 0]) + 1
        exact += phi_k.double().T @ values.double()
        alone = one_by_one(phi_k, values, alone)
        out, state = linear_attention(q, k, v, initial_state=state, output_final_state=True)
        want = answer(elu(q[0, -1, 0].double()) + 1, exact)
        for variant, actual in ((ONE, answer(phi_q, alone)), (BLOCKS, out[0, -1, 0])):
            errors[variant].append(float((actual.double() - want).abs().max() / want.abs().max()))
    every = -(-len(errors[ONE]) // 50)
    worst = {variant: max(values) for variant, values in errors.items()}
    return {
        "worst": worst,
        "every": every,
        "errors": {variant: [rounded(e, 3) for e in errors[variant][::every]] for variant in errors},
    }


def blocks(config: Config) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield one stream of tokens block by block; values have a mean, or the exact output would vanish."""
    draw = torch.Generator().manual_seed(config["seed"])
    for _ in range(config["tokens"] // BLOCK):
        q, k, v = torch.randn(3, 1, BLOCK, 1, config["width"], generator=draw)
        yield q, k, v + 0.5


def one_by_one(phi_k: Tensor, values: Tensor, sums: Tensor) -> Tensor:
    """Return the float32 sums after the tokens of a block are added one at a time."""
    terms = (phi_k[:, :, None] * values[:, None, :]).numpy()  # [T,C,C+1]
    terms[0] += sums.numpy()
    return torch.from_numpy(np.add.accumulate(terms, axis=0, dtype=np.float32)[-1].copy())


def answer(phi_q: Tensor, sums: Tensor) -> Tensor:
    read = phi_q @ sums
    return read[:-1] / (read[-1] + 1e-6)


def float16(config: Config) -> dict[str, Any]:
    """Return the tokens until the median denominator and entry of z overflow, and what a float16 sum reaches."""
    draw = torch.Generator().manual_seed(config["seed"])
    width = config["width"]
    phi_k = (elu(torch.randn(TOKENS_16, width, generator=draw)) + 1).numpy()
    phi_q = (elu(torch.randn(QUERIES, width, generator=draw)) + 1).numpy()
    z = phi_k.astype(np.float64).cumsum(0)  # [T,C]
    early = z[: round(4 * predicted(width))]  # far enough for all but the rarest queries
    kept = np.add.accumulate(phi_k.astype(np.float16), axis=0, dtype=np.float16)[-1]
    return {
        "denominator": overflow(early @ phi_q.astype(np.float64).T),
        "entry": overflow(z),
        "sum": float(np.median(kept.astype(np.float64))),
        "exact": rounded(float(np.median(z[-1]))),
    }


def overflow(sums: Floats) -> float:
    """Return the median over columns of the first row that overflows float16, the end if none does."""
    with np.errstate(over="ignore"):
        full = np.isinf(sums.astype(np.float16))
    return float(np.median(np.where(full.any(0), full.argmax(0) + 1, len(full))))


def predicted(width: int) -> float:
    """Return the tokens until an average denominator exceeds the largest float16."""
    return LARGEST / (MEAN**2 * width)


def read(rows: Sequence[Row]) -> Finding:
    drifts = [row for row in rows if row["config"]["kind"] == "drift" and row["config"]["tokens"] >= MILLION]
    limits = {width: by_seed(rows, "denominator", kind="float16", width=width) for width in WIDTHS_16}
    if not drifts or not all(limits.values()):
        return untested("there is no stream of a million tokens" if not drifts else "float16 limits are missing")
    worst = {variant: max(row["metrics"]["worst"][variant] for row in drifts) for variant in BOUNDS}
    entries = [row["metrics"]["entry"] for row in rows if row["config"]["kind"] == "float16"]
    wanted = [*map(predicted, WIDTHS_16), LARGEST / MEAN]
    of = [*(f"denominator of {width} features" for width in WIDTHS_16), "entry of z"]
    measured = [*(list(limits[width].values()) for width in WIDTHS_16), entries]
    lengths = [
        number(f"tokens until a float16 {name} overflows; derived: {want:,.0f}", None, values)
        for name, want, values in zip(of, wanted, measured, strict=True)
    ]
    off = max(abs(one.ours / want - 1) for one, want in zip(lengths, wanted, strict=True))
    over = max(worst[variant] / bound for variant, bound in BOUNDS.items())
    state = YES if over <= 1 and off <= NEAR else NO if over > 10 or off > FAR else OPEN
    shares = [row["metrics"]["sum"] / row["metrics"]["exact"] for row in rows if row["config"]["kind"] == "float16"]
    sentence = (
        f"Over a million tokens a float32 state is off by at most {figures(worst[ONE])} when tokens are added one at a "
        f"time (1e-3 is allowed) and {figures(worst[BLOCKS])} in blocks (1e-5); float16 denominators overflow within "
        f"{100 * off:.1f} per cent of the predicted lengths, and a sum kept in float16 loses small additions: "
        f"after {TOKENS_16:,} tokens it has reached {figures(100 * max(shares))} per cent of what it should be."
    )
    numbers = [
        number(f"largest relative error of outputs over a million tokens, float32 state, {variant}", None,
               [row["metrics"]["worst"][variant] for row in drifts], "streams") for variant in BOUNDS
    ]  # fmt: skip
    numbers += [*lengths, number(f"a float16 sum of {TOKENS_16:,} keys / the exact sum", None, shares, "sums")]
    widths = sorted({row["config"]["width"] for row in drifts})
    scope = f"a million tokens, {len(drifts)} streams, widths {' and '.join(map(str, widths))}"
    evidence = Evidence(state, repeats=len(drifts), of="streams")
    return Finding(evidence, sentence, numbers, scope, meaning(over, worst), [table(rows)], [chart(drifts)])


def meaning(over: float, worst: dict[str, float]) -> str:
    keep = (
        "Keep neither state nor denominator in float16: with elu + 1 they fail after some hundred or thousand tokens."
    )
    if over > 1:
        return f"A float32 state drifts more than allowed over a million tokens: keep long streams in float64. {keep}"
    return (
        f"A float32 state serves streams of a million tokens; where an error of {figures(worst[ONE])} matters, feed "
        f"tokens in blocks or keep a float64 state. {keep}"
    )


def table(rows: Sequence[Row]) -> Table:
    body = []
    for row in rows:
        config, metrics = row["config"], row["metrics"]
        if config["kind"] == "float16":
            body.append((str(config["width"]), str(config["seed"]), f"{predicted(config['width']):,.0f}",
                         f"{metrics['denominator']:,.0f}", f"{LARGEST / MEAN:,.0f}", f"{metrics['entry']:,.0f}",
                         figures(metrics["sum"]), figures(metrics["exact"])))  # fmt: skip
    overflow_of = ("denominator, predicted", "found", "entry of z, predicted", "found")
    head = ("features", "seed", *overflow_of, "sum in float16", "exact sum")
    return Table(head, body, f"Tokens until float16 overflows (medians), and a sum of {TOKENS_16:,} keys in float16")


def chart(drifts: Sequence[Row]) -> Chart:
    """Draw the first stream of each width."""
    series = {}
    for row in drifts:
        if row["config"]["seed"] == 0:
            for variant, errors in row["metrics"]["errors"].items():
                places = [BLOCK * (1 + i * row["metrics"]["every"]) for i in range(len(errors))]
                points = [[place, error] for place, error in zip(places, errors, strict=True) if error]
                series[f"{variant}, width {row['config']['width']}"] = points
    return Chart(
        "Error of a float32 state along a million tokens", "tokens", "relative error of the output", series,
        log_x=True, log_y=True, caption="Against float64. One stream; each point is the output of one token.",
    )  # fmt: skip


CLAIM = Claim(
    name="numerics",
    number="T16",
    paper="rnn",
    statement="A float32 state stays accurate over a million tokens, and a float16 state overflows where theory says.",
    source=(
        "The state is a sum over all tokens (equations 18-20); the paper uses float32 and says nothing of rounding. "
        "Derived: with elu + 1 of normal numbers the denominator grows by 1.347 C per token, so that float16 overflows "
        "near 1,520 tokens at 32 features and 760 at 64, and an entry of z near 56,400."
    ),
    rule=(
        "holds if over a million tokens a float32 state is within 1e-3 (one token at a time) and 1e-5 (in blocks) of "
        "float64, and overflow comes within 5 per cent of the predicted lengths; does not hold beyond 10 times the "
        "bounds or half the prediction; too close to call between"
    ),
    answers={YES: "Yes; keep the state in float32", NO: "No, a float32 state drifts away"},
    change="a stream of a million tokens whose float32 outputs are off by more than 1e-3",
    units=units,
    read=read,
)
