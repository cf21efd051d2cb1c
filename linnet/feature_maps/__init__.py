"""Feature maps: phi(q) . phi(k) in place of softmax's exp(q . k), one token at a time.

    Elu(64)(x)                                     a map is a module: [..., H, D] -> [..., H, F]
    resolve("elu", head_dim=64)                    used by ops for the name they are given
    build("rebased", head_dim=16, n_heads=4)       used by layers for the name in their configuration

`FEATURE_MAPS` lists them all. Every class takes `head_dim` first; those with parameters per head take `n_heads` next;
all other options are keywords.
"""

from __future__ import annotations

from inspect import signature
from typing import Any

from ..errors import unknown
from .base import FeatureMap as FeatureMap
from .core import Core as Core
from .dpfp import DPFP as DPFP
from .elementwise import Elu as Elu
from .elementwise import Exp as Exp
from .elementwise import Identity as Identity
from .elementwise import Relu as Relu
from .elementwise import SquaredRelu as SquaredRelu
from .hedgehog import Hedgehog as Hedgehog
from .polynomial import Polynomial as Polynomial
from .random import Favor as Favor
from .random import RandomFourier as RandomFourier
from .rebased import ReBased as ReBased
from .softmax import SoftmaxFeatures as SoftmaxFeatures
from .t2r import T2R as T2R
from .taylor import Taylor as Taylor
from .taylor import TaylorFull as TaylorFull
from .zero_floor import ZeroFloor as ZeroFloor

# Nothing learned, nothing random: a name and a width define these, so an op may build them itself.
PARAMETER_FREE: dict[str, type[FeatureMap]] = {
    "identity": Identity,
    "elu": Elu,
    "relu": Relu,
    "relu2": SquaredRelu,
    "exp": Exp,
    "polynomial": Polynomial,
    "taylor": Taylor,
    "based": Taylor,  # order 2, under the name of the paper
    "taylor_full": TaylorFull,
    "zero_floor": ZeroFloor,
    "dpfp": DPFP,
    "softmax_features": SoftmaxFeatures,
}

FEATURE_MAPS: dict[str, type[FeatureMap]] = PARAMETER_FREE | {
    "rebased": ReBased,
    "favor": Favor,
    "random_fourier": RandomFourier,
    "hedgehog": Hedgehog,
    "t2r": T2R,
}

# A plain dict, not lru_cache: torch.compile can trace it.
_resolved: dict[tuple[str, int], FeatureMap] = {}


def resolve(feature_map: str | FeatureMap | None, head_dim: int) -> FeatureMap:
    """Return the requested map for q and k of width `head_dim`.

    None: q and k are already mapped. A FeatureMap: itself, if its width matches. A name: that map with its defaults,
    built once; only for maps without parameters or randomness, which would be lost between calls.
    """
    if isinstance(feature_map, FeatureMap):
        return _check_head_dim(feature_map, head_dim)
    name = "identity" if feature_map is None else feature_map
    if not isinstance(name, str):
        raise ValueError(
            f"feature_map ({name!r}) must be a name, a FeatureMap object or None, not {type(name).__name__}"
        )
    if name not in FEATURE_MAPS:
        raise unknown("feature_map", name, FEATURE_MAPS)
    if name not in PARAMETER_FREE:
        raise ValueError(_build_it_once(name, head_dim))
    resolved = _resolved.get((name, head_dim))
    if resolved is None:
        resolved = _resolved[name, head_dim] = PARAMETER_FREE[name](head_dim)
    return resolved


def build(name: str, head_dim: int, n_heads: int = 1, **options: Any) -> FeatureMap:
    """Build a map by name: `FEATURE_MAPS[name](head_dim, n_heads, **options)`, with `n_heads` only if it takes it."""
    if name not in FEATURE_MAPS:
        raise unknown("feature_map", name, FEATURE_MAPS)
    cls = FEATURE_MAPS[name]
    accepted = list(signature(cls).parameters)
    for option in options:
        if option not in accepted:
            raise unknown(f"option of feature_map {name!r}:", option, accepted)
    if "n_heads" in accepted:
        options = {"n_heads": n_heads, **options}
    return cls(head_dim, **options)


def _check_head_dim(feature_map: FeatureMap, head_dim: int) -> FeatureMap:
    if feature_map.head_dim != head_dim:
        who = type(feature_map).__name__
        raise ValueError(
            f"feature_map {who} was built for head_dim {feature_map.head_dim} but q and k have width {head_dim}; "
            f"build it with {who}(head_dim={head_dim})"
        )
    return feature_map


def _build_it_once(name: str, head_dim: int) -> str:
    cls = FEATURE_MAPS[name]
    heads = ", n_heads=..." if "n_heads" in signature(cls).parameters else ""
    return (
        f"feature_map {name!r} has parameters or random draws that must outlive the call: build it once, "
        f"linnet.feature_maps.{cls.__name__}(head_dim={head_dim}{heads}), and pass the object"
    )
