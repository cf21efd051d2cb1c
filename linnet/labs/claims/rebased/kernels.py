"""The kernels of Based and ReBased are what their papers write: identities, and how small a weight can become.

    Based     kappa = 1 + s + s^2 / 2, s = q . k / sqrt(f)              1/2 or more, 1/2 at s = -1 only
    ReBased   kappa = (q' . k')^2 / f, x' = gamma * norm(x) + beta      0 or more; along one coordinate (a s + c)^2

Identities, in float64 with drawn q, k, gamma and beta: the features give the kernels at the widths of the papers; the
vertex moves to -c / a; ReBased without beta does not depend on the size or the sign of q', Based does; squaring every
coordinate, a common reading of "x^2", is another kernel of lower rank. The formulas are written out independently, so
that the feature maps are not compared with themselves.
f width of q and k, T tokens:  q, k [1,T,1,f]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ....feature_maps import Elu, FeatureMap, ReBased, Taylor, TaylorFull
from ....ops import linear_attention
from ...core.claim import (
    NO,
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
    rounded,
    unit,
    untested,
)

WIDTH, TOKENS = 16, 192  # more tokens than features, so that the rank is that of the features
SEEDS = {"smoke": 1, "quick": 3, "hour": 10, "paper": 10}
WIDTHS = {"Based, all products": 273, "Based": 153, "ReBased, all products": 256, "ReBased": 136}  # the papers', f = 16
EXACT = 1e-10  # of float64
ROUNDING = 1e-6  # of an output, where weights cancel
FELT = 1e-2  # a change that is not rounding
TINY = 1e-30  # eps of attention: negligible next to the kernel
SIZES = ("0.1", "10")
CHANGES = (0.1, 10, -1)  # factors on the queries
SCORES = [round(-3 + 0.125 * i, 3) for i in range(49)]
TALLEST = 6.0  # of the chart
MOVED = (2.0, 1.5)  # a, c of (a s + c)^2
ROOT = -MOVED[1] / MOVED[0]


def units(setting: Setting) -> list[Unit]:
    return [
        unit(measure, {"experiment": "kernels", "width": WIDTH, "tokens": TOKENS, "seed": seed}, 0.5)
        for seed in range(SEEDS[setting.budget])
    ]


def measure(config: Config) -> dict[str, Any]:
    """Measure every property of the two kernels on draws of one seed."""
    torch.manual_seed(config["seed"])
    q, k, v = torch.randn(3, 1, config["tokens"], 1, config["width"], dtype=torch.float64)
    with torch.no_grad():
        return {**features(q, k), **curves(), **symmetries(q, k, v), **first_token(config["width"])}


def drawn_rebased(width: int) -> ReBased:
    """Return ReBased with random gamma and beta, as after training."""
    rebased = ReBased(width).double()
    for parameter in rebased.parameters():
        parameter.add_(torch.randn_like(parameter))
    return rebased


def products(x: Tensor) -> Tensor:  # [..., f] -> [..., f^2]
    """Return ReBased's features without using symmetry: vec(x x^T) / sqrt(f)."""
    return (x[..., :, None] * x[..., None, :]).flatten(-2) * x.shape[-1] ** -0.5


def features(q: Tensor, k: Tensor) -> dict[str, Any]:
    """Return the widths, the largest |phi(q) . phi(k) - kappa|, and the ranks of the features of T tokens."""
    f = q.shape[-1]
    based, full, rebased = Taylor(f), TaylorFull(f), drawn_rebased(f)
    s = (q * k).sum(-1) * f**-0.5
    a, b = (affine(part, x) for part, x in ((rebased.q, q), (rebased.k, k)))
    square = (a * b).sum(-1) ** 2 / f
    pairs: dict[str, tuple[Tensor, Tensor, Tensor]] = {
        "Based, all products": (full.map_q(q), full.map_k(k), 1 + s + s**2 / 2),
        "Based": (based.map_q(q), based.map_k(k), 1 + s + s**2 / 2),
        "ReBased, all products": (products(a), products(b), square),
        "ReBased": (rebased.map_q(q), rebased.map_k(k), square),
    }
    other = ReBased(f, norm_scope="none", affine="none", square="elementwise").double()
    plain = ReBased(f, norm_scope="none", affine="none").double()
    return {
        "widths": {name: phi.shape[-1] for name, (phi, _, _) in pairs.items()},
        "error": max(float(((phi * psi).sum(-1) - kappa).abs().max()) for phi, psi, kappa in pairs.values()),
        "elementwise_apart": float((f * plain.kernel(q, k) - other.kernel(q, k)).abs().mean()),
        "ranks": {"outer": rank(plain.map_k(k)), "elementwise": rank(other.map_k(k))},
    }


def affine(part: Any, x: Tensor) -> Tensor:  # [1,T,1,f] -> [1,T,1,f]
    """Return gamma * norm(x) + beta by the formula; one head, so that the norm is over f."""
    centred = x - x.mean(-1, keepdim=True)
    normed = centred / (centred.square().mean(-1, keepdim=True) + part.eps).sqrt()
    return normed * part.gamma + part.beta


def rank(phi: Tensor) -> int:  # [1,T,1,F]
    return int(torch.linalg.matrix_rank(phi[0, :, 0]))


def curves() -> dict[str, Any]:
    """Return kappa(s) for keys of width 1 and k = 1, and the minimum of each on a fine grid."""
    moved = ReBased(1, norm_scope="none").double()
    filled(moved.q.gamma, MOVED[0])
    filled(moved.q.beta, MOVED[1])
    plain = ReBased(1, norm_scope="none").double()
    maps = {"Based": Taylor(1), "ReBased": plain, "ReBased, moved": moved, "elu + 1": Elu(1)}
    fine = torch.linspace(-3, 3, 6001, dtype=torch.float64)
    kappas = {name: kappa_of(one, fine) for name, one in maps.items()}
    few = torch.tensor(SCORES, dtype=torch.float64)
    return {
        "least": {name: float(values.min()) for name, values in kappas.items()},
        "where": {name: round(float(fine[values.argmin()]), 3) for name, values in kappas.items()},
        "kappa": {name: [rounded(x) for x in kappa_of(one, few).tolist()] for name, one in maps.items()}
        | {"exp": [rounded(x) for x in few.exp().tolist()]},
    }


def kappa_of(feature_map: FeatureMap, s: Tensor) -> Tensor:  # [n] -> [n]
    """Return phi(q) . phi(1) for q = s."""
    q = s[:, None, None]
    return (feature_map.map_q(q) * feature_map.map_k(torch.ones_like(q))).sum(-1).flatten()


def symmetries(q: Tensor, k: Tensor, v: Tensor) -> dict[str, Any]:
    """Return how far the output of attention moves when the queries are scaled by 0.1 or 10, or negated."""
    based = Taylor(q.shape[-1])
    outputs = {
        "ReBased": {f"{by:g}": attended(q, k, v, scaled(q.shape[-1], by)) for by in (1, *CHANGES)},
        "Based": {f"{by:g}": attended(by * q, k, v, based) for by in (1, *CHANGES)},
    }
    return {
        "moves": {
            name: {by: float((out - outs["1"]).abs().max()) for by, out in outs.items() if by != "1"}
            for name, outs in outputs.items()
        }
    }


def attended(q: Tensor, k: Tensor, v: Tensor, feature_map: FeatureMap, eps: float = TINY) -> Tensor:  # [1,T,1,f]
    return linear_attention(q, k, v, feature_map=feature_map, eps=eps)[0]


def scaled(width: int, by: float) -> ReBased:
    """Return ReBased with beta = 0 and this gamma for the queries."""
    rebased = ReBased(width).double()
    filled(rebased.q.gamma, by)
    return rebased


def filled(parameter: Tensor | None, value: float) -> None:
    assert parameter is not None
    parameter.fill_(value)


def first_token(width: int) -> dict[str, Any]:
    """Attend from a first token whose query is orthogonal to its key: every weight is 0, and the result is no NaN."""
    q, k = torch.eye(width, dtype=torch.float64)[:2, None, None, None]
    plain = ReBased(width, norm_scope="none", affine="none").double()
    return {"first_token": float(attended(q, k, torch.ones_like(q), plain, eps=1e-6).abs().max())}


def checks(metrics: Mapping[str, Any]) -> dict[str, bool]:
    """Return claimed property -> whether it holds on these draws."""
    least, where, moves, ranks = (metrics[name] for name in ("least", "where", "moves", "ranks"))
    f = WIDTH
    return {
        "the features have the widths 273, 153, 256 and 136": metrics["widths"] == WIDTHS,
        "phi(q) . phi(k) is the kernel": metrics["error"] < EXACT,
        "Based has its least weight 1/2 at s = -1": abs(least["Based"] - 0.5) < EXACT and where["Based"] == -1,
        "ReBased reaches 0, at s = 0 without beta": least["ReBased"] < EXACT and where["ReBased"] == 0,
        "beta moves the zero to -c / a": least["ReBased, moved"] < EXACT and where["ReBased, moved"] == ROOT,
        "the size of gamma does not matter to ReBased": max(moves["ReBased"][by] for by in SIZES) < ROUNDING,
        "it does to Based": min(moves["Based"][by] for by in SIZES) > FELT,
        "ReBased does not tell q from -q": moves["ReBased"]["-1"] < ROUNDING,
        "Based does": moves["Based"]["-1"] > FELT,
        "squares of coordinates are another kernel, of rank f": metrics["elementwise_apart"] > FELT
        and ranks == {"outer": f * (f + 1) // 2, "elementwise": f},
        "a first token without any weight gives a number": metrics["first_token"] is not None,
    }


def read(rows: Sequence[Row]) -> Finding:
    if not rows:
        return untested("no row of the kernels")
    by_row = [checks(row["metrics"]) for row in rows]
    held = {name: sum(one[name] for one in by_row) for name in by_row[0]}
    broken = [name for name, count in held.items() if count < len(rows)]
    sentence = (
        f"{len(held) - len(broken)} of {len(held)} identities hold on all {len(rows)} draws of q, k, gamma and beta"
    )
    lines = [(name, f"{count} of {len(rows)}") for name, count in held.items()]
    return Finding(
        Evidence(NO if broken else YES),
        sentence + (f"; broken: {'; '.join(broken)}" if broken else ""),
        [Number(f"identities that hold on every draw, of {len(held)}", None, len(held) - len(broken)), *numbers(rows)],
        f"keys of width {WIDTH}, float64, {len(rows)} draw{'s' * (len(rows) > 1)}",
        BROKEN if broken else HOLDS,
        [Table(("identity", "draws on which it holds"), lines, "what is claimed of the two kernels")],
        [chart(rows[0]["metrics"])],
    )


HOLDS = (
    "The kernels are what the papers write. Before normalisation a Based head gives one half or "
    "more to every token it has read, a ReBased head can give nothing; whether that matters for recall is asked by the "
    "claims after this one. A ReBased that squares every coordinate is another, weaker model."
)
BROKEN = "A kernel is not what its paper writes: read nothing else about it before this is explained."


def numbers(rows: Sequence[Row]) -> list[Number]:
    """Return the worst of all draws."""
    every = [row["metrics"] for row in rows]
    draws = f"{len(rows)} draws"
    worst = max(one["error"] for one in every)
    felt = max(max(one["moves"]["ReBased"][by] for by in SIZES) for one in every)
    based = min(min(one["moves"]["Based"][by] for by in SIZES) for one in every)
    return [
        Number(
            "least weight that Based can give a token, softmax has 0", "0.5", min(o["least"]["Based"] for o in every)
        ),
        Number("least weight that ReBased can give a token", "0", min(o["least"]["ReBased"] for o in every)),
        Number("largest |phi(q) . phi(k) - kernel|, float64", None, worst, of=draws),
        Number("largest change of ReBased's output by a gamma 0.1 or 10 times as large", None, felt, of=draws),
        Number("smallest change of Based's output by such a factor on q", None, based, of=draws),
    ]


def chart(metrics: Mapping[str, Any]) -> Chart:
    series = {name: list(zip(SCORES, values, strict=True)) for name, values in metrics["kappa"].items()}
    shown = {name: [point for point in points if point[1] <= TALLEST] for name, points in series.items()}
    caption = f"keys of width 1, k = 1; moved: ({MOVED[0]:g} s + {MOVED[1]:g})^2; cut at {TALLEST:g}"
    return Chart("weight of a token before normalisation", "s = q . k", "kappa(s)", shown, caption=caption)


CLAIM = Claim(
    name="kernels",
    number="",
    place=0,
    paper="rebased",
    statement="Both kernels are what their papers write: Based's never falls below one half, ReBased's reaches zero.",
    source="Based's kernel, softmax's exponential cut after three terms, never gives less than the paper's 0.5; "
    "ReBased's learned square can reach 0, and its shift beta says where. The papers give the widths of the features, "
    "273 or 153 and 256 or 136 for keys of width 16; the other identities follow from the formulas.",
    rule="yes if every identity of the two kernels holds on all draws, in float64, the two least weights among them; "
    "no if one does not. Exact: it needs no regime and no seeds",
    answers={YES: "Yes, with all eleven identities", NO: "No, an identity is broken"},
    change="One draw of q, k, gamma and beta on which an identity fails beyond rounding.",
    units=units,
    read=read,
)
