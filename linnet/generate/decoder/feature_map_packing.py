"""Pack feature maps for the native decoder: structs of numbers and arrays instead of modules.

    Map (native/decode.py) = preparation of a head (norm and affine, projection, ...), then a fixed core

The formulas are those of linnet/feature_maps, computed in csrc/feature.h. PREPARED has a function for each class with a
preparation. Another class with one, such as a user's, has no native form and runs in torch.
"""

from __future__ import annotations

from collections.abc import Callable
from math import factorial
from typing import Any

import torch
from torch import Tensor

from ... import feature_maps as fm
from ...errors import BackendError
from ...feature_maps.core import _table
from ...native.decode import MONOMIALS, PREPARE
from ...native.gate import CPU, address, dense
from ...native.linear_attention import KINDS
from ...native.structs import Map

ACTIVATIONS = {"exp": 1, "joint": 2, "halves": 3}  # of Hedgehog
NORMS = {"none": 0, "per_head": 1, "joint": 2}

Fields = dict[str, Any]  # of Map; a tensor becomes its address


def pack_map(phi: fm.FeatureMap, side: str) -> tuple[Map, list[Tensor]]:
    """Return the struct of a map for `side` "q" or "k", and the tensors it points to."""
    fields = {"D": phi.head_dim, "R": phi.head_dim, "F": phi.feature_dim, **_prepared(phi, side)}
    fields |= _core(phi, learned="weight" in fields)
    tensors = {name: x for name, x in fields.items() if isinstance(x, Tensor)}
    return Map(**(fields | {name: address(x) for name, x in tensors.items()})), list(tensors.values())


def _prepared(phi: fm.FeatureMap, side: str) -> Fields:
    cls = type(phi)
    if cls in PREPARED:
        return PREPARED[cls](phi, side)
    if cls.prepare_q is not fm.FeatureMap.prepare_q or cls.prepare_k is not fm.FeatureMap.prepare_k:
        raise BackendError(f"the native decoder does not know the feature map {cls.__name__}; use backend 'torch'")
    return {}


def _rebased(phi: Any, side: str) -> Fields:
    if phi.norm != "layer" and phi.norm_scope != "none":
        raise BackendError(f"the native decoder does not know ReBased with norm {phi.norm!r}; use backend 'torch'")
    part = _side(phi, side)
    how = {"per_head": phi.affine == "per_head", "norm": NORMS[phi.norm_scope], "square": phi.square == "elementwise"}
    return {"prepare": PREPARE["norm"], **how, "eps": part.eps, **_copies(weight=part.gamma, bias=part.beta)}


def _projection(phi: Any, side: str) -> Fields:
    linear = _side(phi, side)
    rows = linear.weight.shape[1]
    tensors = _copies(weight=linear.weight.transpose(1, 2), bias=linear.bias)
    return {"prepare": PREPARE["project"], "per_head": True, "rows": rows, "R": rows, **tensors}


def _hedgehog(phi: Any, side: str) -> Fields:
    fields = _projection(phi, side)
    return fields | {"activation": ACTIVATIONS[phi.activation], "R": 2 * fields["rows"]}


def _random(phi: Any, side: str) -> Fields:
    how = {"rows": len(phi.projection), "R": phi.feature_dim, "scale": phi.scale}
    return {"prepare": PREPARE["fourier"], **how, **_copies(weight=phi.projection.T)}


def _favor(phi: Any, side: str) -> Fields:
    return _random(phi, side) | {"prepare": PREPARE["favor"], "activation": phi.antithetic}


def _dpfp(phi: Any, side: str) -> Fields:
    return {"prepare": PREPARE["dpfp"], "order": phi.nu, "R": phi.feature_dim}


def _taylor_full(phi: Any, side: str) -> Fields:
    weights = torch.tensor([(phi.scale**p / factorial(p)) ** 0.5 for p in range(phi.order + 1)], device=CPU)
    return {"prepare": PREPARE["taylor_full"], "order": phi.order, "R": phi.feature_dim, **_copies(weight=weights)}


def _softmax(phi: Any, side: str) -> Fields:
    return {"prepare": PREPARE["softmax"]}


PREPARED: dict[type[fm.FeatureMap], Callable[[Any, str], Fields]] = {
    fm.ReBased: _rebased,
    fm.Hedgehog: _hedgehog,
    fm.T2R: _projection,
    fm.Favor: _favor,
    fm.RandomFourier: _random,
    fm.DPFP: _dpfp,
    fm.TaylorFull: _taylor_full,
    fm.SoftmaxFeatures: _softmax,
}


def _core(phi: fm.FeatureMap, *, learned: bool) -> Fields:
    """Return the fields of the core; monomials of degree above 2 are a table in the field of learned weights."""
    core = phi.core
    if core.kind != "polynomial":
        return {"core": KINDS[core.kind]}
    if len(core.coeffs) <= 3:
        c0, c1, c2 = (*core.coeffs, 0.0, 0.0)[:3]
        return {"core": KINDS[core.kind], "w0": c0**0.5, "w1": c1**0.5, "w_diag": c2**0.5, "w_off": (2 * c2) ** 0.5}
    if learned:
        raise BackendError(f"the native decoder does not know {type(phi).__name__} of this degree; use backend 'torch'")
    degree, index, weight = len(core.coeffs) - 1, [], []
    for p, c in enumerate(core.coeffs):
        if c > 0:
            rows, times = _table(phi.head_dim, p, torch.float64, torch.device("cpu"))
            index.append(torch.nn.functional.pad(rows.T.reshape(len(times), p), (0, degree - p), value=-1))
            weight.append(times * c**0.5)
    table = {"weight": torch.cat(weight).float(), "index": torch.cat(index).contiguous()}
    return {"core": MONOMIALS, "order": degree, **table}


def _side(phi: Any, side: str) -> Any:
    """Return the module for queries or keys; a map that ties them has no `k`."""
    return phi.q if side == "q" or phi.k is None else phi.k


def _copies(**named: Tensor | None) -> dict[str, Tensor]:
    return {name: dense(x.detach()).clone() for name, x in named.items() if x is not None}
