"""Every sequence op as one row: how to draw its inputs, its float64 truth, and what its state is."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import elu, normalize

import linnet
from linnet.ops.conv import naive as conv_naive
from linnet.ops.conv import short_conv as conv
from linnet.ops.gated import decay, delta, selective_scan, wkv, wkv7
from linnet.ops.gated import naive as gated_naive
from linnet.ops.linear import attention as linear
from linnet.ops.linear import naive as linear_naive
from linnet.ops.softmax import full, lsh, window
from linnet.ops.softmax import naive as softmax_naive
from linnet.ops.state import BaseState, ConvState, KVState, MatrixState, State, WindowState

H, D, V, E, N, K, SPAN, WINDOW = 2, 4, 3, 5, 4, 3, 3, 4
Inputs = dict[str, Tensor]
Truth = Callable[[Inputs, Tensor | None], tuple[Tensor, ...]]  # inputs, mask -> out and, where it is a sum, the state


class Row(NamedTuple):
    op: str  # its name in linnet
    module: ModuleType
    state: type[BaseState]
    draw: Callable[[torch.Generator, int, int], Inputs]  # batch and length -> inputs in float64, in the op's order
    truth: Truth
    out: str  # the input whose dtype the output has
    fixed: tuple[str, ...] = ()  # inputs without a time axis
    mixed: tuple[str, ...] = ()  # inputs whose dtype may differ from the others
    options: dict[str, Any] = {}  # noqa: RUF012
    sizes: dict[str, int] = {}  # noqa: RUF012  for explain_dispatch
    value: Callable[[Any], tuple[Tensor, ...]] = tuple  # what a state stands for

    def inputs(self, batch: int, length: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Inputs:
        drawn = self.draw(torch.Generator().manual_seed(seed), batch, length)
        return {name: x.to(dtype) for name, x in drawn.items()}

    def __call__(self, inputs: Inputs, **how: Any) -> tuple[Tensor, Any]:
        return getattr(linnet, self.op)(*inputs.values(), **self.options, **how)

    def step(self, inputs: Inputs, state: Any, **how: Any) -> tuple[Tensor, Any]:
        """One token, inputs [B,...]."""
        options = {name: x for name, x in self.options.items() if name != "causal"}
        return getattr(linnet, f"{self.op}_step")(*inputs.values(), state=state, **options, **how)

    def part(self, inputs: Inputs, at: slice | int) -> Inputs:
        return {name: x if name in self.fixed else x[:, at] for name, x in inputs.items()}

    @property
    def sums(self) -> bool:
        """True when the state is a sum in the widest dtype, not a copy of inputs."""
        return self.state in (State, MatrixState)


def _normal(g: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=g, dtype=torch.float64)


def _uniform(g: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(*shape, generator=g, dtype=torch.float64)


def _qkv(g: torch.Generator, batch: int, length: int) -> Inputs:
    return {name: _normal(g, batch, length, H, width) for name, width in (("q", D), ("k", D), ("v", V))}


def _unit(g: torch.Generator, batch: int, length: int) -> Inputs:
    drawn = _qkv(g, batch, length)
    return drawn | {"k": normalize(drawn["k"], dim=-1)}


def _scan(g: torch.Generator, batch: int, length: int) -> Inputs:
    x, dt, a = _normal(g, batch, length, E), _uniform(g, batch, length, E), -_uniform(g, E, N) - 0.1
    return {"x": x, "dt": dt, "a": a, "b": _normal(g, batch, length, N), "c": _normal(g, batch, length, N)}


def _wkv(g: torch.Generator, batch: int, length: int) -> Inputs:
    k, v = _normal(g, batch, length, E), _normal(g, batch, length, E)
    return {"k": k, "v": v, "decay": _uniform(g, E) + 0.01, "bonus": _normal(g, E)}


def _wkv7(g: torch.Generator, batch: int, length: int) -> Inputs:
    shape = (batch, length, H, D)
    drawn = {"r": _normal(g, *shape), "decay": -_uniform(g, *shape), "k": _normal(g, *shape)}
    drawn["v"] = _normal(g, batch, length, H, V)
    return drawn | {"remove": normalize(_normal(g, *shape), dim=-1), "rate": _uniform(g, *shape)}


def _lsh(g: torch.Generator, batch: int, length: int) -> Inputs:
    q, v = _normal(g, batch, length, H, D), _normal(g, batch, length, H, V)
    return {"q": q, "v": v, "rotations": _normal(torch.Generator().manual_seed(1), 2, H, 2, D)}


def _conv(g: torch.Generator, batch: int, length: int) -> Inputs:
    return {"x": _normal(g, batch, length, E), "weight": _normal(g, E, K), "bias": _normal(g, E)}


def _linear(x: Inputs, mask: Tensor | None) -> tuple[Tensor, ...]:
    return linear_naive.linear_attention(*x.values(), features=lambda y: elu(y) + 1, mask=mask)


def _gated(name: str) -> Truth:
    def truth(x: Inputs, mask: Tensor | None) -> tuple[Tensor, ...]:
        return getattr(gated_naive, name)(*x.values(), mask=mask)

    return truth


def _softmax(name: str, **options: Any) -> Truth:
    def truth(x: Inputs, mask: Tensor | None) -> tuple[Tensor, ...]:
        return (getattr(softmax_naive, name)(*x.values(), scale=D**-0.5, mask=mask, **options),)

    return truth


def _matrix(state: MatrixState) -> tuple[Tensor, ...]:
    return (state.s,)


def _average(state: MatrixState) -> tuple[Tensor, ...]:
    return (state.s[:, :, :2] * state.s[:, :, 2:].exp(),)


def _tensors(state: BaseState) -> tuple[Tensor, ...]:
    return tuple(x for x in state.tensors.values() if x.dtype != torch.bool)


TABLE = {
    "linear": Row("linear_attention", linear, State, _qkv, _linear, "v", options={"feature_map": "elu"}),
    "decay by head": Row(
        "decayed_attention", decay, MatrixState,
        lambda g, b, t: _qkv(g, b, t) | {"decay": -_uniform(g, b, t, H)},
        _gated("decayed_attention"), "v", mixed=("decay",), value=_matrix,
    ),
    "decay by channel": Row(
        "decayed_attention", decay, MatrixState,
        lambda g, b, t: _qkv(g, b, t) | {"decay": -_uniform(g, b, t, H, D)},
        _gated("decayed_attention"), "v", mixed=("decay",), value=_matrix,
    ),
    "delta": Row(
        "delta_rule", delta, MatrixState, lambda g, b, t: _unit(g, b, t) | {"beta": _uniform(g, b, t, H)},
        _gated("delta_rule"), "v", mixed=("beta",), value=_matrix,
    ),
    "gated delta": Row(
        "delta_rule", delta, MatrixState,
        lambda g, b, t: _unit(g, b, t) | {"beta": _uniform(g, b, t, H), "decay": -_uniform(g, b, t, H)},
        _gated("delta_rule"), "v", mixed=("beta", "decay"), value=_matrix,
    ),
    "delta by channel": Row(
        "delta_rule", delta, MatrixState,
        lambda g, b, t: _unit(g, b, t) | {"beta": _uniform(g, b, t, H), "decay": -_uniform(g, b, t, H, D)},
        _gated("delta_rule"), "v", mixed=("beta", "decay"), value=_matrix,
    ),
    "selective scan": Row(
        "selective_scan", selective_scan, MatrixState, _scan, _gated("selective_scan"), "x", fixed=("a",),
        mixed=("x", "dt", "a", "b", "c"), sizes={"state_dim": N}, value=_matrix,
    ),
    "wkv": Row(
        "wkv", wkv, MatrixState, _wkv, _gated("wkv"), "v", fixed=("decay", "bonus"),
        mixed=("k", "v", "decay", "bonus"), value=_average,
    ),
    "wkv7": Row(
        "wkv7", wkv7, MatrixState, _wkv7, _gated("wkv7"), "v", mixed=("r", "decay", "k", "v", "remove", "rate"),
        value=_matrix,
    ),
    "softmax": Row("softmax_attention", full, KVState, _qkv, _softmax("softmax_attention"), "v", value=_tensors),
    "window": Row(
        "sliding_window_attention", window, WindowState, _qkv, _softmax("sliding_window_attention", window=WINDOW), "v",
        options={"window": WINDOW}, sizes={"window": WINDOW}, value=_tensors,
    ),
    "lsh": Row(
        "lsh_attention", lsh, KVState, _lsh, _softmax("lsh_attention", span=SPAN), "v", fixed=("rotations",),
        mixed=("rotations",), options={"span": SPAN}, sizes={"span": SPAN, "rounds": 2}, value=_tensors,
    ),
    "conv": Row(
        "short_conv", conv, ConvState, _conv, lambda x, mask: conv_naive.short_conv(*x.values(), mask=mask), "x",
        fixed=("weight", "bias"), mixed=("x", "weight", "bias"), sizes={"kernel_size": K},
    ),
}  # fmt: skip
