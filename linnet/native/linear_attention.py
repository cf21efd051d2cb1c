"""Linear attention through the native library: torch tensors in, torch tensors out, no autograd here.

q, k arrive before the feature map's core, which the kernel applies: kind and coeffs as in feature_maps/core.py.
float32 tensors are read in place by their strides (last stride 1); bfloat16 and float16 are widened first. The state is
float32. Everything the kernel trusts (shapes, devices, cu_seqlens) is checked by the caller, linnet.ops.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .library import CALL, STATUS, library, reason
from .memory import empty

KINDS = {"identity": 0, "elu": 1, "relu": 2, "relu2": 3, "exp": 4, "polynomial": 5}
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
Outputs = tuple[Tensor, Tensor, Tensor, Tensor]


def unsupported(
    kind: str, coeffs: tuple[float, ...], dtype: torch.dtype, device: str, state_dtype: torch.dtype
) -> str | None:
    """Why the kernels cannot run such a call, as the rest of a sentence; None when they can."""
    if library() is None:
        return reason()
    if device != "cpu":
        return f"the native kernels run on cpu tensors, these are on {device}"
    if dtype not in DTYPES or state_dtype != torch.float32:
        return (
            f"the native kernels take float32, bfloat16 or float16 with a float32 state, not {dtype} with {state_dtype}"
        )
    if kind not in KINDS or len(coeffs) > 3:
        return f"the native kernels have no {kind} map of degree {len(coeffs) - 1}, only degree 1 and 2"
    return None


def _wide(x: Tensor) -> Tensor:
    """float32 with a last stride of 1: the tensor itself whenever it is that already."""
    if x.dtype != torch.float32:
        x = x.float()
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def _address(x: Tensor | None) -> int:
    return 0 if x is None else x.data_ptr()


def _state(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.contiguous()


def _strides(x: Tensor) -> tuple[int, int, int]:
    return x.stride()[:3]  # type: ignore[return-value]


def _run(
    name: str,
    pointers: tuple[int, ...],
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    switches: tuple[int, ...],
    numbers: tuple[float, ...],
) -> None:
    call = CALL.pack(*pointers, *sizes, *strides, *switches, *numbers)
    status = getattr(library(), name)(call)
    if status:
        raise RuntimeError(f"{name} refused the call: {STATUS.get(status, status)}")


def _numbers(kind: str, coeffs: tuple[float, ...], scale: float, eps: float) -> tuple[float, ...]:
    return (scale, eps, *coeffs, *(0.0,) * (3 - len(coeffs)))


def _feature_dim(kind: str, coeffs: tuple[float, ...], d: int) -> int:
    if kind != "polynomial":
        return d
    return sum(width for c, width in zip(coeffs, (1, d, d * (d + 1) // 2), strict=False) if c > 0)


def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    cu_seqlens: Tensor | None,
    s0: Tensor | None,
    z0: Tensor | None,
    kind: str,
    coeffs: tuple[float, ...],
    causal: bool,
    normalize: bool,
    scale: float,
    eps: float,
    need_state: bool = True,
    need_inv: bool = True,
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """out [B,T,H,V] in v.dtype, inv [B,T,H], s [S,H,F,V], z [S,H,F]; the last three only when needed."""
    (b, tq, h, d), (_, tk, _, vd) = q.shape, v.shape
    f, seqs = _feature_dim(kind, coeffs, d), b if cu_seqlens is None else cu_seqlens.shape[0] - 1
    qw, kw, vw, s0, z0 = _wide(q), _wide(k), _wide(v), _state(s0), _state(z0)
    mask = None if mask is None else mask.contiguous()
    out = empty(b, tq, h, vd)
    inv = torch.empty(b, tq, h) if need_inv else None
    s, z = (torch.empty(seqs, h, f, vd), torch.empty(seqs, h, f)) if need_state else (None, None)
    _run(
        "linnet_forward",
        (*map(_address, (out, inv, s, z, qw, kw, vw, mask, cu_seqlens, s0, z0)), *(0,) * 8),
        (seqs, b, tq, tk, h, d, vd, f),
        (*_strides(qw), *_strides(kw), *_strides(vw), *_strides(out), 0, 0, 0, tk),
        (KINDS[kind], causal, normalize, torch.get_num_threads()),
        _numbers(kind, coeffs, scale, eps),
    )
    return (out if v.dtype == torch.float32 else out.to(v.dtype)), inv, s, z


def backward(
    g: Tensor,
    gs: Tensor | None,
    gz: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    cu_seqlens: Tensor | None,
    s0: Tensor | None,
    z0: Tensor | None,
    out: Tensor,
    inv: Tensor,
    kind: str,
    coeffs: tuple[float, ...],
    causal: bool,
    normalize: bool,
    scale: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """dq, dk, dv in the dtypes of q, k, v; ds0 [S,H,F,V] and dz0 [S,H,F] in float32."""
    (b, tq, h, d), (_, tk, _, vd) = q.shape, v.shape
    f, seqs = _feature_dim(kind, coeffs, d), b if cu_seqlens is None else cu_seqlens.shape[0] - 1
    qw, kw, vw, gw, ow = _wide(q), _wide(k), _wide(v), _wide(g), _wide(out)
    mask, s0, z0, gs, gz = (_state(x) for x in (mask, s0, z0, gs, gz))
    dq, dk, dv = empty(b, tq, h, d), empty(b, tk, h, d), empty(b, tk, h, vd)
    ds0, dz0 = torch.empty(seqs, h, f, vd), torch.empty(seqs, h, f)
    _run(
        "linnet_backward",
        tuple(
            map(
                _address,
                (
                    ow,
                    inv.contiguous(),
                    None,
                    None,
                    qw,
                    kw,
                    vw,
                    mask,
                    cu_seqlens,
                    s0,
                    z0,
                    gw,
                    gs,
                    gz,
                    dq,
                    dk,
                    dv,
                    ds0,
                    dz0,
                ),
            )
        ),
        (seqs, b, tq, tk, h, d, vd, f),
        (*_strides(qw), *_strides(kw), *_strides(vw), *_strides(ow), *_strides(gw), tk),
        (KINDS[kind], causal, normalize, torch.get_num_threads()),
        _numbers(kind, coeffs, scale, eps),
    )
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), ds0, dz0


def step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    s0: Tensor | None,
    z0: Tensor | None,
    kind: str,
    coeffs: tuple[float, ...],
    normalize: bool,
    scale: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """One token: q, k [B,H,D], v [B,H,V] -> out [B,H,V], s [B,H,F,V], z [B,H,F]."""
    (b, h, d), vd = q.shape, v.shape[-1]
    f = _feature_dim(kind, coeffs, d)
    qw, kw, vw, s0, z0 = _wide(q), _wide(k), _wide(v), _state(s0), _state(z0)
    out, s, z = torch.empty(b, h, vd), torch.empty(b, h, f, vd), torch.empty(b, h, f)
    _run(
        "linnet_step",
        (*map(_address, (out, None, s, z, qw, kw, vw, None, None, s0, z0)), *(0,) * 8),
        (b, b, 1, 1, h, d, vd, f),
        tuple(n for x in (qw, kw, vw, out) for n in (x.stride(0), 0, x.stride(1))) + (0, 0, 0, 0),
        (KINDS[kind], True, normalize, torch.get_num_threads()),
        _numbers(kind, coeffs, scale, eps),
    )
    return (out if v.dtype == torch.float32 else out.to(v.dtype)), s, z
