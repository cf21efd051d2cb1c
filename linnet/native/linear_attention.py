"""Linear attention through the native library: torch tensors in, torch tensors out, no autograd here.

q, k arrive before the feature map's core, which the kernel applies: kind and coeffs as in feature_maps/core.py.
float32 tensors are read in place by their strides (last stride 1); bfloat16 and float16 are widened first. The state is
float32, or float64 in `step`. What the kernel trusts (shapes, devices, cu_seqlens) is checked by the caller, `ops`, and
every tensor passes the gate (gate.py). No size but the length may be 0: the caller computes such calls in torch.

B batch, T time, H heads, D width, F features, V values, S sequences (S = B unless packed by cu_seqlens [S+1]).
"""

from __future__ import annotations

import torch
from torch import Tensor, get_num_threads

from . import structs
from .call import Function
from .gate import dense, strided
from .library import library as library
from .library import reason
from .memory import empty, empty_like

FORWARD, BACKWARD, STEP = Function(structs.Forward), Function(structs.Backward), Function(structs.Step)
KINDS = {"identity": 0, "elu": 1, "relu": 2, "relu2": 3, "exp": 4, "polynomial": 5}
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
FLOATS = (torch.float32,) * 3


def unsupported(
    kind: str, coeffs: tuple[float, ...], dtype: torch.dtype, device: str, state_dtype: torch.dtype, one_step: bool
) -> str | None:
    """Return why the kernels cannot run such a call, as the rest of a sentence; None when they can."""
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
    """Return out [B,T,H,V] in v.dtype, inv [B,T,H], s [S,H,F,V], z [S,H,F]; the last three only when needed."""
    B, T, H, D = q.shape
    V, F, S = v.shape[3], feature_dim(kind, coeffs, D), B if cu_seqlens is None else cu_seqlens.shape[0] - 1
    q, k, wide_v = strided(q), strided(k), strided(v)
    out = empty_like(wide_v) if causal else empty(B, T, H, V)
    inv = q.new_empty((B, T, H)) if need_inv else None
    s, z = (q.new_empty((S, H, F, V)), q.new_empty((S, H, F))) if need_state else (None, None)
    mask, cu, s0, z0 = _dense(mask, cu_seqlens, s0, z0)
    c0, c1, c2 = (*coeffs, 0.0, 0.0, 0.0)[:3]
    FORWARD.call(
        out=out, inv=inv, s_out=s, z_out=z, q=q, k=k, v=wide_v, mask=mask, cu=cu, s0=s0, z0=z0,
        S=S, B=B, Tq=T, Tk=k.shape[1], H=H, D=D, V=V, F=F,
        q_strides=q.stride(), k_strides=k.stride(), v_strides=wide_v.stride(), causal=causal,
        kind=KINDS[kind], normalize=normalize, threads=get_num_threads(), scale=scale, eps=eps, c0=c0, c1=c1, c2=c2,
    )  # fmt: skip
    return (out if v.dtype == torch.float32 else out.to(v.dtype)), inv, s, z


def backward(
    g: Tensor, gs: Tensor | None, gz: Tensor | None, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None,
    cu_seqlens: Tensor | None, s0: Tensor | None, z0: Tensor | None, out: Tensor, inv: Tensor,
    kind: str, coeffs: tuple[float, ...], causal: bool, normalize: bool, scale: float, eps: float,
    need_state: bool = True,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:  # fmt: skip
    """Return dq, dk, dv in the dtypes of q, k, v; ds0 [S,H,F,V] and dz0 [S,H,F] in float32, only when needed."""
    B, T, H, D = q.shape
    V, F, S = v.shape[3], feature_dim(kind, coeffs, D), B if cu_seqlens is None else cu_seqlens.shape[0] - 1
    dtypes = q.dtype, k.dtype, v.dtype
    q, k, v, g, out, inv = strided(q), strided(k), strided(v), strided(g), strided(out), dense(inv)
    dq, dk, dv = empty_like(q), empty_like(k), empty_like(v)
    ds0, dz0 = (q.new_empty((S, H, F, V)), q.new_empty((S, H, F))) if need_state else (None, None)
    mask, cu, s0, z0 = _dense(mask, cu_seqlens, s0, z0)
    c0, c1, c2 = (*coeffs, 0.0, 0.0, 0.0)[:3]
    BACKWARD.call(
        dq=dq, dk=dk, dv=dv, ds0=ds0, dz0=dz0, g=g, gs=dense(gs), gz=dense(gz), out=out, inv=inv, q=q, k=k, v=v,
        mask=mask, cu=cu, s0=s0, z0=z0,
        g_strides=g.stride(), o_strides=out.stride(), S=S, B=B, Tq=T, Tk=k.shape[1], H=H, D=D, V=V, F=F,
        q_strides=q.stride(), k_strides=k.stride(), v_strides=v.stride(), causal=causal,
        kind=KINDS[kind], normalize=normalize, threads=get_num_threads(), scale=scale, eps=eps, c0=c0, c1=c1, c2=c2,
    )  # fmt: skip
    if dtypes != FLOATS:
        dq, dk, dv = (x.to(dtype) for x, dtype in zip((dq, dk, dv), dtypes, strict=True))
    return dq, dk, dv, ds0, dz0


Optional = tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]


def _dense(mask: Tensor | None, cu: Tensor | None, s0: Tensor | None, z0: Tensor | None) -> Optional:
    """Return what a call may go without as the kernels read it; most calls have none of these."""
    if mask is cu is s0 is z0 is None:
        return None, None, None, None
    return dense(mask, torch.bool), dense(cu, torch.int64), dense(s0), dense(z0)


def step(
    q: Tensor, k: Tensor, v: Tensor, s0: Tensor | None, z0: Tensor | None,
    kind: str, coeffs: tuple[float, ...], normalize: bool, scale: float, eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Run one token: q, k [B,H,D], v [B,H,V] -> out [B,H,V], s [B,H,F,V], z [B,H,F]; the state keeps its dtype."""
    B, H, D = q.shape
    V, F, dtype = v.shape[2], feature_dim(kind, coeffs, D), torch.float32 if s0 is None else s0.dtype
    q, k, wide_v = strided(q), strided(k), strided(v)
    like = q if s0 is None else s0
    out, s, z = q.new_empty((B, H, V)), like.new_empty((B, H, F, V)), like.new_empty((B, H, F))
    (q_b, q_h, _), (k_b, k_h, _), (v_b, v_h, _) = q.stride(), k.stride(), wide_v.stride()
    c0, c1, c2 = (*coeffs, 0.0, 0.0, 0.0)[:3]
    STEP.call(
        out=out, s_out=s, z_out=z, q=q, k=k, v=wide_v, s0=dense(s0, dtype), z0=dense(z0, dtype),
        B=B, H=H, D=D, V=V, F=F, q_strides=(q_b, 0, q_h, 1), k_strides=(k_b, 0, k_h, 1), v_strides=(v_b, 0, v_h, 1),
        wide=dtype == torch.float64,
        kind=KINDS[kind], normalize=normalize, threads=get_num_threads(), scale=scale, eps=eps, c0=c0, c1=c1, c2=c2,
    )  # fmt: skip
    return (out if v.dtype == torch.float32 else out.to(v.dtype)), s, z


def feature_dim(kind: str, coeffs: tuple[float, ...], head_dim: int) -> int:
    """Return F, the number of features of a head."""
    if kind != "polynomial":
        return head_dim
    widths = (1, head_dim, head_dim * (head_dim + 1) // 2)
    return sum(width for c, width in zip(coeffs, widths, strict=False) if c > 0)
