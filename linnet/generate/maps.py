"""A feature map as the native decoder takes it: numbers and arrays instead of a module.

    linnet_map (csrc/model.h) = how a head is prepared (norm and affine, projection, ...), then a fixed core

The formulas are those of linnet/feature_maps, computed in csrc/feature.h. A map of another class, for example one of
your own, has no native form: the torch engine runs it.
"""

from __future__ import annotations

from math import factorial
from typing import Any

import torch
from torch import Tensor

from .. import feature_maps as fm
from ..errors import BackendError
from ..feature_maps.core import _table
from ..native.decode import MONOMIALS, PREPARE
from ..native.gate import CPU, addresses, dense
from ..native.linear_attention import KINDS

FIELDS = ("prepare", "core", "D", "R", "F", "per_head", "norm", "square", "activation", "rows", "order")
ACTIVATIONS = {"exp": 1, "joint": 2, "halves": 3}  # of Hedgehog
NORMS = {"none": 0, "per_head": 1, "joint": 2}


def packed_map(phi: fm.FeatureMap, side: str) -> tuple[tuple[Any, ...], list[Tensor]]:
    """The 20 fields of linnet_map for `side` "q" or "k", and the tensors they point to."""
    how, tensors = _prepared(phi, side)
    how |= {"D": phi.head_dim, "F": phi.feature_dim}
    how.setdefault("R", phi.head_dim)
    how |= _core(phi, tensors)
    numbers = (how.get(name, 0) for name in FIELDS)
    pointers = addresses([tensors.get(name) for name in ("weight", "bias", "index")])
    doubles = (how.get(name, 0.0) for name in ("scale", "eps"))
    return (*numbers, *pointers, *doubles, *_quadratic(phi)), list(tensors.values())


def _prepared(phi: fm.FeatureMap, side: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    if isinstance(phi, fm.ReBased):
        if phi.norm != "layer" and phi.norm_scope != "none":
            raise BackendError(f"the native decoder does not know ReBased with norm {phi.norm!r}; use backend 'torch'")
        part = phi.q if side == "q" or phi.k is None else phi.k
        how: dict[str, Any] = {
            "prepare": PREPARE["norm"],
            "per_head": phi.affine == "per_head",
            "norm": NORMS[phi.norm_scope],
        }
        how |= {"square": phi.square == "elementwise", "eps": part.eps}
        return how, _tensors(weight=part.gamma, bias=part.beta)
    if isinstance(phi, (fm.Hedgehog, fm.T2R)):
        linear = phi.q if side == "q" or phi.k is None else phi.k
        rows = linear.weight.shape[1]
        how = {"prepare": PREPARE["project"], "per_head": True, "rows": rows, "R": rows}
        if isinstance(phi, fm.Hedgehog):
            how |= {"activation": ACTIVATIONS[phi.activation], "R": 2 * rows}
        return how, _tensors(weight=linear.weight.transpose(1, 2), bias=linear.bias)
    if isinstance(phi, (fm.Favor, fm.RandomFourier)):
        kind = "favor" if isinstance(phi, fm.Favor) else "fourier"
        how = {"prepare": PREPARE[kind], "rows": len(phi.projection), "R": phi.feature_dim, "scale": phi.scale}
        how["activation"] = isinstance(phi, fm.Favor) and phi.antithetic
        return how, _tensors(weight=phi.projection.T)
    if isinstance(phi, fm.DPFP):
        return {"prepare": PREPARE["dpfp"], "order": phi.nu, "R": phi.feature_dim}, {}
    if isinstance(phi, fm.TaylorFull):
        weights = torch.tensor([(phi.scale**p / factorial(p)) ** 0.5 for p in range(phi.order + 1)], device=CPU)
        return {"prepare": PREPARE["taylor_full"], "order": phi.order, "R": phi.feature_dim}, _tensors(weight=weights)
    if isinstance(phi, fm.SoftmaxFeatures):
        return {"prepare": PREPARE["softmax"]}, {}
    cls = type(phi)
    if cls.prepare_q is not fm.FeatureMap.prepare_q or cls.prepare_k is not fm.FeatureMap.prepare_k:
        raise BackendError(f"the native decoder does not know the feature map {cls.__name__}; use backend 'torch'")
    return {}, {}


def _core(phi: fm.FeatureMap, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """The core; monomials of a degree above 2 come as a table, which no map with other tensors has."""
    core = phi.core
    if core.kind != "polynomial" or len(core.coeffs) <= 3:
        return {"core": KINDS[core.kind]}
    if tensors:
        raise BackendError(f"the native decoder does not know {type(phi).__name__} of this degree; use backend 'torch'")
    degree, index, weight = len(core.coeffs) - 1, [], []
    for p, c in enumerate(core.coeffs):
        if c > 0:
            rows, times = _table(phi.head_dim, p, torch.float64, torch.device("cpu"))
            index.append(torch.nn.functional.pad(rows.T.reshape(len(times), p), (0, degree - p), value=-1))
            weight.append(times * c**0.5)
    tensors |= {"weight": torch.cat(weight).float(), "index": torch.cat(index).contiguous()}
    return {"core": MONOMIALS, "order": degree}


def _quadratic(phi: fm.FeatureMap) -> tuple[float, ...]:
    if phi.core.kind != "polynomial" or len(phi.core.coeffs) > 3:
        return (0.0,) * 4
    c0, c1, c2 = (*phi.core.coeffs, 0.0, 0.0)[:3]
    return c0**0.5, c1**0.5, c2**0.5, (2 * c2) ** 0.5


def _tensors(**named: Tensor | None) -> dict[str, Tensor]:
    return {name: dense(x.detach()).clone() for name, x in named.items() if x is not None}
