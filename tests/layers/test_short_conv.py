"""BaseConv and GatedConv against their equations with torch's own convolution; what every mixer shares is elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import conv1d, linear, pad, silu

from linnet.errors import StateError
from linnet.layers.short_conv import BaseConv, GatedConv
from linnet.ops.state import ConvState, KVState

EXACT = {"rtol": 1e-10, "atol": 1e-10}
B, T, E = 2, 9, 6
LAYERS = {
    "base": lambda: BaseConv(E),
    "base, 4 taps": lambda: BaseConv(E, kernel_size=4),
    "gated": lambda: GatedConv(E),
    "gated, narrow": lambda: GatedConv(E, expand=1, kernel_size=2, bias=False),
}


def build(name: str) -> Any:
    torch.manual_seed(0)
    return LAYERS[name]().double()


def inputs() -> Tensor:
    return torch.randn(B, T, E, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()


def convolved(x: Tensor, layer: Any) -> Tensor:
    weight, bias = layer.weight, layer.bias
    past = weight.shape[1] - 1
    return conv1d(pad(x.mT, (past, 0)), weight[:, None], bias, groups=len(bias)).mT


def by_hand(x: Tensor, layer: Any) -> Tensor:
    if isinstance(layer, BaseConv):
        return convolved(x, layer) * linear(x, layer.gate.weight, layer.gate.bias) + x
    u = linear(x, layer.proj.weight, layer.proj.bias)
    u1, u2 = u[..., : layer.width], u[..., layer.width :]
    return linear(silu(convolved(u1, layer)) * u2, layer.out.weight, layer.out.bias)


@pytest.mark.parametrize("name", LAYERS)
def test_is_its_equation_with_all_gradients(name: str) -> None:
    layer, x = build(name), inputs()
    y, none = layer(x)
    want = by_hand(x, layer)
    assert none is None
    torch.testing.assert_close(y, want, **EXACT)
    every = [x, *layer.parameters()]
    ours, theirs = (torch.autograd.grad(v.square().sum(), every) for v in (y, want))
    for got, grad in zip(ours, theirs, strict=True):
        torch.testing.assert_close(got, grad, **EXACT)


@pytest.mark.parametrize("name", LAYERS)
def test_state_is_what_goes_into_the_convolution(name: str) -> None:
    layer, x = build(name), inputs()
    _, state = layer(x, output_state=True)
    past = layer.kernel_size - 1
    assert torch.equal(state.x, layer.split(x)[0][:, T - past :])
    assert layer.empty_state(B, dtype=torch.float64).x.shape == state.x.shape
    assert layer.state_bytes(T, torch.float64) * B == state.nbytes == layer.state_bytes(0, torch.float64) * B
    assert layer.causal


@pytest.mark.parametrize("name", LAYERS)
def test_steps_from_an_empty_state_with_gradients(name: str) -> None:
    layer, x = build(name), inputs()
    state, ys = layer.empty_state(B, dtype=torch.float64), []
    for t in range(T):
        y, state = layer.step(x[:, t], state)
        ys.append(y)
    found, want = torch.stack(ys, dim=1), layer(x)[0]
    torch.testing.assert_close(found, want, **EXACT)
    ours, theirs = (torch.autograd.grad(v.square().sum(), [x, layer.weight, layer.bias]) for v in (found, want))
    for got, grad in zip(ours, theirs, strict=True):
        torch.testing.assert_close(got, grad, **EXACT)


@pytest.mark.parametrize("name", LAYERS)
def test_padding_in_the_middle_leaves_real_outputs_and_gradients(name: str) -> None:
    layer, x = build(name), inputs()
    mask = torch.ones(B, T + 3, dtype=torch.bool)
    mask[:, [0, 4, 5]] = False
    padded = x.new_full((B, T + 3, E), 9.0).masked_scatter(mask[..., None], x)
    found, want = layer(padded, mask=mask)[0][mask].view(B, T, E), layer(x)[0]
    torch.testing.assert_close(found, want, **EXACT)
    every = [x, *layer.parameters()]
    ours, theirs = (torch.autograd.grad(v.square().sum(), every) for v in (found, want))
    for got, grad in zip(ours, theirs, strict=True):
        torch.testing.assert_close(got, grad, **EXACT)


@pytest.mark.parametrize("name", LAYERS)
def test_a_state_of_another_width_of_numbers_is_taken_over(name: str) -> None:
    """Autocast makes the inputs of the convolution narrower than the state that was waiting for them."""
    layer, x = build(name), inputs().detach()
    _, state = layer(x, output_state=True)
    y, new = layer(x, state.to(dtype=torch.float32), output_state=True)
    assert y.dtype == new.x.dtype == torch.float64
    torch.testing.assert_close(y, layer(x, state)[0], rtol=2e-5, atol=2e-5)
    _, new = layer.step(x[:, 0], state.to(dtype=torch.float32))
    assert new.x.dtype == torch.float64


def test_widths_are_those_of_the_paper() -> None:
    """Based: one projection to `expand` model widths, half of it convolved."""
    layer = GatedConv(E, expand=4, kernel_size=3)
    sizes = {name: tuple(p.shape) for name, p in layer.named_parameters()}
    assert sizes == {
        "weight": (2 * E, 3),
        "bias": (2 * E,),
        "proj.weight": (4 * E, E),
        "proj.bias": (4 * E,),
        "out.weight": (E, 2 * E),
        "out.bias": (E,),
    }
    base = BaseConv(E)
    assert sum(p.numel() for p in base.parameters()) == E * 3 + E + E * E + E


def test_filters_begin_as_those_of_torch() -> None:
    torch.manual_seed(0)
    layer = BaseConv(1000, kernel_size=4)
    for x in (layer.weight, layer.bias):
        assert 0.49 < x.abs().max() <= 0.5  # 1 / sqrt(K)
        assert abs(float(x.detach().mean())) < 0.05


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: BaseConv(E, kernel_size=0),
            "kernel_size is 0; .* or more; it is the number of tokens",
        ),
        (lambda: BaseConv(E, kernel_size=2.0), r"kernel_size is 2\.0"),
        (lambda: GatedConv(E, kernel_size=True), "kernel_size is True"),
        (lambda: GatedConv(E, expand=0), "expand is 0; accepted: a whole number"),
        (lambda: GatedConv(5, expand=3), r"expand is 3; .* expand \* d_model even"),
        (lambda: GatedConv(E, expand=1.5), r"expand is 1\.5"),
    ],
)
def test_bad_sizes_are_refused_in_one_sentence(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (KVState(torch.zeros(B, 2, 1, E), torch.zeros(B, 2, 1, E)), "a KVState; accepted here: ConvState"),
        (ConvState(torch.zeros(B, 3, E)), r"shape \[2, 3, 6\]; accepted here: .* = \[2, 2, 6\]"),
    ],
)
def test_states_of_others_are_refused(state: Any, message: str) -> None:
    layer, x = build("base"), inputs()
    with pytest.raises(StateError, match=message):
        layer(x, state)
    with pytest.raises(StateError, match=message):
        layer.step(x[:, 0], state)
