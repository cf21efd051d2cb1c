"""The scans through the native library: torch tensors in, torch tensors out, no autograd here.

float32 tensors are read in place by their strides (last stride 1); bfloat16 and float16 are widened first. The forward
keeps the state before every chunk of tokens if the backward will run, as many numbers as the inputs hold, and the
backward computes the others again. Shapes, devices and cu_seqlens are checked by the caller, `ops`; no size may be 0.

B batch, T time, E channels, N numbers per channel, S sequences (S = B unless packed by cu_seqlens [S+1]).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, get_num_threads

from . import structs
from .call import Function
from .gate import dense, strided
from .memory import empty

SELECTIVE_SCAN, SELECTIVE_SCAN_BACKWARD = Function(structs.SelectiveScan), Function(structs.SelectiveScanBackward)
WKV, WKV_BACKWARD = Function(structs.Wkv), Function(structs.WkvBackward)
SCAN_CHUNK, WKV_CHUNK = 16, 32  # tokens from one kept state to the next: what the backward computes again fits a cache


class Places(NamedTuple):
    """Where the tokens of a call are: `mask` [B,T] bool, `cu_seqlens` [S+1]; None for no padding, no packing."""

    mask: Tensor | None = None
    cu_seqlens: Tensor | None = None

    def sizes(self, x: Tensor, numbers: int, chunk: int) -> dict[str, Any]:
        """Return what all calls share; `numbers` of a channel are in a state of x [B,T,E]."""
        B, T, E = x.shape
        S = B if self.cu_seqlens is None else self.cu_seqlens.shape[0] - 1
        sizes = {"S": S, "B": B, "T": T, "E": E, "slots": B * T // chunk + S + 1, "chunk": chunk}
        sizes |= {"width": -(-E // 16) * 16 * -(-numbers // 4) * 4, "threads": get_num_threads()}
        if self.mask is None is self.cu_seqlens:
            return sizes | {"mask": None, "cu": None}
        return sizes | {"mask": dense(self.mask, torch.bool), "cu": dense(self.cu_seqlens, torch.int64)}


def selective_scan(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, s0: Tensor | None, places: Places,
    need_state: bool = True, need_kept: bool = False,
) -> tuple[Tensor, Tensor | None, Tensor | None]:  # fmt: skip
    """Return y [B,T,E], s [S,E,N,1] if needed and, if the backward will run, what it needs; all float32."""
    x, dt, b, c = (strided(p) for p in (x, dt, b, c))
    N = a.shape[1]
    sizes = places.sizes(x, N, SCAN_CHUNK)
    y = empty(*x.shape)
    s = empty(sizes["S"], *a.shape, 1) if need_state else None
    kept = empty(sizes["slots"], sizes["width"]) if need_kept else None
    SELECTIVE_SCAN.call(y=y, s_out=s, kept=kept, **_scan_inputs(x, dt, a, b, c, s0), **sizes)
    return y, s, kept


def selective_scan_backward(
    g: Tensor, gs: Tensor | None, x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, s0: Tensor | None,
    places: Places, kept: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None]:  # fmt: skip
    """Return dx, ddt, da, db, dc, and ds0 if there was a first state; all float32."""
    g, x, dt, b, c = (strided(p) for p in (g, x, dt, b, c))
    (B, T, E), N = x.shape, a.shape[1]
    sizes = places.sizes(x, N, SCAN_CHUNK)
    dx, ddt, da, db, dc = empty(B, T, E), empty(B, T, E), empty(E, N), empty(B, T, N), empty(B, T, N)
    ds0 = None if s0 is None else empty(*s0.shape)
    SELECTIVE_SCAN_BACKWARD.call(
        dx=dx, ddt=ddt, da=da, db=db, dc=dc, ds0=ds0, g=g, gs=dense(gs), kept=kept, g_b=g.stride(0), g_t=g.stride(1),
        **_scan_inputs(x, dt, a, b, c, s0), **sizes,
    )  # fmt: skip
    return dx, ddt, da, db, dc, ds0


def _scan_inputs(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, s0: Tensor | None) -> dict[str, Any]:
    (x_b, x_t, _), (dt_b, dt_t, _), (b_b, b_t, _), (c_b, c_t, _) = (p.stride() for p in (x, dt, b, c))
    return {
        "x": x, "dt": dt, "a": dense(a), "b": b, "c": c, "s0": dense(s0), "N": a.shape[1],
        "x_b": x_b, "x_t": x_t, "dt_b": dt_b, "dt_t": dt_t, "b_b": b_b, "b_t": b_t, "c_b": c_b, "c_t": c_t,
    }  # fmt: skip


def wkv(
    k: Tensor, v: Tensor, decay: Tensor, bonus: Tensor, s0: Tensor | None, places: Places,
    need_state: bool = True, need_kept: bool = False,
) -> tuple[Tensor, Tensor | None, Tensor | None]:  # fmt: skip
    """Return out [B,T,E], s [S,1,3,E] if needed and, if the backward will run, what it needs; all float32."""
    k, v = strided(k), strided(v)
    sizes = places.sizes(k, 4, WKV_CHUNK)
    out = empty(*k.shape)
    s = empty(sizes["S"], 1, 3, k.shape[2]) if need_state else None
    kept = empty(sizes["slots"], sizes["width"]) if need_kept else None
    WKV.call(out=out, s_out=s, kept=kept, **_wkv_inputs(k, v, decay, bonus, s0), **sizes)
    return out, s, kept


def wkv_backward(
    g: Tensor, gs: Tensor | None, k: Tensor, v: Tensor, decay: Tensor, bonus: Tensor, s0: Tensor | None,
    places: Places, kept: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:  # fmt: skip
    """Return dk, dv, ddecay, dbonus, and ds0 if there was a first state; all float32."""
    g, k, v = strided(g), strided(k), strided(v)
    E = k.shape[2]
    sizes = places.sizes(k, 4, WKV_CHUNK)
    dk, dv, ddecay, dbonus = empty(*k.shape), empty(*k.shape), empty(E), empty(E)
    ds0 = None if s0 is None else empty(*s0.shape)
    WKV_BACKWARD.call(
        dk=dk, dv=dv, ddecay=ddecay, dbonus=dbonus, ds0=ds0, g=g, gs=dense(gs), kept=kept,
        g_b=g.stride(0), g_t=g.stride(1), **_wkv_inputs(k, v, decay, bonus, s0), **sizes,
    )  # fmt: skip
    return dk, dv, ddecay, dbonus, ds0


def _wkv_inputs(k: Tensor, v: Tensor, decay: Tensor, bonus: Tensor, s0: Tensor | None) -> dict[str, Any]:
    (k_b, k_t, _), (v_b, v_t, _) = k.stride(), v.stride()
    return {
        "k": k, "v": v, "decay": dense(decay), "bonus": dense(bonus), "s0": dense(s0),
        "k_b": k_b, "k_t": k_t, "v_b": v_b, "v_t": v_t,
    }  # fmt: skip
