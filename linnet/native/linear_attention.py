"""Linear attention through the native library: torch tensors in, torch tensors out, no autograd here.

q, k arrive before the feature map's core, which the kernel applies: kind and coeffs as in feature_maps/core.py.
float32 tensors are read in place by their strides (last stride 1); bfloat16 and float16 are widened first. The state is
float32, or float64 in `step`. What the kernel trusts (shapes, devices, cu_seqlens) is checked by the caller, `ops`.

B batch, T time, H heads, D width, F features, V values, S sequences (S = B unless packed by cu_seqlens [S+1]).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

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
    q, k, wide_v = _readable(q), _readable(k), _readable(v)
    out = empty(B, T, H, V)
    inv = torch.empty(B, T, H) if need_inv else None
    s, z = (torch.empty(S, H, F, V), torch.empty(S, H, F)) if need_state else (None, None)
    tensors = (out, inv, s, z, q, k, wide_v, _dense(mask), cu_seqlens, _dense(s0), _dense(z0), *(None,) * 8)
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
    q, k, v, g, out, inv = (_readable(x) for x in (q, k, v, g, out, inv.contiguous()))
    dq, dk, dv = empty(B, T, H, D), empty(*k.shape), empty(*v.shape)
    ds0, dz0 = (torch.empty(S, H, F, V), torch.empty(S, H, F)) if need_state else (None, None)
    given = (_dense(mask), cu_seqlens, _dense(s0), _dense(z0), g, _dense(gs), _dense(gz))
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
    q, k, wide_v = _readable(q), _readable(k), _readable(v)
    out, s, z = torch.empty(B, H, V), torch.empty(B, H, F, V, dtype=dtype), torch.empty(B, H, F, dtype=dtype)
    tensors = (out, None, s, z, q, k, wide_v, None, None, _dense(s0), _dense(z0), *(None,) * 8)
    strides = (*(n for x in (q, k, wide_v, out) for n in (x.stride(0), 0, x.stride(1))), 0, 0, 0)
    wide = dtype == torch.float64
    _run("linnet_step", tensors, (B, B, 1, 1, H, D, V, F), strides, kind, coeffs, True, normalize, scale, eps, wide)
    return (out if v.dtype == torch.float32 else out.to(v.dtype)), s, z


def feature_dim(kind: str, coeffs: tuple[float, ...], head_dim: int) -> int:
    if kind != "polynomial":
        return head_dim
    widths = (1, head_dim, head_dim * (head_dim + 1) // 2)
    return sum(width for c, width in zip(coeffs, widths, strict=False) if c > 0)


def _readable(x: Tensor) -> Tensor:
    """float32 with a last stride of 1: the tensor itself whenever it is that already."""
    if x.dtype != torch.float32:
        x = x.float()
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def _dense(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.contiguous()


def _run(
    name: str, tensors: tuple[Any, ...], sizes: tuple[int, ...], strides: tuple[int, ...],
    kind: str, coeffs: tuple[float, ...], causal: bool, normalize: bool, scale: float, eps: float, wide: bool = False,
) -> None:  # fmt: skip
    """Packs linnet_call (csrc/linnet.h) and makes the call. The caller's names keep the tensors alive meanwhile."""
    pointers = [0 if x is None else x.data_ptr() for x in tensors]
    switches = (KINDS[kind], causal, normalize, torch.get_num_threads(), wide)
    numbers = (scale, eps, *coeffs, *(0.0,) * (3 - len(coeffs)))
    call = CALL.pack(*pointers, *sizes, *strides, sizes[3], *switches, *numbers)  # sizes[3]: a row of the mask
    status = getattr(library(), name)(call)
    if status:
        raise RuntimeError(f"{name} refused the call: {STATUS.get(status, status)}")
