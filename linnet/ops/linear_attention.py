"""Linear attention, the public op: check the arguments, map q and k, choose a form and a back end, run it.

    out_t = sum_j scale phi(q_t).phi(k_j) v_j / (sum_j scale phi(q_t).phi(k_j) + eps),   j <= t when causal

Katharopoulos et al. 2020, arXiv:2006.16236. One meaning whatever the form, back end, padding, packing or split.
B batch, T time, H heads, D width, F features, V values:  q, k [B,T,H,D]   v, out [B,T,H,V]   s [B,H,F,V]   z [B,H,F]
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite
from typing import Any

import torch
from torch import Tensor

from ..feature_maps import FeatureMap, resolve
from ..native import linear_attention as native
from .checks import WIDE, check_cu_seqlens, check_mask, check_qkv, check_step, widened
from .chunks import CHUNK, Batch, Rule
from .dispatch import check_names, choose
from .forms import FORMS
from .fused import attend, by_sequence, empty, full_precision, needs_graph
from .state import State, check_state


def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    feature_map: str | FeatureMap | None = "elu",
    causal: bool = True,
    normalize: bool = True,
    scale: float | None = None,
    eps: float = 1e-6,
    initial_state: State | None = None,
    output_final_state: bool = False,
    mask: Tensor | None = None,
    cu_seqlens: Tensor | Sequence[int] | None = None,
    chunk_size: int | None = None,
    form: str = "auto",
    backend: str = "auto",
) -> tuple[Tensor, State | None]:
    """Attention with the kernel phi(q).phi(k), in time and memory linear in T.

    Args:
        q, k, v: [B,T,H,D], [B,Tk,H,D], [B,Tk,H,V], one floating dtype; Tk = T when causal.
        feature_map: a name, a FeatureMap, or None when q and k are mapped already.
        causal: token t sees tokens up to and including t; False: every query sees every key.
        normalize: divide by the sum of the scores plus `eps`.
        scale: factor on the scores; None means 1.
        initial_state: what came before, from an earlier call; never altered. Packed batches have one row per sequence.
            One in half precision is widened to float32.
        output_final_state: also return the state after the last token.
        mask: [B,Tk] bool, True = real token. Padding changes neither outputs, state nor gradients; its own output is 0
            when causal. Without `causal` the mask is about keys, and every query is answered.
        cu_seqlens: [S+1] offsets of S sequences packed in one row (B = 1), from 0 to T; sequences may be empty.
        chunk_size: tokens per chunk of the torch form; changes the speed, not the answer.
        form: "auto", "parallel", "chunked" or "recurrent".
        backend: "auto", "native" or "torch"; `linnet.explain_dispatch` says what "auto" means here.

    Returns:
        out [B,T,H,V] in the dtype of v, and the State (float32, or float64 if anything given is) or None.

    Raises:
        ValueError, StateError, BackendError: an argument that does not fit, in one sentence.

    When causal, no output depends on a later token, NaN and infinity included. For those the exceptions are gradients
    (a call with a non-finite number in a real token may have no finite gradient at all), the parallel form inside
    torch.compile, and devices other than the cpu, where such a number can reach up to a chunk of earlier tokens.
    """
    if not _usual(q, k, v, 4):
        check_qkv(q, k, v, causal)
    phi = resolve(feature_map, q.shape[3])
    rows, offsets = _packing(q, k, cu_seqlens)
    if mask is not None:
        check_mask(mask, k.shape[0], k.shape[1], k.device)
    s0 = z0 = None
    if initial_state is not None:
        s0, z0 = _checked(initial_state, rows, q, v, phi)
    rule = Rule(phi.core, causal, normalize, *_numbers(scale, eps, chunk_size))
    with full_precision(q):
        b = _prepared(phi, Batch(q, k, v, mask, s0, z0), causal)
        out, s, z = _run(b, offsets, rule, form, backend, output_final_state)
    return out, State(s, z) if output_final_state else None


def linear_attention_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    state: State | None = None,
    *,
    feature_map: str | FeatureMap | None = "elu",
    normalize: bool = True,
    scale: float | None = None,
    eps: float = 1e-6,
    backend: str = "auto",
) -> tuple[Tensor, State]:
    """One token: q, k [B,H,D], v [B,H,V] and the state so far -> out [B,H,V] and the new state; the old one is kept.

    The same numbers as `linear_attention` on the whole sequence. Over more than 100,000 steps a float32 state gathers
    rounding of its own; `state.to(dtype=torch.float64)` keeps an endless stream exact at twice the memory.
    """
    if not _usual(q, k, v, 3):
        check_step(q, k, v)
    phi = resolve(feature_map, q.shape[2])
    s0, z0 = (None, None) if state is None else _checked(state, q.shape[0], q, v, phi)
    rule = Rule(phi.core, True, normalize, *_numbers(scale, eps, None))
    with full_precision(q):
        b = _prepared(phi, Batch(q, k, v, None, s0, z0), True)
        if not torch.compiler.is_compiling() and not needs_graph(b):
            _, chosen, _ = choose("recurrent", backend, rule.core, 1, q.dtype, b.dtype, q.device.type, True)
            if chosen == "native" and empty(b):
                backend = "torch"
            elif chosen == "native":
                how = (rule.core.kind, rule.core.coeffs, normalize, rule.scale, rule.eps)
                out, s, z = native.step(b.q, b.k, v, s0, z0, *how)
                return out, State(s, z)
        b = b._replace(q=b.q[:, None], k=b.k[:, None], v=v[:, None])
        out, s, z = _run(b, None, rule, "recurrent", backend, True)
    return out[:, 0], State(s, z)


def state_bytes(
    length: int, *, heads: int, feature_dim: int, value_dim: int, dtype: torch.dtype = torch.float32
) -> int:
    """Bytes of state per sequence: H F (V + 1) numbers, whatever the length; float32 unless `dtype` (of q) is wider."""
    return heads * feature_dim * (value_dim + 1) * max(dtype.itemsize, torch.float32.itemsize)


def _run(b: Batch, cu_seqlens: Tensor | None, rule: Rule, form: str, backend: str, need_state: bool) -> tuple[Any, ...]:
    """out, s, z by the form and on the back end that `choose` picks; the operator picks for itself when compiled."""
    if torch.compiler.is_compiling() and (form in ("auto", "chunked") or (form == "recurrent" and b.q.shape[1] == 1)):
        check_names(form, backend)
        form = "chunked"
    else:
        form, backend, _ = choose(form, backend, rule.core, b.q.shape[1], b.q.dtype, b.dtype, b.q.device.type)
    if form == "chunked" or backend == "native":
        out, _, s, z = attend(b, cu_seqlens, rule, backend, need_state)
    else:
        out, _, s, z = by_sequence(FORMS[form], b, cu_seqlens, rule)
    return out, s, z


def _prepared(phi: FeatureMap, b: Batch, causal: bool) -> Batch:
    """q and k through the learned or random half of the map, which must not see what stands in the padding."""
    cls = type(phi)
    if cls.prepare_q is FeatureMap.prepare_q and cls.prepare_k is FeatureMap.prepare_k:
        if phi.core.feature_dim(phi.head_dim) != phi.feature_dim:
            raise _unfit(phi, b, b)
        return b
    q, k = b.q, b.k
    if b.mask is not None:
        pad = b.mask.logical_not()[..., None, None]
        q, k = q.masked_fill(pad, 0.0) if causal else q, k.masked_fill(pad, 0.0)
    mapped = b._replace(q=phi.prepare_q(q), k=phi.prepare_k(k))
    *axes, width = mapped.q.shape
    fits = axes == [*q.shape[:-1]] and mapped.k.shape == (*k.shape[:-1], width)
    if not (fits and mapped.q.device == mapped.k.device == q.device and phi.core.feature_dim(width) == phi.feature_dim):
        raise _unfit(phi, b, mapped)
    return mapped


def _unfit(phi: FeatureMap, given: Batch, mapped: Batch) -> ValueError:
    """For a map that breaks its word on widths: a kernel would read beside the tensors."""
    before, after = (f"q {list(b.q.shape)} and k {list(b.k.shape)} on {b.q.device}" for b in (given, mapped))
    wanted = f"the same axes, and one width that core {phi.core.kind!r} turns into feature_dim = {phi.feature_dim}"
    who = f"feature_map {type(phi).__name__} prepares {after} from {before}"
    return ValueError(f"{who}; accepted: {wanted}; give FeatureMap.__init__ the feature_dim that it has")


def _packing(q: Tensor, k: Tensor, cu_seqlens: Tensor | Sequence[int] | None) -> tuple[int, Tensor | None]:
    """How many rows the state has, and the offsets as a long tensor."""
    if cu_seqlens is None:
        return q.shape[0], None
    if q.shape[1] != k.shape[1]:
        raise ValueError(
            f"cu_seqlens packs q and k alike, but q has {q.shape[1]} tokens and k {k.shape[1]}; "
            "call once per sequence for cross attention"
        )
    if not torch.compiler.is_compiling():  # a graph cannot look at values: there the operator checks them when it runs
        check_cu_seqlens(cu_seqlens, q.shape[1], q.shape[0])
    offsets = torch.as_tensor(cu_seqlens, dtype=torch.int64).cpu().contiguous()
    return offsets.shape[0] - 1, offsets


def _numbers(scale: float | None, eps: float, chunk_size: int | None) -> tuple[float, float, int]:
    if scale is None:
        scale = 1.0
    elif isinstance(scale, bool) or not isinstance(scale, (int, float)) or not isfinite(scale):
        raise ValueError(f"scale is {scale!r}; accepted: a finite number, or None for 1")
    if isinstance(eps, bool) or not isinstance(eps, (int, float)) or not 0 <= eps < inf:
        raise ValueError(f"eps is {eps!r}; accepted: a finite number >= 0")
    if chunk_size is None:
        chunk_size = CHUNK
    elif isinstance(chunk_size, bool) or not isinstance(chunk_size, int) or chunk_size < 1:
        raise ValueError(f"chunk_size is {chunk_size!r}; accepted: an integer >= 1, or None for {CHUNK}")
    return float(scale), float(eps), chunk_size


def _usual(q: Tensor, k: Tensor, v: Tensor, axes: int) -> bool:
    """Nothing to complain about, found out in a microsecond; anything else goes to checks.py for its sentence."""
    if not (type(q) is type(k) is type(v) is Tensor) or q.is_nested:
        return False
    shape, dtype, device = q.shape, q.dtype, q.device
    return (
        len(shape) == axes
        and k.shape == shape
        and v.shape[:-1] == shape[:-1]
        and shape[-1] > 0
        and k.dtype == v.dtype == dtype
        and k.device == v.device == device
        and dtype.is_floating_point
    )


def _checked(state: State, rows: int, q: Tensor, v: Tensor, phi: FeatureMap) -> State:
    H, F, V = q.shape[-2], phi.feature_dim, v.shape[-1]
    if type(state) is State and type(state.s) is type(state.z) is Tensor:
        s, z = state
        fits = s.shape == (rows, H, F, V) and z.shape == (rows, H, F) and s.device == z.device == q.device
        if fits and s.dtype == z.dtype and s.dtype in WIDE:
            return state
    state = widened(state, State)
    check_state(state, batch=rows, heads=H, feature_dim=F, value_dim=V, device=q.device)
    return state
