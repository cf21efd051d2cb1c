"""An initial state in half precision is widened: the answer and gradients are those of the same numbers in float32."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from linnet import ops
from linnet.errors import StateError
from linnet.layers import MIXERS, build_mixer
from linnet.ops.decay import decayed_attention, decayed_attention_step
from linnet.ops.delta import delta_rule, delta_rule_step
from linnet.ops.lsh import lsh_attention, lsh_attention_step
from linnet.ops.selective_scan import selective_scan
from linnet.ops.short_conv import short_conv, short_conv_step
from linnet.ops.state import State
from linnet.ops.wkv import wkv
from linnet.ops.wkv7 import wkv7

HALVES = [torch.bfloat16, torch.float16]
halves = pytest.mark.parametrize("half", HALVES, ids=str)
B, T, H, D, V, E, K = 2, 6, 2, 4, 3, 5, 3


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


Q, KEYS, VALUES, GATES = draw(B, T, H, D), draw(B, T, H, D) / 2, draw(B, T, H, V), -draw(B, T, H).abs()
X, WEIGHT, HASH = draw(B, T, E), draw(E, K), draw(2, H, 2, D)
UNIT = torch.nn.functional.normalize(KEYS, dim=-1)
SCAN = (X, X.sigmoid(), -draw(E, D).exp(), draw(B, T, D), draw(B, T, D))
SEVEN = (Q, -KEYS.abs(), KEYS, VALUES, UNIT, KEYS.sigmoid())
WHOLE: dict[str, Callable[..., Any]] = {
    "linear": partial(ops.linear_attention, Q, KEYS, VALUES),
    "linear on torch": partial(ops.linear_attention, Q, KEYS, VALUES, backend="torch", form="recurrent"),
    "softmax": partial(ops.softmax_attention, Q, KEYS, VALUES),
    "window": partial(ops.sliding_window_attention, Q, KEYS, VALUES, window=4),
    "lsh": partial(lsh_attention, Q, VALUES, HASH, span=3),
    "conv": partial(short_conv, X, WEIGHT),
    "decay": partial(decayed_attention, Q, KEYS, VALUES, GATES),
    "delta": partial(delta_rule, Q, UNIT, VALUES, GATES.exp(), GATES),
    "scan": partial(selective_scan, *SCAN),
    "wkv": partial(wkv, X, draw(B, T, E), draw(E).exp(), draw(E)),
    "wkv7": partial(wkv7, *SEVEN),
}
STEPS: dict[str, tuple[str, Callable[..., Any]]] = {
    "linear": ("linear", partial(ops.linear_attention_step, Q[:, 0], KEYS[:, 0], VALUES[:, 0])),
    "softmax": ("softmax", partial(ops.softmax_attention_step, Q[:, 0], KEYS[:, 0], VALUES[:, 0])),
    "window": ("window", partial(ops.sliding_window_attention_step, Q[:, 0], KEYS[:, 0], VALUES[:, 0], window=4)),
    "lsh": ("lsh", partial(lsh_attention_step, Q[:, 0], VALUES[:, 0], HASH, span=3)),
    "conv": ("conv", partial(short_conv_step, X[:, 0], WEIGHT, None)),
    "decay": ("decay", partial(decayed_attention_step, Q[:, 0], KEYS[:, 0], VALUES[:, 0], GATES[:, 0])),
    "delta": ("delta", partial(delta_rule_step, Q[:, 0], UNIT[:, 0], VALUES[:, 0], GATES[:, 0].exp(), GATES[:, 0])),
}


def tensors(state: Any) -> list[Tensor]:
    return [x for x in ([state] if isinstance(state, Tensor) else state) if x is not None]


def changed(state: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The state with `change` applied to its numbers; flags stay."""
    if isinstance(state, Tensor):
        return change(state)
    return type(state)._make(x if x is None or x.dtype == torch.bool else change(x) for x in state)


def leaf(x: Tensor) -> Tensor:
    return x.detach().clone().requires_grad_()


def compared(run: Callable[[Any], tuple[Tensor, Any]], state: Any, half: torch.dtype) -> None:
    """`run` on the half state and on the same numbers in float32."""
    narrow = changed(state, lambda x: leaf(x.to(half)))
    wide = changed(narrow, lambda x: leaf(x.float()))
    (out, new), (want, end) = run(narrow), run(wide)
    assert torch.equal(out, want)
    for a, b in zip(tensors(new), tensors(end), strict=True):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)
    given, same = ([x for x in tensors(s) if x.requires_grad] for s in (narrow, wide))
    grads = [torch.autograd.grad(y.square().sum(), xs, allow_unused=True) for y, xs in ((out, given), (want, same))]
    for x, a, b in zip(given, *grads, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert a.dtype == x.dtype == half
            assert torch.equal(a, b.to(half))


@halves
@pytest.mark.parametrize("name", WHOLE)
def test_every_op_widens(name: str, half: torch.dtype) -> None:
    run = WHOLE[name]
    state = run(output_final_state=True)[1]
    compared(lambda s: run(initial_state=s, output_final_state=True), state, half)


@pytest.mark.parametrize("name", STEPS)
def test_every_step_widens(name: str) -> None:
    source, run = STEPS[name]
    compared(lambda s: run(state=s), WHOLE[source](output_final_state=True)[1], torch.bfloat16)


@pytest.mark.parametrize("name", MIXERS)
def test_every_layer_widens(name: str) -> None:
    torch.manual_seed(0)
    layer = build_mixer(name, d_model=8, n_heads=2)
    x = draw(B, 7, 8)
    _, state = layer(x, output_state=True)
    compared(lambda s: layer(x, s, output_state=True), state, torch.bfloat16)
    compared(lambda s: layer.step(x[:, 0], s), state, torch.bfloat16)


@pytest.mark.parametrize("name", ["decay", "delta", "scan", "wkv", "wkv7", "linear"])
def test_half_inputs_and_a_half_state_are_added_up_in_float32(name: str) -> None:
    run = WHOLE[name]
    narrow = partial(run.func, *(x.bfloat16() for x in run.args), **run.keywords)  # type: ignore[attr-defined]
    state = run(output_final_state=True)[1]
    out, end = narrow(initial_state=changed(state, Tensor.bfloat16), output_final_state=True)
    want, same = narrow(initial_state=changed(state, lambda x: x.bfloat16().float()), output_final_state=True)
    assert torch.equal(out, want)
    assert {x.dtype for x in tensors(end)} == {torch.float32}
    assert all(torch.equal(a, b) for a, b in zip(tensors(end), tensors(same), strict=True))


def test_packed_rows_and_float64_inputs_widen_too() -> None:
    edges = [0, 2, T]
    for name in ("linear", "softmax", "window", "conv"):
        run = WHOLE[name]
        args = [x[:1].double() if x.ndim > 2 else x.double() for x in run.args]  # type: ignore[attr-defined]
        packed = partial(run.func, *args, cu_seqlens=edges, output_final_state=True, **run.keywords)  # type: ignore[attr-defined]
        half = changed(packed()[1], Tensor.half)
        out, end = packed(initial_state=half)
        want, _ = packed(initial_state=changed(half, Tensor.double))
        torch.testing.assert_close(out, want, rtol=1e-12, atol=1e-12)
        assert {x.dtype for x in tensors(end)} <= {torch.float64, torch.bool}


def test_what_is_not_of_one_half_precision_is_refused_as_before() -> None:
    s, z = WHOLE["linear"](output_final_state=True)[1]
    with pytest.raises(StateError, match=r"one dtype out of torch\.float32, torch\.float64"):
        WHOLE["linear"](initial_state=State(s.half(), z))
    cache = WHOLE["softmax"](output_final_state=True)[1]
    with pytest.raises(StateError, match=r"float64 on cpu but k is torch\.float32"):
        WHOLE["softmax"](initial_state=cache.to(dtype=torch.float64))
    narrow = [x.bfloat16() for x in (Q, KEYS, VALUES)]
    with pytest.raises(StateError, match=r"float16 on cpu but k is torch\.bfloat16"):
        ops.softmax_attention(*narrow, initial_state=cache.to(dtype=torch.float16))
