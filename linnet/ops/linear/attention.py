"""Linear attention, the public op: check the arguments, map q and k, choose a form and a backend, run it.

    out_t = sum_j scale phi(q_t).phi(k_j) v_j / (sum_j scale phi(q_t).phi(k_j) + eps),   j <= t when causal

Katharopoulos et al. 2020, arXiv:2006.16236. The result is the same for any form, backend, padding, packing or split.
B batch, T time, H heads, D and V widths, F features:  q, k [B,T,H,D]   v, out [B,T,H,V]   s [B,H,F,V]   z [B,H,F]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...errors import ArgumentError, is_number, is_whole
from ...feature_maps import FeatureMap, resolve
from ...native import gate
from ...native import linear_attention as native
from ..causal import refuse_unguarded
from ..checks import WIDE, check_cu_seqlens, check_mask, check_memory, check_qkv, check_step, widened
from ..dispatch import check_names, choose_linear
from ..precision import full_precision
from ..state import State, check_state
from .chunks import CHUNK, Batch, Rule
from .forms import FORMS
from .operators import attend, by_sequence, empty, needs_graph
from .usual import run_usual, run_usual_step, usual


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
    form: str = "auto",
    backend: str = "auto",
    chunk_size: int | None = None,
) -> tuple[Tensor, State | None]:
    """Attend with the kernel phi(q).phi(k), in time and memory linear in T.

    Args:
        q, k, v: [B,T,H,D], [B,Tk,H,D], [B,Tk,H,V], one floating dtype; Tk = T when causal.
        feature_map: a name, a FeatureMap, or None when q and k are already mapped.
        causal: token t sees tokens up to and including t; False: every query sees every key.
        normalize: divide by the sum of the scores plus `eps`.
        scale: factor on the scores; None means 1.
        initial_state: State of the earlier tokens, from an earlier call; never modified. Packed batches have one row
            per sequence. One in half precision is widened to float32.
        output_final_state: also return the state after the last token.
        mask: [B,Tk] bool, True = real token. Padding changes neither outputs, state nor gradients; its output is 0
            when causal. When not causal the mask applies to keys, and every query has an output.
        cu_seqlens: [S+1] offsets of S sequences packed in one row (B = 1), from 0 to T; sequences may be empty.
        form: "auto", "parallel", "chunked" or "recurrent".
        backend: "auto", "native" or "torch"; `linnet.explain_dispatch` shows what "auto" chooses.
        chunk_size: tokens per chunk of the torch form; changes the speed, not the result.

    Returns:
        out [B,T,H,V] in the dtype of v, and the State (float32, or float64 if any input is) or None.

    Raises:
        ValueError, StateError, BackendError: an argument that does not fit, in one sentence.

    When causal, no output depends on a later token, NaN and infinity included. For those the exceptions are gradients
    (a call with a non-finite number in a real token may have no finite gradient at all), the parallel form inside
    torch.compile, and devices other than the CPU, where such a number can reach up to a chunk of earlier tokens.
    """
    simple = usual(q, k, v, 4)
    if not simple:
        check_qkv(q, k, v, causal)
    if gate.VALUES and causal:
        check_mask(mask, k.shape[0], k.shape[1], k.device)
        refuse_unguarded("linear_attention", (q, k, v), mask)
    phi = resolve(feature_map, q.shape[3])
    bare = mask is None and cu_seqlens is None and initial_state is None and chunk_size is None
    if simple and bare and not torch.compiler.is_compiling() and not _prepares(phi):
        done = run_usual(q, k, v, phi, causal, normalize, scale, eps, output_final_state, form, backend)
        if done is not None:
            return done
    rule = Rule(phi.core, causal, normalize, *_numbers(scale, eps, chunk_size))
    if mask is not None:
        check_mask(mask, k.shape[0], k.shape[1], k.device)
    rows, offsets = _packing(q, k, cu_seqlens)
    s0 = z0 = None
    if initial_state is not None:
        s0, z0 = _checked(initial_state, rows, q, v, phi)
    dtype = v.dtype
    q, k, v = _with_range(phi, q, k, v)
    with full_precision(q):
        b = _prepared(phi, Batch(q, k, v, mask, s0, z0), causal)
        out, s, z = _run(b, offsets, rule, form, backend, output_final_state)
    return out if out.dtype == dtype else out.to(dtype), State(s, z) if output_final_state else None


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
    """Process one token: q, k [B,H,D], v [B,H,V] and the state so far -> out [B,H,V] and the new state.

    The same numbers as `linear_attention` on the whole sequence. Over more than 100,000 steps a float32 state
    accumulates rounding errors; `state.to(dtype=torch.float64)` keeps an endless stream exact at twice the memory.
    """
    simple = usual(q, k, v, 3)
    if not simple:
        check_step(q, k, v)
    phi = resolve(feature_map, q.shape[2])
    checked = None if state is None else _checked(state, q.shape[0], q, v, phi)
    if simple and not torch.compiler.is_compiling() and not _prepares(phi):
        done = run_usual_step(q, k, v, checked, phi, normalize, scale, eps, backend)
        if done is not None:
            return done
    rule = Rule(phi.core, True, normalize, *_numbers(scale, eps, None))
    s0, z0 = (None, None) if checked is None else checked
    dtype = v.dtype
    q, k, v = _with_range(phi, q, k, v)
    with full_precision(q):
        b = _prepared(phi, Batch(q, k, v, None, s0, z0), True)
        if not torch.compiler.is_compiling() and not needs_graph(b):
            _, chosen, _ = choose_linear("recurrent", backend, rule.core, 1, q.dtype, b.dtype, q.device.type, True)
            if chosen == "native" and empty(b):
                backend = "torch"
            elif chosen == "native":
                how = (rule.core.kind, rule.core.coeffs, normalize, rule.scale, rule.eps)
                out, s, z = native.step(b.q, b.k, v, s0, z0, *how)
                return out if out.dtype == dtype else out.to(dtype), State(s, z)
        b = b._replace(q=b.q[:, None], k=b.k[:, None], v=v[:, None])
        out, s, z = _run(b, None, rule, "recurrent", backend, True)
    return out[:, 0].to(dtype), State(s, z)


def state_bytes(
    length: int, *, heads: int, feature_dim: int, value_dim: int, dtype: torch.dtype = torch.float32
) -> int:
    """Return bytes of state per sequence: H F (V + 1) numbers for any length, in `dtype` (of q) or float32."""
    return heads * feature_dim * (value_dim + 1) * max(dtype.itemsize, torch.float32.itemsize)


def _run(b: Batch, cu_seqlens: Tensor | None, rule: Rule, form: str, backend: str, need_state: bool) -> tuple[Any, ...]:
    """Return out, s, z by the form and backend of `choose_linear`; in a compiled graph the operator chooses."""
    if torch.compiler.is_compiling() and (form in ("auto", "chunked") or (form == "recurrent" and b.q.shape[1] == 1)):
        check_names("linear_attention", form, backend)
        form = "chunked"
    else:
        form, backend, _ = choose_linear(form, backend, rule.core, b.q.shape[1], b.q.dtype, b.dtype, b.q.device.type)
        if backend != "native":  # what a kernel reads is checked by the gate
            check_memory(**b._asdict())
    if form == "chunked" or backend == "native":
        out, _, s, z = attend(b, cu_seqlens, rule, backend, need_state)
    else:
        out, _, s, z = by_sequence(FORMS[form], b, cu_seqlens, rule)
    return out, s, z


def _prepares(phi: FeatureMap) -> bool:
    """Return True if the map has a learned or random half, which runs before the op."""
    cls = type(phi)
    return cls.prepare_q is not FeatureMap.prepare_q or cls.prepare_k is not FeatureMap.prepare_k


def _with_range(phi: FeatureMap, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Widen float16 inputs of a map with two halves: between them, gradients of up to 1 / eps would overflow to NaN."""
    if q.dtype == torch.float16 and _prepares(phi):
        return q.float(), k.float(), v.float()
    return q, k, v


def _prepared(phi: FeatureMap, b: Batch, causal: bool) -> Batch:
    """Apply the learned or random half of the map to q and k, with zeros in place of padding."""
    if not _prepares(phi):
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
    """Return the error for a map whose widths are not as declared: a kernel would read out of bounds."""
    before, after = (f"q {list(b.q.shape)} and k {list(b.k.shape)} on {b.q.device}" for b in (given, mapped))
    wanted = f"the same axes, and one width that core {phi.core.kind!r} turns into feature_dim = {phi.feature_dim}"
    who = f"feature_map {type(phi).__name__} prepares {after} from {before}"
    return ValueError(f"{who}; accepted: {wanted}; give FeatureMap.__init__ the feature_dim that it has")


def _packing(q: Tensor, k: Tensor, cu_seqlens: Tensor | Sequence[int] | None) -> tuple[int, Tensor | None]:
    """Return the number of rows of the state, and the offsets as an int64 tensor."""
    if cu_seqlens is None:
        return q.shape[0], None
    if q.shape[1] != k.shape[1]:
        raise ValueError(
            f"cu_seqlens packs q and k alike, but q has {q.shape[1]} tokens and k {k.shape[1]}; "
            "call once per sequence for cross attention"
        )
    if not torch.compiler.is_compiling():  # a graph cannot read values: there the operator checks them when it runs
        check_cu_seqlens(cu_seqlens, q.shape[1], q.shape[0])
    offsets = torch.as_tensor(cu_seqlens, dtype=torch.int64).cpu().contiguous()
    return offsets.shape[0] - 1, offsets


def _numbers(scale: float | None, eps: float, chunk_size: int | None) -> tuple[float, float, int]:
    if scale is None:
        scale = 1.0
    elif not is_number(scale):
        raise ValueError(f"scale is {scale!r}; accepted: a finite number, or None for 1")
    if not is_number(eps) or eps < 0:
        raise ValueError(f"eps is {eps!r}; accepted: a finite number >= 0")
    if chunk_size is None:
        chunk_size = CHUNK
    elif not is_whole(chunk_size, 1):
        raise ArgumentError("chunk_size", chunk_size, f"a whole number, 1 or more, or None for {CHUNK}")
    return float(scale), float(eps), chunk_size


def _checked(state: State, rows: int, q: Tensor, v: Tensor, phi: FeatureMap) -> State:
    H, F, V = q.shape[-2], phi.feature_dim, v.shape[-1]
    if type(state) is State and type(state.s) is type(state.z) is Tensor:
        s, z = state
        fits = s.shape == (rows, H, F, V) and z.shape == (rows, H, F) and s.device == z.device == q.device
        if fits and s.dtype == z.dtype and s.dtype in WIDE and s.layout == z.layout == torch.strided:
            return state
    state = widened(state, State)
    check_state(state, batch=rows, heads=H, feature_dim=F, value_dim=V, device=q.device)
    return state
