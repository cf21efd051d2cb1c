"""The delta mixers against their definition written out token by token, their maps, their state and their options."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from linnet.errors import StateError
from linnet.layers import KDA, Delta, GatedDelta, attention_map, build_mixer
from linnet.models import ModelConfig, build
from linnet.ops.state import MatrixState
from linnet.train.optim import split_parameters

CLOSE = {"atol": 1e-10, "rtol": 1e-10}  # float64
SINGLE = {"atol": 2e-5, "rtol": 2e-5}
B, T, E, H, D, V = 2, 11, 12, 2, 3, 5
CASES: list[tuple[str, dict[str, Any]]] = [
    ("delta", {}),
    ("delta", {"conv": 0, "negative": True, "gate": True}),
    ("gated_delta", {}),
    ("gated_delta", {"conv": 2, "gate": False}),
    ("delta", {"key_heads": 1, "conv_bias": True, "scale": 1.0, "norm_eps": 0.1, "qk_eps": 0.2}),
    ("gated_delta", {"scale": 0.7, "norm_eps": 1e-3}),
    ("kda", {}),
    ("kda", {"rank": 2, "gate": False, "conv": 0, "key_heads": 1}),
]
every_case = pytest.mark.parametrize(("name", "options"), CASES)


def mixer(name: str, **options: Any) -> Any:
    torch.manual_seed(0)
    made = build_mixer(name, d_model=E, n_heads=H, key_dim=D, head_dim=V, options=options).double()
    for parameter in made.parameters():
        parameter.data.add_(0.3 * torch.randn_like(parameter))
    return made


def inputs(length: int = T) -> Tensor:
    return torch.randn(B, length, E, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def by_hand(layer: Any, x: Tensor) -> Tensor:  # [T,E] -> [T,E], one sequence
    """The equations of the module's docstring."""
    made, rows, now = layer.proj(x), [], torch.zeros(H, D, V, dtype=torch.float64)
    width, keys, taps = layer.widths[0], layer.key_heads, layer.filter
    for t in range(len(x)):
        u = made[t, :width]
        if taps is not None:
            u = sum(taps[:, taps.shape[1] - 1 - j] * made[t - j, :width] for j in range(min(taps.shape[1], t + 1)))
            u = u if layer.filter_bias is None else u + layer.filter_bias
        u = u * u.sigmoid()
        q, k = u[: keys * D].view(keys, D), u[keys * D : 2 * keys * D].view(keys, D)
        q, k = (y / (y.square().sum(-1, keepdim=True) + layer.qk_eps).sqrt() for y in (q, k))
        q, k = (torch.stack([y[h * keys // H] for h in range(H)]) for y in (q * layer.scale, k))
        v, rest = u[2 * keys * D :].view(H, V), made[t, width:]
        b, rest = layer.top * rest[:H].sigmoid(), rest[H:]
        a = torch.ones(H, 1, dtype=torch.float64)
        if isinstance(layer, GatedDelta):
            steps, rest = (1 + (rest[:H] + layer.dt_bias).exp()).log()[:, None], rest[H:]
            a = (-layer.a_log.exp()[:, None] * steps).exp()
        if isinstance(layer, KDA):
            steps = (1 + (layer.widen.weight @ layer.narrow.weight @ x[t] + layer.dt_bias).exp()).log()
            a = (-layer.a_log.exp()[:, None] * steps.view(H, D)).exp()
        heads = []
        for h in range(H):
            erase = torch.eye(D, dtype=torch.float64) - b[h] * torch.outer(k[h], k[h])
            heads.append(erase @ (a[h][:, None] * now[h]) + b[h] * torch.outer(k[h], v[h]))
        now = torch.stack(heads)
        out = torch.einsum("hdv,hd->hv", now, q)
        out = layer.norm.weight * out / (out.square().mean(-1, keepdim=True) + layer.norm.eps).sqrt()
        out = out.flatten()
        gate = rest * rest.sigmoid() if layer.gate else torch.ones_like(out)
        if isinstance(layer, KDA) and layer.gate:
            gate = layer.widen_gate(layer.narrow_gate(x[t])).sigmoid()
        rows.append(layer.out(out * gate))
    return torch.stack(rows)


@every_case
@pytest.mark.parametrize("form", ["auto", "parallel", "chunked", "recurrent"])
def test_equals_its_definition(name: str, options: dict[str, Any], form: str) -> None:
    layer, x = mixer(name, **options), inputs()
    layer.form = form
    torch.testing.assert_close(layer(x)[0], torch.stack([by_hand(layer, row) for row in x]), **CLOSE)


@every_case
def test_the_map_is_what_the_values_are_weighed_by(name: str, options: dict[str, Any]) -> None:
    layer, x = mixer(name, **options), inputs()
    (_, _, v, *_), gate, _ = layer._inputs(x, layer.empty_state(B, dtype=x.dtype), None)
    weights = attention_map(layer, x)
    assert weights.shape == (B, H, T, T)
    out = layer.norm(torch.einsum("bhtj,bjhv->bthv", weights, v)).flatten(2)
    out = out if gate is None else out * gate
    torch.testing.assert_close(layer.out(out), layer(x)[0], **CLOSE)
    assert (weights.triu(1) == 0).all()


@every_case
def test_what_stands_in_the_padding_reaches_no_gradient(name: str, options: dict[str, Any]) -> None:
    layer, x = mixer(name, **options), inputs()
    mask = torch.ones(B, T, dtype=torch.bool)
    mask[0, [0, 4, 5, T - 1]] = False
    found = []
    for value in (0.0, float("nan")):
        y, state = layer(torch.where(mask[..., None], x, value), mask=mask, output_state=True)
        found.append([y[mask], *state, *torch.autograd.grad(y[mask].square().sum(), list(layer.parameters()))])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    torch.testing.assert_close(found[0][0][: T - 4], layer(x[:1, mask[0]])[0][0], **CLOSE)


@every_case
def test_the_state_is_a_matrix_and_the_inputs_of_the_convolution(name: str, options: dict[str, Any]) -> None:
    layer, taps = mixer(name, **options), options.get("conv", 4)
    numbers = H * D * V + max(taps - 1, 0) * (2 * layer.key_heads * D + H * V)
    assert layer.state_bytes(7) == layer.state_bytes(10**6) == 4 * numbers
    _, state = layer.float()(inputs().float(), output_state=True)
    assert state.nbytes == B * 4 * numbers
    with torch.autocast("cpu", torch.float16):
        y, half = layer(inputs().float(), state, output_state=True)
    assert (y.dtype, half.s.dtype, half.x.dtype) == (torch.float16, torch.float32, torch.float32)


@every_case
def test_float32(name: str, options: dict[str, Any]) -> None:
    layer, x = mixer(name, **options), inputs(100)
    want, _ = layer(x)
    found, _ = layer.float()(x.float())
    torch.testing.assert_close(found.double(), want, **SINGLE)


def test_negative_reaches_beyond_one() -> None:
    for negative, top in ((False, 1.0), (True, 2.0)):
        layer = mixer("delta", negative=negative)
        (_, _, _, beta, decay), _, _ = layer._inputs(100 * inputs(), layer.empty_state(B, dtype=torch.float64), None)
        assert decay is None
        assert 0.9 * top < beta.max() <= top
        assert 0 <= beta.min() < 0.1


def test_decay_starts_as_in_mamba_2_and_is_left_alone_by_the_model_and_by_weight_decay() -> None:
    """Steps from 0.001 to 0.1, A from 1 to 16; a model that sets all its projections anew does not touch them."""
    torch.manual_seed(0)
    net = build(ModelConfig(mixer="gated_delta", d_model=64, n_heads=32, n_layers=1, vocab_size=5))
    layer = next(module for module in net.modules() if isinstance(module, GatedDelta))
    steps, rate = torch.nn.functional.softplus(layer.dt_bias), layer.a_log.exp()
    assert 9.9e-4 < steps.min() < 3e-3 < 3e-2 < steps.max() < 0.101
    assert 1 <= rate.min() < 3 < 14 < rate.max() <= 16
    _, left = split_parameters(net, decay_all=False)
    assert {id(layer.dt_bias), id(layer.a_log), id(layer.norm.weight)} <= {id(p) for p in left}


def test_channels_of_kda_decay_apart() -> None:
    """With a decay that only one channel has, the others keep what they hold."""
    layer = mixer("kda", conv=0)
    decay = layer.decay(inputs(), torch.zeros(0))
    assert decay.shape == (B, T, H, D)
    assert (decay < 0).all()
    assert decay[..., 0].sub(decay[..., 1]).abs().min() > 0
    with pytest.raises(ValueError, match="rank is 0; accepted: a whole number, 1 or more"):
        KDA(E, H, rank=0)


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [
        ({"causal": False}, "'delta' looks back only, but causal is False"),
        ({"n_kv_heads": 1}, "n_kv_heads is 1"),
        ({"n_heads": 5}, r"d_model \(12\) must be a multiple of n_heads \(5\)"),
        ({"conv": -1}, "conv is -1; accepted: a whole number, 0 or more; it is the number of tokens"),
        ({"conv": True}, "conv is True"),
        ({"key_heads": 3}, "key_heads is 3; accepted: a divisor of n_heads, 2"),
        ({"norm_eps": 0.0}, r"norm_eps \(0.0\) must be a finite number above 0"),
        ({"scale": float("nan")}, "scale is nan"),
    ],
)
def test_bad_sizes_are_named(sizes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Delta(**{"d_model": E, "n_heads": H, **sizes})


def test_a_state_of_another_layer_is_refused() -> None:
    layer, x = mixer("delta"), inputs()
    good = layer.empty_state(B, dtype=torch.float64)
    with pytest.raises(StateError, match=r"accepted here: \[B,H,D,V\] = \[2, 2, 3, 5\]"):
        layer(x, MatrixState(good.s.mT, good.x))
    with pytest.raises(StateError, match=r"\[rows, taps - 1, channels\] = \[2, 3, 22\]"):
        layer(x, MatrixState(good.s, good.x[:, 1:]))
