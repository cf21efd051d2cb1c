"""Linear attention through the native library: torch tensors in, torch tensors out, no autograd here.

q, k arrive before the feature map's core, which the kernel applies: kind and coeffs as in feature_maps/core.py.
float32 tensors are read in place by their strides (last stride 1); bfloat16 and float16 are widened first. The state is
float32, or float64 in `step`. What the kernel trusts (shapes, devices, cu_seqlens) is checked by the caller, `ops`, and
every tensor passes the gate (gate.py). No size may be 0 but the length: the caller answers such calls in torch.

B batch, T time, H heads, D width, F features, V values, S sequences (S = B unless packed by cu_seqlens [S+1]).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import gate
from .gate import dense, strided
from .library import CALL, STATUS, library, reason
from .memory import empty

KINDS = {"identity": 0, "elu": 1, "relu": 2, "relu2": 3, "exp": 4, "polynomial": 5}
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def unsupported(
    kind: str, coeffs: tuple[float, ...], dtype: torch.dtype, device: str, state_dtype: torch.dtype, one_step: bool
) -> str | None:
    """Why the kernels cannot run such a call, as the rest of a sentence; None when they can."""
    if library() is None:
        return reason()
    if device != "cpu":
        return f"the native kernels run on cpu tensors, these are on {device}"
    if dtype not in DTYPES:
        return f"the native kernels take float32, bfloat16 or float16, not {dtype}"
    if state_dtype != torch.float32 and not one_step:
        return f"the native kernels keep a float32 state (float64 in single steps), not {state_dtype}"
    if kind not in KINDS or len(coeffs) > 3:
        return f"the native kernels have no {kind} map of degree {len(coeffs) - 1}, only degree 1 and 2"
    return None


def forward(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, cu_seqlens: Tensor | None, s0: Tensor | None,
    z0: Tensor | None, kind: str, coeffs: tuple[float, ...], causal: bool, normalize: bool, scale: float, eps: float,
    need_state: bool = True, need_inv: bool = True,
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    """out [B,T,H,V] in v.dtype, inv [B,T,H], s [S,H,F,V], z [S,H,F]; the last three only when needed."""
    B, T, H, D = q.shape
    V, F, S = v.shape[3], feature_dim(kind, coeffs, D), B if cu_seqlens is None else cu_seqlens.shape[0] - 1
    q, k, wide_v = strided(q), strided(k), strided(v)
    out = empty(B, T, H, V)
    inv = q.new_empty((B, T, H)) if need_inv else None
    s, z = (q.new_empty((S, H, F, V)), q.new_empty((S, H, F))) if need_state else (None, None)
    mask, cu = dense(mask, torch.bool), dense(cu_seqlens, torch.int64)
    tensors = (out, inv, s, z, q, k, wide_v, mask, cu, dense(s0), dense(z0), *(None,) * 8)
    strides = (*q.stride()[:3], *k.stride()[:3], *wide_v.stride()[:3], *out.stride()[:3], 0, 0, 0)
    sizes = (S, B, T, k.shape[1], H, D, V, F)
    _run("linnet_forward", tensors, sizes, strides, kind, coeffs, causal, normalize, scale, eps)
    return (out if v.dtype == torch.float32 else out.to(v.dtype)), inv, s, z


def backward(
    g: Tensor, gs: Tensor | None, gz: Tensor | None, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None,
    cu_seqlens: Tensor | None, s0: Tensor | None, z0: Tensor | None, out: Tensor, inv: Tensor,
    kind: str, coeffs: tuple[float, ...], causal: bool, normalize: bool, scale: float, eps: float,
    need_state: bool = True,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:  # fmt: skip
    """dq, dk, dv in the dtypes of q, k, v; ds0 [S,H,F,V] and dz0 [S,H,F] in float32, only when needed."""
    B, T, H, D = q.shape
    V, F, S = v.shape[3], feature_dim(kind, coeffs, D), B if cu_seqlens is None else cu_seqlens.shape[0] - 1
    dtypes = q.dtype, k.dtype, v.dtype
    q, k, v, g, out, inv = (strided(x) for x in (q, k, v, g, out, dense(inv)))
    dq, dk, dv = empty(B, T, H, D), empty(*k.shape), empty(*v.shape)
    ds0, dz0 = (q.new_empty((S, H, F, V)), q.new_empty((S, H, F))) if need_state else (None, None)
    mask, cu = dense(mask, torch.bool), dense(cu_seqlens, torch.int64)
    given = (mask, cu, dense(s0), dense(z0), g, dense(gs), dense(gz))
    tensors = (out, inv, None, None, q, k, v, *given, dq, dk, dv, ds0, dz0)
    strides = tuple(n for x in (q, k, v, out, g) for n in x.stride()[:3])
    sizes = (S, B, T, k.shape[1], H, D, V, F)
    _run("linnet_backward", tensors, sizes, strides, kind, coeffs, causal, normalize, scale, eps)
    dq, dk, dv = (x if t == torch.float32 else x.to(t) for x, t in zip((dq, dk, dv), dtypes, strict=True))
    return dq, dk, dv, ds0, dz0


def step(
    q: Tensor, k: Tensor, v: Tensor, s0: Tensor | None, z0: Tensor | None,
    kind: str, coeffs: tuple[float, ...], normalize: bool, scale: float, eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """One token: q, k [B,H,D], v [B,H,V] -> out [B,H,V], s [B,H,F,V], z [B,H,F]; the state keeps its dtype."""
    B, H, D = q.shape
    V, F, dtype = v.shape[2], feature_dim(kind, coeffs, D), torch.float32 if s0 is None else s0.dtype
    q, k, wide_v = strided(q), strided(k), strided(v)
    like = q if s0 is None else s0
    out, s, z = q.new_empty((B, H, V)), like.new_empty((B, H, F, V)), like.new_empty((B, H, F))
    tensors = (out, None, s, z, q, k, wide_v, None, None, dense(s0, dtype), dense(z0, dtype), *(None,) * 8)
    (qb, qh, _), (kb, kh, _), (vb, vh, _) = q.stride(), k.stride(), wide_v.stride()
    strides = (qb, 0, qh, kb, 0, kh, vb, 0, vh, H * V, 0, V, 0, 0, 0)
    wide = dtype == torch.float64
    _run("linnet_step", tensors, (B, B, 1, 1, H, D, V, F), strides, kind, coeffs, True, normalize, scale, eps, wide)
    return (out if v.dtype == torch.float32 else out.to(v.dtype)), s, z


def feature_dim(kind: str, coeffs: tuple[float, ...], head_dim: int) -> int:
    if kind != "polynomial":
        return head_dim
    widths = (1, head_dim, head_dim * (head_dim + 1) // 2)
    return sum(width for c, width in zip(coeffs, widths, strict=False) if c > 0)


def _run(
    name: str, tensors: tuple[Any, ...], sizes: tuple[int, ...], strides: tuple[int, ...],
    kind: str, coeffs: tuple[float, ...], causal: bool, normalize: bool, scale: float, eps: float, wide: bool = False,
) -> None:  # fmt: skip
    """Packs linnet_call (csrc/linnet.h) and makes the call. The caller's names keep the tensors alive meanwhile."""
    if gate.CHECK:
        _verify(name, tensors, sizes, strides, wide)
    switches = (KINDS[kind], causal, normalize, torch.get_num_threads(), wide)
    numbers = (scale, eps, *coeffs, *(0.0,) * (3 - len(coeffs)))
    pointers = gate.addresses(tensors)
    call = CALL.pack(*pointers, *sizes, *strides, sizes[3], *switches, *numbers)  # sizes[3]: a row of the mask
    status = getattr(library(), name)(call)
    if status:
        raise RuntimeError(f"{name} refused the call: {STATUS.get(status, status)}")


def _verify(name: str, tensors: tuple[Any, ...], sizes: tuple[int, ...], strides: tuple[int, ...], wide: bool) -> None:
    """For LINNET_CHECK: every tensor of linnet_call is as long as its sizes and strides say."""
    S, B, Tq, Tk, H, D, V, F = sizes
    q, k, v, out, g = ((*strides[i : i + 3], 1) for i in range(0, 15, 3))
    state, sums = (S, H, F, V), (S, H, F)
    extents: dict[str, tuple[tuple[int, ...], tuple[int, ...] | None]] = {
        "out": ((B, Tq, H, V), out), "inv": ((B, Tq, H), None), "s_out": (state, None), "z_out": (sums, None),
        "q": ((B, Tq, H, D), q), "k": ((B, Tk, H, D), k), "v": ((B, Tk, H, V), v), "mask": ((B, Tk), None),
        "cu": ((S + 1,), None), "s0": (state, None), "z0": (sums, None), "g": ((B, Tq, H, V), g), "gs": (state, None),
        "gz": (sums, None), "dq": ((B, Tq, H, D), None), "dk": ((B, Tk, H, D), None), "dv": ((B, Tk, H, V), None),
        "ds0": (state, None), "dz0": (sums, None),
    }  # fmt: skip
    others = {"mask": torch.bool, "cu": torch.int64}
    if wide:
        others |= dict.fromkeys(("s_out", "z_out", "s0", "z0"), torch.float64)
    for (field, (shape, steps)), x in zip(extents.items(), tensors, strict=True):
        gate.verify(f"{name}: {field}", x, shape, others.get(field, torch.float32), steps)
