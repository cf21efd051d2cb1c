"""RetNet and GLA against their definitions written out token by token, and what their maps, states and options say."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from linnet.layers import GLA, RetNet, attention_map, build_mixer
from linnet.layers.decay import Decayed
from linnet.ops.gated.decay import decayed_attention
from linnet.train.optim import split_parameters

CLOSE = {"atol": 1e-10, "rtol": 1e-10}  # float64
HALF = {"atol": 1e-2, "rtol": 1e-2}
B, T, E, H, D, V = 2, 11, 12, 3, 4, 5
both = pytest.mark.parametrize("kind", [RetNet, GLA])


def mixer(kind: type[Decayed], **options: Any) -> Decayed:
    torch.manual_seed(0)
    made = kind(E, H, key_dim=D, head_dim=V, **options).double()
    for parameter in made.parameters():  # away from zeros and ones, where a mistake could hide
        parameter.data.add_(0.3 * torch.randn_like(parameter))
    return made


def inputs(length: int = T) -> Tensor:
    return torch.randn(B, length, E, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def factors(layer: Decayed, x: Tensor) -> Tensor:  # [E] -> [H,D]
    if isinstance(layer, RetNet):
        return torch.tensor([1 - 1 / 32, 1 - 1 / 64, 1 - 1 / 128], dtype=torch.float64)[:, None].expand(H, D)
    assert isinstance(layer, GLA)
    return layer.widen(layer.narrow(x)).sigmoid().pow(1 / 16).view(H, D)


def definition(layer: Decayed, x: Tensor) -> Tensor:  # [T,E] -> [T,E]
    """The equations of the module, for one sequence, head by head."""
    s, ys = torch.zeros(H, D, V, dtype=torch.float64), []
    for token in x:
        q, k, v, gate = layer.proj(token).split(layer.widths)
        q, k, v, a = q.view(H, D), k.view(H, D), v.view(H, V), factors(layer, token)
        s = torch.stack([torch.diag(a[h]) @ s[h] + torch.outer(k[h], v[h]) for h in range(H)])
        y = torch.cat([layer.norm(s[h].T @ q[h] / 2) for h in range(H)])  # 2 = sqrt(D)
        ys.append(layer.out(y * gate * gate.sigmoid() if layer.gate else y))
    return torch.stack(ys)


@both
@pytest.mark.parametrize("options", [{}, {"gate": False, "bias": False}], ids=["gate", "plain"])
@pytest.mark.parametrize("form", ["auto", "parallel", "recurrent"])
def test_equals_its_definition_with_gradients(kind: type[Decayed], options: dict[str, Any], form: str) -> None:
    layer, x = mixer(kind, **options), inputs().requires_grad_()
    layer.form = form
    found, want = layer(x)[0], torch.stack([definition(layer, row) for row in x])
    torch.testing.assert_close(found, want, **CLOSE)
    leaves = [x, *layer.parameters()]
    for got, value in zip(*(torch.autograd.grad(y.square().sum(), leaves) for y in (found, want)), strict=True):
        torch.testing.assert_close(got, value, **CLOSE)


@both
def test_the_map_times_the_values_is_what_is_read(kind: type[Decayed]) -> None:
    layer, x = mixer(kind), inputs()
    weights = attention_map(layer, x)
    q, k, v, _ = layer._inputs(x)
    want, _ = decayed_attention(q, k, v, layer.decay(x), form="recurrent")
    assert weights.shape == (B, H, T, T)
    assert not weights.triu(1).any()
    torch.testing.assert_close((weights @ v.transpose(1, 2)).transpose(1, 2), want, **CLOSE)


@both
def test_nan_in_the_padding_reaches_nobody(kind: type[Decayed]) -> None:
    layer, x = mixer(kind), inputs()
    mask = torch.ones(B, T, dtype=torch.bool)
    mask[0, 3:6], mask[1, 0] = False, False
    clean, want = layer(x.masked_fill(~mask[..., None], 0.5), mask=mask, output_state=True)
    out, state = layer(x.masked_fill(~mask[..., None], torch.nan), mask=mask, output_state=True)
    torch.testing.assert_close(out[mask], clean[mask], **CLOSE)
    torch.testing.assert_close(state.s, want.s, **CLOSE)
    grads = torch.autograd.grad(out[mask].sum(), list(layer.parameters()))
    assert all(bool(g.isfinite().all()) for g in grads)


@both
def test_the_state_is_one_matrix_per_head(kind: type[Decayed]) -> None:
    layer = mixer(kind).float()
    _, state = layer(inputs().float(), output_state=True)
    assert state.s.shape == (B, H, D, V)
    assert layer.state_bytes(T) == layer.state_bytes(1) == 4 * H * D * V == state.nbytes // B


@both
def test_a_wider_input_widens_the_state(kind: type[Decayed]) -> None:
    layer = mixer(kind)
    _, state = layer(inputs(), layer.empty_state(B), output_state=True)
    assert state.s.dtype == torch.float64
    torch.testing.assert_close(layer(inputs(), state)[0], layer(torch.cat([inputs()] * 2, dim=1))[0][:, T:], **CLOSE)


@both
def test_autocast_keeps_a_wide_state(kind: type[Decayed]) -> None:
    layer, x = mixer(kind).float(), inputs().float()
    with torch.autocast("cpu", dtype=torch.float16):
        out, state = layer(x, output_state=True)
        again, _ = layer.step(x[:, 0], state)
    assert state.s.dtype == torch.float32
    torch.testing.assert_close(out.float(), layer(x)[0], **HALF)
    assert bool(again.isfinite().all())


def test_rates_of_retnet_are_fixed_and_double_their_reach() -> None:
    layer = RetNet(E, H)
    torch.testing.assert_close(1 / (1 - layer.decay(inputs().float())[0, 0].exp()), torch.tensor([32.0, 64.0, 128.0]))
    assert not [name for name, _ in layer.named_parameters() if "decay" in name]


def test_gla_starts_near_one_and_its_gate_has_low_rank() -> None:
    layer = GLA(E, H, rank=2)
    with torch.no_grad():
        layer.widen.weight.zero_()
        layer.widen.bias.zero_()
    torch.testing.assert_close(layer.decay(inputs().float()).exp(), torch.full((B, T, H, E // H), 0.5 ** (1 / 16)))
    assert layer.narrow.weight.shape == (2, E)
    assert layer.widen.weight.shape == (E, 2)


@both
def test_only_matrices_decay(kind: type[Decayed]) -> None:
    matrices, vectors = split_parameters(kind(E, H), False)
    assert all(p.ndim == 2 for p in matrices)
    assert all(p.ndim == 1 for p in vectors)


@pytest.mark.parametrize(
    ("name", "sizes", "options", "sentence"),
    [
        ("retnet", {"n_heads": 5}, {}, r"d_model \(12\) must be a multiple of n_heads \(5\)"),
        ("retnet", {"n_heads": 4, "causal": False}, {}, "mixer 'retnet' looks back only"),
        ("gla", {"n_heads": 4, "n_kv_heads": 2}, {}, "mixer 'gla' has as many key-value heads as heads, 4"),
        ("gla", {"n_heads": 4}, {"rank": 0}, "rank is 0; accepted: a whole number, 1 or more"),
    ],
)
def test_bad_sizes_are_named(name: str, sizes: dict[str, Any], options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        build_mixer(name, d_model=E, options=options, **sizes)
