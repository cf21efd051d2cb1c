"""Linear attention: every form, map and backend, whole, in pieces or by token, against tests/ops/reference.py."""

from __future__ import annotations

import copy
import random
from typing import Any

import torch
from torch import Tensor

import linnet
from linnet import feature_maps as maps
from linnet.native.library import info
from tests.fuzz import draws, measure
from tests.fuzz.measure import Values
from tests.fuzz.trial import Trial
from tests.ops import reference

NATIVE = info()["loaded"]
NAMES = [n for n in maps.FEATURE_MAPS if n != "based"]
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "polynomial": [{}, {"degree": 1}, {"degree": 3}, {"bias": 0.5}, {"degree": 1, "bias": 1.0}],
    "taylor": [{}, {"order": 1}, {"order": 3}],
    "taylor_full": [{}, {"order": 1}],
    "rebased": [*maps.rebased.ABLATIONS.values()],
    "favor": [{"num_features": 4}],
    "random_fourier": [{"num_features": 6}],
}
EPS = [0.0, 0.0, 1e-12, 1e-6, 1e-6, 1e-3, 1.0]
SCALES = [None, None, 1.0, 0.3, 2.0, -0.7]


def trial(rng: random.Random, g: torch.Generator) -> Trial:
    name = rng.choice(NAMES)
    dtype = rng.choice(draws.DTYPES)
    H, D, V = rng.choice([1, 2, 3]), rng.choice(draws.WIDTHS), rng.choice([*draws.WIDTHS, 33])
    D = min(D, 5) if name in ("taylor_full", "polynomial", "taylor") and rng.random() < 0.8 else D
    D = max(D, 2) if name == "rebased" else D  # one number alone has no deviation, only rounding
    options = rng.choice(OPTIONS.get(name, [{}]))
    D = min(D, 5) if options.get("degree", options.get("order", 0)) > 2 else D
    phi = maps.build(name, D, H, **options)
    _draw_parameters(phi, g, dtype)
    B, T, causal = rng.choice([1, 2, 3]), rng.choice(draws.LENGTHS), rng.random() < 0.8
    packed = rng.random() < 0.2
    offsets = draws.offsets(rng, T) if packed else None
    B = 1 if packed else B
    Tq = T if causal or packed else rng.choice(draws.LENGTHS)
    kind, mask = draws.padding(rng, B, T)
    form, backend = rng.choice(["auto", "parallel", "chunked", "recurrent"]), rng.choice(["auto", "torch", "native"])
    state = rng.choice(["none", "none", "given", "zeros"])
    state_dtype = rng.choice([torch.float32, torch.float64]) if dtype != torch.float64 else torch.float64
    rows = len(offsets) - 1 if offsets else B
    wide = torch.float64 if torch.float64 in (dtype, state_dtype if state != "none" else dtype) else torch.float32
    form, backend = _possible(form, backend, phi, dtype, wide)
    if backend != "torch" and NATIVE and 0 in (B, H, V):
        backend = "torch"
    step = causal and not packed and kind == "none" and rng.random() < 0.15
    cuts = [0, T] if packed or not causal else draws.cuts(rng, T)
    how = {
        "causal": causal,
        "normalize": rng.random() < 0.75,
        "scale": rng.choice(SCALES),
        "eps": rng.choice(EPS),
        "chunk_size": rng.choice([None, None, 1, 2, 3, 8, 16]),
        "form": form,
        "backend": backend,
    }
    size, zeros = rng.choice([0.1, 0.5, 1.0, 2.0]), rng.random() < 0.1
    inputs = {
        "q": draws.normal(g, dtype, B, Tq, H, D, size=size),
        "k": draws.normal(g, dtype, B, T, H, D, size=size),
        "v": draws.normal(g, dtype, B, T, H, V),
    }
    if rng.random() < 0.3:
        inputs |= {n: inputs[n].abs() for n in "qk"}
    if zeros and T:
        inputs["k"][:, rng.randrange(T)] = 0.0
    if state != "none":
        F = phi.feature_dim
        inputs["s0"] = draws.normal(g, torch.float32, rows, H, F, V, size=float(state == "given"))
        inputs["z0"] = draws.uniform(g, torch.float32, rows, H, F, high=float(state == "given"))
    words = {
        "op": "linear_attention",
        "map": name,
        **options,
        "dtype": dtype,
        "state": state,
        "state_dtype": state_dtype,
    }
    words |= {"sizes": f"B{B} Tq{Tq} T{T} H{H} D{D} V{V}", "padding": kind, "offsets": offsets, "size": size, **how}
    words |= {"step": step, "cuts": cuts}

    def op(x: Values) -> Values:
        past = linnet.State(x["s0"], x["z0"]) if "s0" in x else None
        if step:
            return _steps(x, past, phi, how)
        outs = []
        for at in draws.spans(cuts) if causal else [slice(None)]:
            part = None if mask is None else mask[:, at]
            q, k, v = (x[n][:, at] for n in "qkv") if causal else (x[n] for n in "qkv")
            given = {"mask": part, "cu_seqlens": offsets, "initial_state": past, "output_final_state": True}
            out, past = linnet.linear_attention(q, k, v, feature_map=phi, **given, **how)
            outs.append(out)
        assert past is not None
        return {"out": torch.cat(outs, 1), "s": past.s, "z": past.z}

    def truth(x: Values) -> Values:
        return _truth(x, copy.deepcopy(phi).double(), mask, offsets, how, rows)

    pad = None if mask is None else ~mask
    padded = {} if pad is None else dict.fromkeys("qkv" if causal else "kv", pad)
    return Trial(
        words, inputs, op, truth, dtype,
        dtypes={"s0": state_dtype, "z0": state_dtype}, padded=padded, silent=pad if causal else None,
        future=("k", "v", "q") if causal else (), offsets=offsets, twice=not zeros,  # elu has no second slope at 0
    )  # fmt: skip


def _draw_parameters(phi: Any, g: torch.Generator, dtype: torch.dtype) -> None:
    for p in phi.parameters():
        p.data = draws.normal(g, torch.bfloat16, *p.shape, size=0.3).to(torch.float32) + (0.5 if p.ndim < 3 else 0)
        p.requires_grad_(False)
    if hasattr(phi, "redraw") and type(phi).redraw is not maps.FeatureMap.redraw:
        phi.redraw(g)


def _possible(form: str, backend: str, phi: Any, dtype: torch.dtype, wide: torch.dtype) -> tuple[str, str]:
    """What is asked for by name must exist: the native library has one form, and not every map and dtype."""
    if backend != "native":
        return form, backend
    high = phi.core.kind == "polynomial" and len(phi.core.coeffs) > 3
    if not NATIVE or high or dtype == torch.float64 or wide == torch.float64:
        return form, "torch"
    return rng_form(form), backend


def rng_form(form: str) -> str:
    return form if form in ("auto", "chunked") else "chunked"


def _steps(x: Values, past: Any, phi: Any, how: dict[str, Any]) -> Values:
    outs = []
    how = {n: how[n] for n in ("normalize", "scale", "eps", "backend")}
    how["backend"] = "auto" if how["backend"] == "native" else how["backend"]
    for t in range(x["q"].shape[1]):
        out, past = linnet.linear_attention_step(*(x[n][:, t] for n in "qkv"), past, feature_map=phi, **how)
        outs.append(out)
    if past is None or not outs:
        out, past = linnet.linear_attention(
            x["q"], x["k"], x["v"], feature_map=phi, initial_state=past, output_final_state=True
        )
        return {"out": out, "s": past.s, "z": past.z}
    return {"out": torch.stack(outs, 1), "s": past.s, "z": past.z}


def _truth(
    x: Values, phi: Any, mask: Tensor | None, offsets: list[int] | None, how: dict[str, Any], rows: int
) -> Values:
    q, k, v = (x[n] for n in "qkv")
    H, V, F = q.shape[2], v.shape[3], phi.feature_dim
    if mask is not None:
        real = mask[..., None, None]
        k, v = k * real, v * real
        q = q * real if how["causal"] else q
    mapped = [reference.features(phi.core.kind, phi.core.coeffs, y) for y in (phi.prepare_q(q), phi.prepare_k(k))]
    s0 = x.get("s0", torch.zeros(rows, H, F, V, dtype=torch.float64))
    z0 = x.get("z0", torch.zeros(rows, H, F, dtype=torch.float64))
    rule = {"causal": how["causal"], "normalize": how["normalize"], "eps": how["eps"]}
    rule["scale"] = 1.0 if how["scale"] is None else how["scale"]

    def attend(v: Tensor, s0: Tensor, z0: Tensor, **how: Any) -> tuple[Tensor, Tensor, Tensor]:
        phi_q, phi_k = (y * 1.0 for y in mapped)  # rounded anew by each call, when measure.py rounds
        if offsets is not None:
            return reference.packed(phi_q, phi_k, v, s0, z0, offsets, mask=mask, **how)
        return reference.attention(phi_q, phi_k, v, s0, z0, mask=mask, **how)

    if not (measure.rounding and rule["normalize"]):
        out, s, z = attend(v, s0, z0, **rule)
        return {"out": out, "s": s, "z": z}
    # A state has one sum for numerators and one for denominators, each with rounding errors of its own; the dense
    # equation takes both from the same scores, where they cancel.
    num, s, z = attend(v, s0, z0, **rule | {"normalize": False})
    den, _, _ = attend(torch.ones_like(v[..., :1]), z0[..., None], z0, **rule | {"normalize": False})
    silent = ~mask[..., None, None] if mask is not None and rule["causal"] else torch.zeros((), dtype=torch.bool)
    return {"out": num / (den + rule["eps"]).masked_fill(silent, 1.0), "s": s, "z": z}
