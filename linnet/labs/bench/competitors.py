"""The competitors of `linnet bench ops`: the same inputs and semantics for each, in its fastest layout.

    linnet [B,T,H,D]    everyone else contiguous [B,H,T,D]    all: causal, float32, feature map and denominator included

A competitor names the reference it must agree with, its estimated cost (so that hopeless cases can be left out), or why
it cannot run here. Third-party libraries run only if they are installed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ...feature_maps import FeatureMap, Polynomial, ReBased, resolve
from ...native import library
from ...ops import linear_attention
from . import per_token
from .sizes import BOTH, Case
from .torch_forms import Map, batched, cumsum, elu_plus_one, loop, normalised

Run = Callable[[Tensor, Tensor, Tensor], Tensor]
OURS, OURS_TORCH, SDPA = "linnet", "linnet torch", "sdpa"
PLAIN_TORCH = "torch "  # names with this prefix, and linnet's torch form, compete for the best plain torch form


@dataclass(frozen=True)
class Competitor:
    name: str
    about: str
    run: Run | None  # None: it cannot run here, for the reason in `about`
    layout: str = "bhtd"
    kernel: str | None = None  # of the reference; None: as in the case
    flops: Callable[[Case, str], float] | None = None  # if they grow faster than T
    bytes: Callable[[Case, str], float] | None = None  # if they exceed a few times the inputs
    head_dim: int | None = None  # of elu, if it differs from the width of the case's map

    def case(self, case: Case) -> Case:
        return case if self.head_dim is None else replace(case, head_dim=self.head_dim, feature_map="elu")


def for_elu() -> list[Competitor]:
    maps = (elu_plus_one, elu_plus_one)
    return [
        *ours("elu"),
        Competitor(SDPA, "torch scaled_dot_product_attention, softmax", _sdpa, kernel="softmax", flops=_sdpa_flops),
        *chunked_torch(maps),
        Competitor("cumsum", "every token's state materialised", partial(cumsum, maps=maps), bytes=_cumsum_bytes),
        _compiled("per-token", per_token.its_flags()),
        _compiled("per-token native", per_token.TUNED),
        _fast_transformers(),
        _fla(),
    ]


def ours(feature_map: str | FeatureMap) -> list[Competitor]:
    """Return the public op on each of its backends."""
    competitors = []
    for name, backend in ((OURS, "native"), (OURS_TORCH, "torch")):
        about = f"linnet.linear_attention, backend={backend!r}"
        run: Run | None = partial(_ours, feature_map=feature_map, backend=backend)
        if backend == "native" and library.library() is None:
            run, about = None, library.reason() or "no native library"
        competitors.append(Competitor(name, about, run, layout="bthd"))
    return competitors


def chunked_torch(maps: tuple[Map, Map]) -> list[Competitor]:
    return [
        *(
            Competitor(f"torch batched {c}", f"all chunks of {c} batched", partial(batched, chunk=c, maps=maps))
            for c in (64, 128)
        ),
        Competitor("torch loop 128", "chunks of 128 in a loop", partial(loop, chunk=128, maps=maps)),
    ]


def for_quadratic(case: Case) -> list[Competitor]:
    """Return the case's quadratic map fused, with its features materialised in torch, and elu+1 at width 64."""
    phi = quadratic_map(case)

    def mapped(x: Tensor, prepare: Map) -> Tensor:  # `prepare` expects [B,T,H,D]
        return phi.core.features(prepare(x.transpose(1, 2)).transpose(1, 2))

    maps = partial(mapped, prepare=phi.prepare_q), partial(mapped, prepare=phi.prepare_k)
    elu = replace(ours("elu")[0], name="linnet elu 64", head_dim=64)
    return [*ours(phi), *chunked_torch(maps), elu]


def quadratic_map(case: Case) -> FeatureMap:
    """Return taylor; rebased with its norm and affine part; or square, the kernel of rebased alone."""
    if case.feature_map == "taylor":
        return resolve("taylor", case.head_dim)
    if case.feature_map == "rebased":
        return ReBased(case.head_dim, case.heads).requires_grad_(False)
    return Polynomial(case.head_dim, degree=2)


def _ours(q: Tensor, k: Tensor, v: Tensor, *, feature_map: str | FeatureMap, backend: str) -> Tensor:
    return linear_attention(q, k, v, feature_map=feature_map, backend=backend)[0]


def _sdpa(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scaled_dot_product_attention(q, k, v, is_causal=True)


def _sdpa_flops(case: Case, mode: str) -> float:
    forward = float(case.tokens) * case.length * (case.head_dim + case.value_dim)  # the causal half
    return forward * (3.5 if mode == BOTH else 1.0)


def _cumsum_bytes(case: Case, mode: str) -> float:
    states = 4.0 * case.tokens * case.feature_dim * case.value_dim
    return states * (4 if mode == BOTH else 2)


def _compiled(name: str, flags: list[str]) -> Competitor:
    """Return the reference library's algorithm, reimplemented in per_token.c."""
    try:
        product = per_token.causal_product(flags)
    except per_token.Unavailable as error:
        return Competitor(name, str(error), None)
    about = f"one token at a time in C, {per_token.compiler()[0]} {' '.join(flags)}"
    return Competitor(name, about, partial(normalised, product))


def _fast_transformers() -> Competitor:
    name = "fast_transformers"
    if find_spec(name) is None:
        return Competitor(name, "not installed", None)
    from fast_transformers.causal_product import causal_dot_product

    return Competitor(name, "its CPU kernel; map and denominator in torch", partial(normalised, causal_dot_product))


def _fla() -> Competitor:
    if find_spec("fla") is None:
        return Competitor("fla", "not installed", None)
    from fla.ops.linear_attn.naive import naive_chunk_linear_attn  # its Triton kernels do not run on CPU

    def product(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        tokens_first = (x.transpose(1, 2) for x in (q, k, v))
        return torch.transpose(naive_chunk_linear_attn(*tokens_first, scale=1.0, normalize=False), 1, 2)

    return Competitor("fla", "its torch chunk form, T a multiple of 64", partial(normalised, product))
