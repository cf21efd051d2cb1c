"""Ops on one token or the last few: convolutions, norms, MLP, projection with rotation, cross entropy."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import torch

from linnet.ops.conv import naive as conv_naive
from linnet.ops.conv.base_conv import base_conv
from linnet.ops.conv.short_conv import short_conv, short_conv_step
from linnet.ops.fused import naive
from linnet.ops.fused.cross_entropy import linear_cross_entropy
from linnet.ops.fused.mlp import mlp
from linnet.ops.fused.norm import layer_norm, rms_norm
from linnet.ops.fused.projection import project
from linnet.ops.state import ConvState
from tests.fuzz import draws
from tests.fuzz.measure import Values
from tests.fuzz.trial import Trial

WIDTHS = [1, 2, 3, 8, 17, 24, 40]
DTYPES = [torch.float64, torch.float32, torch.float32, torch.float32]


def conv_trial(rng: random.Random, g: torch.Generator) -> Trial:
    dtype, E, K = rng.choice(draws.DTYPES), rng.choice(WIDTHS), rng.choice([1, 2, 3, 4, 7])
    B, T = rng.choice([1, 2, 3]), rng.choice([*draws.LENGTHS, 100, 300])
    packed = rng.random() < 0.25
    offsets, B = (draws.offsets(rng, T), 1) if packed else (None, B)
    kind, mask = draws.padding(rng, B, T)
    rows = len(offsets) - 1 if offsets else B
    inputs = {"x": draws.normal(g, dtype, B, T, E), "weight": draws.normal(g, dtype, E, K)}
    inputs |= {"bias": draws.normal(g, dtype, E)} if rng.random() < 0.6 else {}
    inputs |= {"s0": draws.normal(g, dtype, rows, K - 1, E)} if rng.random() < 0.5 else {}
    cuts, step = draws.cuts(rng, T) if not packed else [0, T], not packed and mask is None and T and rng.random() < 0.15
    words = {"op": "short_conv", "dtype": dtype, "sizes": f"B{B} T{T} E{E} K{K}", "padding": kind, "offsets": offsets}
    words |= {"cuts": cuts, "step": bool(step)}

    def op(x: Values) -> Values:
        past, outs = ConvState(x["s0"]) if "s0" in x else None, []
        how = (x["weight"], x.get("bias"))
        for at in draws.spans([*range(T + 1)] if step else cuts):
            if step:
                out, past = short_conv_step(x["x"][:, at.start], *how, past)
                outs.append(out[:, None])
                continue
            part = None if mask is None else mask[:, at]
            given = {"mask": part, "cu_seqlens": offsets, "initial_state": past, "output_final_state": True}
            out, past = short_conv(x["x"][:, at], *how, **given)
            outs.append(out)
        assert past is not None
        return {"out": torch.cat(outs, 1), "s": past.x}

    def truth(x: Values) -> Values:
        past = x.get("s0", torch.zeros(rows, K - 1, E, dtype=torch.float64))
        outs, ends = [], []
        for row, (lo, hi) in enumerate(pairwise(offsets)) if offsets else [(slice(None), (0, T))]:
            part = None if mask is None else mask[:, lo:hi]
            at = slice(row, row + 1) if offsets else row
            out, end = conv_naive.short_conv(x["x"][:, lo:hi], x["weight"], x.get("bias"), past[at], part)
            outs.append(out)
            ends.append(end)
        return {"out": torch.cat(outs, 1), "s": torch.cat(ends)}

    pad = None if mask is None else ~mask
    padded = {} if pad is None else {"x": pad}
    return Trial(words, inputs, op, truth, dtype, padded=padded, silent=pad, future=("x",), offsets=offsets)


def base_trial(rng: random.Random, g: torch.Generator) -> Trial:
    dtype, E, K = rng.choice(DTYPES), rng.choice(WIDTHS), rng.choice([1, 3, 4])
    B, T = rng.choice([1, 2, 5]), rng.choice([1, 2, 17, 40, 150])
    shapes = {"x": (B, T, E), "weight": (E, K), "bias": (E,), "gate_weight": (E, E), "gate_bias": (E,)}

    def truth(x: Values) -> Values:
        return {"out": conv_naive.base_conv(*x.values())}

    return _trial(
        "base_conv", shapes, dtype, g, lambda x: {"out": base_conv(*x.values())}, truth, {"K": K}, future=("x",)
    )


def norm_trial(rng: random.Random, g: torch.Generator) -> Trial:
    dtype, N, rms = rng.choice(DTYPES), rng.choice([*WIDTHS, 64, 129]), rng.random() < 0.5
    eps = rng.choice([1e-5, 1e-5, 1e-3, 1e-12, 0.0])
    if N == 1 and not rms:  # torch's gradient of x - mean = 0 is the rounding of terms that eps^-1.5 makes large
        eps = max(eps, 1e-5)
    shapes = {"x": (*_tokens(rng), N)} | ({"weight": (N,)} if rng.random() < 0.7 else {})
    shapes |= {"bias": (N,)} if not rms and "weight" in shapes and rng.random() < 0.7 else {}
    shift = rng.choice([0.0, 0.0, 10.0]) if N > 1 else 0.0  # one number alone has no deviation, only rounding

    def op(x: Values) -> Values:
        moved = x["x"] + shift
        return {
            "out": rms_norm(moved, x.get("weight"), eps)
            if rms
            else layer_norm(moved, x.get("weight"), x.get("bias"), eps)
        }

    def truth(x: Values) -> Values:
        moved, weight = x["x"] + shift, x.get("weight")
        norm = naive.rms_norm(moved, weight, eps) if rms else naive.layer_norm(moved, weight, x.get("bias"), eps)
        return {"out": norm}

    return _trial("norm", shapes, dtype, g, op, truth, {"rms": rms, "eps": eps, "shift": shift})


def mlp_trial(rng: random.Random, g: torch.Generator) -> Trial:
    dtype, E, N, kind = (
        rng.choice(DTYPES),
        rng.choice(WIDTHS),
        rng.choice(WIDTHS),
        rng.choice(["relu", "gelu", "swiglu"]),
    )
    wide = 2 * N if kind == "swiglu" else N
    bias = rng.random() < 0.5
    shapes = {"x": (*_tokens(rng), E), "up": (wide, E), "down": (E, N)}
    shapes |= {"b1": (wide,), "b2": (E,)} if bias else {}

    def truth(x: Values) -> Values:
        return {"out": naive.mlp(x["x"], x["up"], x.get("b1"), x["down"], x.get("b2"), kind)}

    def op(x: Values) -> Values:
        return {"out": mlp(x["x"], x["up"], x.get("b1"), x["down"], x.get("b2"), kind)}

    return _trial("mlp", shapes, dtype, g, op, truth, {"kind": kind}, twice=kind != "relu")


def project_trial(rng: random.Random, g: torch.Generator) -> Trial:
    dtype, E, D = rng.choice(DTYPES), rng.choice(WIDTHS), rng.choice([2, 4, 8, 12])
    B, T = rng.choice([1, 3]), rng.choice([1, 2, 17, 70, 200])
    widths = (D * rng.choice([1, 2]), D * rng.choice([1, 3]), rng.choice([1, 5, 16]))
    shapes = {"x": (B, T, E), "weight": (sum(widths), E)} | ({"bias": (sum(widths),)} if rng.random() < 0.5 else {})
    angle = torch.rand(T, D // 2, generator=g, dtype=torch.float64) * 6
    turned = rng.random() < 0.7

    table = (angle.cos().float(), angle.sin().float()) if turned else None

    def truth(x: Values) -> Values:
        q, k, v = naive.project(x["x"], x["weight"], x.get("bias"), widths, table)
        return {"q": q, "k": k, "out": v}

    def op(x: Values) -> Values:
        q, k, v = project(x["x"], x["weight"], x.get("bias"), widths, table)
        return {"q": q, "k": k, "out": v}

    return _trial("project", shapes, dtype, g, op, truth, {"widths": widths, "turned": turned})


def entropy_trial(rng: random.Random, g: torch.Generator) -> Trial:
    dtype, E, N = rng.choice(DTYPES), rng.choice(WIDTHS), rng.choice([1, 2, 3, 17, 100])
    shapes = {"x": (*_tokens(rng), E), "weight": (N, E)} | ({"bias": (N,)} if rng.random() < 0.5 else {})
    share = rng.choice([0.0, 0.1, 0.5, 1.0])
    drawn = torch.rand(shapes["x"][:-1], generator=g)
    targets = torch.where(drawn < share, (drawn * 1e6).long() % N, -100)

    def truth(x: Values) -> Values:
        return {"out": naive.linear_cross_entropy(x["x"], x["weight"], x.get("bias"), targets)}

    def op(x: Values) -> Values:
        return {"out": linear_cross_entropy(x["x"], x["weight"], x.get("bias"), targets)[0]}

    return _trial("cross_entropy", shapes, dtype, g, op, truth, {"share": share})


def _tokens(rng: random.Random) -> tuple[int, ...]:
    return rng.choice([(1,), (2, 3), (37,), (3, 67), (2, 3, 50), (300,)])


def _trial(
    name: str, shapes: dict[str, tuple[int, ...]], dtype: torch.dtype, g: torch.Generator, op: Any, truth: Any,
    words: dict[str, Any], **how: Any,
) -> Trial:  # fmt: skip
    inputs = {n: draws.normal(g, dtype, *shape, size=1.0 if n == "x" else 0.5) for n, shape in shapes.items()}
    sizes = " ".join(f"{n}{[*shape]}" for n, shape in shapes.items())
    return Trial({"op": name, "dtype": dtype, "sizes": sizes, **words}, inputs, op, truth, dtype, **how)
