"""The gated family through the native library: decayed attention, delta rules, RWKV-7; no autograd here.

float32 tensors are read in place by their strides (last stride 1); bfloat16 and float16 are widened first. The state is
float32. The kernel looks at the numbers that it loads anyway, and `forward` returns what is wrong with them: a sum of
NOT_FINITE, GROWS, BETA, LONG_KEY and RATE, 0 for nothing. Shapes are checked by the caller, `ops`.
B batch, T time, H heads, D key width, V value width, G 1 or D decays per head, S sequences (S = B unless packed).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, get_num_threads

from . import structs
from .call import Function
from .gate import dense, strided
from .memory import empty

FORWARD, BACKWARD = Function(structs.GatedForward), Function(structs.GatedBackward)
NOT_FINITE, GROWS, BETA, LONG_KEY, RATE = 1, 2, 4, 8, 16  # enum Fault of csrc/gated.h
PLAIN, DELTA, REMOVAL = 0, 1, 2  # enum Rule
SEGMENT = 128  # tokens between the states that are kept for the backward pass
NO_STRIDES = (0, 0, 0, 0)


class Inputs(NamedTuple):
    """The inputs of a rule; None for those of other rules."""

    q: Tensor  # [B,T,H,D]
    k: Tensor  # [B,T,H,D]
    v: Tensor  # [B,T,H,V]
    decay: Tensor | None = None  # [B,T,H,G]
    beta: Tensor | None = None  # [B,T,H]
    erase: Tensor | None = None  # [B,T,H,D]
    rate: Tensor | None = None  # [B,T,H,D]


def forward(
    x: Inputs, mask: Tensor | None, cu: Tensor | None, s0: Tensor | None, need_state: bool, keep: bool
) -> tuple[Tensor, Tensor | None, Tensor | None, int]:
    """Return out [B,T,H,V], the last state [S,H,D,V] if needed, states for `backward` if kept, and the faults."""
    B, T, H, D, V, S = _sizes(x, cu)
    out, s = empty(B, T, H, V), empty(S, H, D, V) if need_state else None
    floats = -(-D // 16) * -(-V // 16) * 256
    slots = B * T // SEGMENT + S
    kept = empty(slots, H, floats) if keep else None
    faults = out.new_empty(1, dtype=torch.int64)
    FORWARD.call(
        out=out, s_out=s, kept=kept, faults=faults, s0=dense(s0), slots=slots, floats=floats, **_given(x, mask, cu, S)
    )
    return out, s, kept, int(faults)


def backward(
    g: Tensor, gs: Tensor | None, x: Inputs, mask: Tensor | None, cu: Tensor | None, kept: Tensor, need_state: bool
) -> tuple[Inputs, Tensor | None]:
    """Return the gradients of the inputs, in float32, and of the initial state if needed."""
    B, T, H, D, V, S = _sizes(x, cu)
    dq, dk, dv, ds0 = empty(B, T, H, D), empty(B, T, H, D), empty(B, T, H, V), None
    ddecay = None if x.decay is None else empty(B, T, H, x.decay.shape[3])
    dbeta = None if x.beta is None else empty(B, T, H)
    derase, drate = (None, None) if x.erase is None else (empty(B, T, H, D), empty(B, T, H, D))
    ds0 = empty(S, H, D, V) if need_state else None
    g = strided(g)
    BACKWARD.call(
        dq=dq, dk=dk, dv=dv, ddecay=ddecay, dbeta=dbeta, derase=derase, drate=drate, ds0=ds0,
        g=g, gs=dense(gs), kept=kept, g_strides=g.stride(), slots=kept.shape[0], floats=kept.shape[2],
        **_given(x, mask, cu, S),
    )  # fmt: skip
    return Inputs(dq, dk, dv, ddecay, dbeta, derase, drate), ds0


def _sizes(x: Inputs, cu: Tensor | None) -> tuple[int, ...]:
    B, T, H, D = x.q.shape
    return B, T, H, D, x.v.shape[3], B if cu is None else cu.shape[0] - 1


def _given(x: Inputs, mask: Tensor | None, cu: Tensor | None, S: int) -> dict[str, object]:
    """Return the fields that both directions share."""
    B, T, H, D = x.q.shape
    beta = None if x.beta is None else x.beta[..., None]
    q, k, v = strided(x.q), strided(x.k), strided(x.v)
    decay, beta, erase, rate = (None if y is None else strided(y) for y in (x.decay, beta, x.erase, x.rate))
    return {
        "q": q, "k": k, "v": v, "decay": decay, "beta": beta, "erase": erase, "rate": rate, "mask": mask, "cu": cu,
        "S": S, "B": B, "T": T, "H": H, "D": D, "V": x.v.shape[3], "G": 0 if decay is None else decay.shape[3],
        "rule": PLAIN if beta is None and erase is None else DELTA if erase is None else REMOVAL,
        "q_strides": q.stride(), "k_strides": k.stride(), "v_strides": v.stride(),
        "decay_strides": NO_STRIDES if decay is None else decay.stride(),
        "beta_strides": NO_STRIDES if beta is None else beta.stride(),
        "erase_strides": NO_STRIDES if erase is None else erase.stride(),
        "rate_strides": NO_STRIDES if rate is None else rate.stride(), "threads": get_num_threads(),
    }  # fmt: skip
