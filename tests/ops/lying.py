"""Every op that native code may run, and every way a tensor can lie in memory or pretend to: two tables for tests."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from linnet.ops import (
    ConvState,
    MatrixState,
    State,
    decayed_attention,
    delta_rule,
    linear_attention,
    linear_attention_step,
    selective_scan,
    selective_scan_step,
    short_conv,
    short_conv_step,
    sliding_window_attention,
    softmax_attention,
    wkv,
    wkv7,
    wkv_step,
)
from linnet.ops.conv.base_conv import base_conv
from linnet.ops.fused.cross_entropy import linear_cross_entropy
from linnet.ops.fused.mlp import mlp
from linnet.ops.fused.norm import layer_norm, rms_norm
from linnet.ops.fused.projection import project

Op = Callable[..., Any]


def _attention(q: Tensor, k: Tensor, v: Tensor, s: Tensor, z: Tensor, **how: Any) -> tuple[Tensor, ...]:
    out, state = linear_attention(q, k, v, initial_state=State(s, z), output_final_state=True, **how)
    assert state is not None
    return out, *state


def _step(q: Tensor, k: Tensor, v: Tensor, s: Tensor, z: Tensor) -> tuple[Tensor, ...]:
    out, state = linear_attention_step(q, k, v, State(s, z))
    return out, *state


def _conv(x: Tensor, weight: Tensor, bias: Tensor, past: Tensor) -> tuple[Tensor, ...]:
    y, state = short_conv(x, weight, bias, initial_state=ConvState(past), output_final_state=True)
    assert state is not None
    return y, *state


def _conv_step(x: Tensor, weight: Tensor, bias: Tensor, past: Tensor) -> tuple[Tensor, ...]:
    y, state = short_conv_step(x, weight, bias, ConvState(past))
    return y, *state


def _recurrent(op: Op, value: Callable[[Tensor], Tensor], *given: Tensor) -> tuple[Tensor, ...]:
    """The last tensor is the state; `value`: what one stands for."""
    *inputs, s = given
    out, state = op(*inputs, initial_state=MatrixState(s), output_final_state=True)
    assert state is not None
    return out, value(state.s)


def _recurrent_step(op: Op, value: Callable[[Tensor], Tensor], *given: Tensor) -> tuple[Tensor, ...]:
    out, state = op(*given[:-1], MatrixState(given[-1]))
    return out, value(state.s)


def _sums(s: Tensor) -> Tensor:
    """Of RWKV-4: derivatives hold the exponent fixed, or do not."""
    return s[:, :, :2] * s[:, :, 2:].exp()


def _turned(x: Tensor, weight: Tensor, bias: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, ...]:
    return project(x, weight, bias, (64, 64, 32), (cos.detach(), sin.detach()))


def _nats(h: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return linear_cross_entropy(h, weight, bias, torch.arange(len(h), device="cpu") % 9)[0]


def _first(op: Op, *given: Tensor, **how: Any) -> Tensor:
    out: Tensor = op(*given, **how)[0]
    return out


QKV = [(2, 40, 2, 8), (2, 40, 2, 8), (2, 40, 2, 5)]
SUMS = [(2, 2, 8, 5), (2, 2, 8)]
OPS: dict[str, tuple[Op, list[tuple[int, ...]]]] = {  # rows of at least eager.SMALLEST numbers, so that kernels run
    "layer_norm": (layer_norm, [(65, 64), (64,), (64,)]),
    "rms_norm": (rms_norm, [(65, 64), (64,)]),
    "short_conv": (_conv, [(2, 35, 64), (64, 3), (64,), (2, 2, 64)]),
    "short_conv_step": (_conv_step, [(2, 64), (64, 3), (64,), (2, 2, 64)]),
    "base_conv": (base_conv, [(2, 35, 64), (64, 3), (64,), (64, 64), (64,)]),
    "mlp relu": (partial(mlp, kind="relu"), [(70, 64), (48, 64), (48,), (64, 48), (64,)]),
    "mlp gelu": (partial(mlp, kind="gelu"), [(70, 64), (48, 64), (48,), (64, 48), (64,)]),
    "mlp swiglu": (partial(mlp, kind="swiglu"), [(70, 64), (96, 64), (96,), (64, 48), (64,)]),
    "project": (_turned, [(70, 64), (160, 64), (160,), (35, 16), (35, 16)]),
    "cross_entropy": (_nats, [(70, 64), (9, 64), (9,)]),
    "linear_attention": (_attention, [*QKV, *SUMS]),
    "linear_attention, all": (partial(_attention, causal=False), [*QKV, *SUMS]),
    "linear_attention, taylor": (
        partial(_attention, feature_map="taylor"), [(2, 40, 2, 4), (2, 40, 2, 4), QKV[2], (2, 2, 15, 5), (2, 2, 15)],
    ),
    "linear_attention_step": (_step, [(3, 2, 8), (3, 2, 8), (3, 2, 5), (3, 2, 8, 5), (3, 2, 8)]),
    "softmax_attention": (partial(_first, softmax_attention), QKV),
    "sliding_window_attention": (partial(_first, sliding_window_attention, window=5), QKV),
    "decayed_attention": (partial(_first, decayed_attention), [*QKV, (2, 40, 2)]),
    "delta_rule": (partial(_first, delta_rule), [*QKV, (2, 40, 2)]),
    "delta_rule by channel": (partial(_first, delta_rule), [*QKV, (2, 40, 2), (2, 40, 2, 8)]),
    "wkv7": (
        partial(_recurrent, wkv7, Tensor.clone),
        [(2, 40, 2, 8), (2, 40, 2, 8), *QKV[1:], (2, 40, 2, 8), (2, 40, 2, 8), (2, 2, 8, 5)],
    ),
    "selective_scan": (
        partial(_recurrent, selective_scan, Tensor.clone),
        [(2, 20, 9), (2, 20, 9), (9, 4), (2, 20, 4), (2, 20, 4), (2, 9, 4, 1)],
    ),
    "selective_scan_step": (
        partial(_recurrent_step, selective_scan_step, Tensor.clone),
        [(2, 9), (2, 9), (9, 4), (2, 4), (2, 4), (2, 9, 4, 1)],
    ),
    "wkv": (partial(_recurrent, wkv, _sums), [(2, 20, 9), (2, 20, 9), (9,), (9,), (2, 1, 3, 9)]),
    "wkv_step": (partial(_recurrent_step, wkv_step, _sums), [(2, 9), (2, 9), (9,), (9,), (2, 1, 3, 9)]),
}  # fmt: skip


class Own(Tensor):
    """A user's subclass."""


def _apart(x: Tensor) -> Tensor:
    """Every third number of a larger tensor."""
    return torch.stack((x, x + 100, x - 100), dim=-1)[..., 0]


def _imaginary(x: Tensor) -> Tensor:
    return torch.complex(x, -x).conj().imag


def _offset(x: Tensor) -> Tensor:
    return torch.cat([x.new_full((3,), 7.0), x.flatten(), x.new_full((3,), 7.0)])[3:-3].view(x.shape)


def _turned_round(x: Tensor) -> Tensor:
    return x.permute(*reversed(range(x.ndim))).contiguous().permute(*reversed(range(x.ndim)))


def _made_in_inference(x: Tensor) -> Tensor:
    with torch.inference_mode():
        return x.clone()


LYING: dict[str, Callable[[Tensor], Tensor]] = {  # the numbers may differ from x; they are those of `plain_copy`
    "every third number": _apart,
    "one number for all": lambda x: x.flatten()[:1].view([1] * x.ndim).expand(x.shape),
    "one row for all": lambda x: x[:1].expand(x.shape),
    "axes turned round": _turned_round,
    "inside a larger storage": _offset,
    "every other row": lambda x: x.repeat_interleave(2, dim=0)[::2],
    "negated lazily": lambda x: torch._neg_view(-x),
    "negated lazily, every third": lambda x: torch._neg_view(_apart(-x)),
    "imaginary part of a conjugate": _imaginary,
    "a parameter": torch.nn.Parameter,
    "made in inference mode": _made_in_inference,
    "a subclass": lambda x: x.as_subclass(Own),
}


def plain_copy(x: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    x = x.detach().as_subclass(Tensor)
    return x.resolve_neg().to(dtype).clone(memory_format=torch.contiguous_format)


def drawn(name: str, seed: int = 0) -> list[Tensor]:
    g = torch.Generator().manual_seed(seed)
    given = [torch.randn(shape, generator=g) for shape in OPS[name][1]]
    if name.startswith("linear"):
        given[-2:] = [x.abs() for x in given[-2:]]
    if name == "decayed_attention":
        given[3] = -given[3].abs() / 8
    if name.startswith("selective_scan"):
        given[1:3] = given[1].sigmoid(), -given[2].sigmoid()
    if name.startswith("wkv"):
        given[2], given[-1] = given[2].sigmoid(), given[-1].abs() + 1
    if name.startswith("delta_rule"):
        given[1], given[3] = torch.nn.functional.normalize(given[1], dim=-1), given[3].sigmoid()
        given[4:] = [-x.abs() / 8 for x in given[4:]]
    if name == "wkv7":
        given[1], given[5] = -given[1].abs() / 8, given[5].sigmoid()
        given[4] = torch.nn.functional.normalize(given[4], dim=-1) / 2  # also where one number stands for all
    return given


def tensors(found: Any) -> tuple[Tensor, ...]:
    return (found,) if isinstance(found, Tensor) else tuple(found)


def close(got: Any, want: Any, what: str, tolerance: float = 5e-5) -> None:
    for i, (a, b) in enumerate(zip(tensors(got), tensors(want), strict=True)):
        assert a.shape == b.shape, what
        off = (plain_copy(a) - plain_copy(b)).abs().max() / plain_copy(b).abs().max().clamp(min=1e-3)
        assert off <= tolerance, f"{what}: result {i} is off by {off:.1e}"
