"""Mamba-2 against its definition written out token by token, and what its map, state, start and options say."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu, softplus

from linnet.layers import Mamba2, attention_map, build_mixer
from linnet.models import ModelConfig, build
from linnet.train.optim import split_parameters

CLOSE = {"atol": 1e-10, "rtol": 1e-10}  # float64
HALF = {"atol": 1e-2, "rtol": 1e-2}
B, T, E, H, N, V = 2, 11, 12, 3, 4, 5
WIDTH, TAPS = H * V, 4


def mixer(**options: Any) -> Mamba2:
    torch.manual_seed(0)
    made = Mamba2(E, H, key_dim=N, head_dim=V, **options).double()
    for parameter in made.parameters():  # away from zeros and ones, where a mistake could hide
        parameter.data.add_(0.3 * torch.randn_like(parameter))
    return made


def inputs() -> Tensor:
    return torch.randn(B, T, E, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def read(layer: Mamba2, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # [T,E] -> v, y [T,H,V], z [T,HV]
    """The recurrence for one sequence, head by head, up to the gate."""
    z, u, dt = layer.proj(x).split([WIDTH, WIDTH + 2 * N, H], dim=-1)
    padded = torch.cat([u.new_zeros(TAPS - 1, u.shape[1]), u])
    s, vs, ys = u.new_zeros(H, N, V), [], []
    for t in range(len(x)):
        conv = layer.filter_bias + sum(layer.filter[:, i] * padded[t + i] for i in range(TAPS))
        values, b, c = silu(conv).split([WIDTH, N, N])
        v, step = values.view(H, V), softplus(dt[t] + layer.dt_bias)
        a = torch.exp(-step * layer.a_log.exp())
        s = torch.stack([a[h] * s[h] + torch.outer(step[h] * b, v[h]) for h in range(H)])
        ys.append(torch.stack([s[h].T @ c + layer.skip[h] * v[h] for h in range(H)]))
        vs.append(v)
    return torch.stack(vs), torch.stack(ys), z


def definition(layer: Mamba2, x: Tensor) -> Tensor:
    _, y, z = read(layer, x)
    gated = y.flatten(1) * silu(z)
    normed = gated / (gated.square().mean(-1, keepdim=True) + 1e-5).sqrt() * layer.norm.weight
    return layer.out(normed)  # type: ignore[no-any-return]


@pytest.mark.parametrize("form", ["auto", "parallel", "recurrent"])
def test_equals_its_definition_with_gradients(form: str) -> None:
    layer, x = mixer(), inputs().requires_grad_()
    layer.form = form
    found, want = layer(x)[0], torch.stack([definition(layer, row) for row in x])
    torch.testing.assert_close(found, want, **CLOSE)
    leaves = [x, *layer.parameters()]
    for got, value in zip(*(torch.autograd.grad(y.square().sum(), leaves) for y in (found, want)), strict=True):
        torch.testing.assert_close(got, value, **CLOSE)


def test_the_map_times_the_values_is_what_is_read() -> None:
    layer, x = mixer(), inputs()
    weights = attention_map(layer, x)
    assert weights.shape == (B, H, T, T)
    assert not weights.triu(1).any()
    for row, weight in zip(x, weights, strict=True):
        v, y, _ = read(layer, row)
        torch.testing.assert_close((weight @ v.transpose(0, 1)).transpose(0, 1), y, **CLOSE)


def test_nan_in_the_padding_reaches_nobody() -> None:
    layer, x = mixer(), inputs()
    mask = torch.ones(B, T, dtype=torch.bool)
    mask[0, 3:6], mask[1, 0] = False, False
    clean, want = layer(x.masked_fill(~mask[..., None], 0.5), mask=mask, output_state=True)
    out, state = layer(x.masked_fill(~mask[..., None], torch.nan), mask=mask, output_state=True)
    torch.testing.assert_close(out[mask], clean[mask], **CLOSE)
    for got, value in zip(state, want, strict=True):
        torch.testing.assert_close(got, value, **CLOSE)
    grads = torch.autograd.grad(out[mask].sum(), list(layer.parameters()))
    assert all(bool(g.isfinite().all()) for g in grads)


def test_the_state_is_the_matrices_and_three_inputs() -> None:
    layer = mixer().float()
    _, state = layer(inputs().float(), output_state=True)
    assert state.s.shape == (B, H, N, V)
    assert state.x.shape == (B, TAPS - 1, WIDTH + 2 * N)
    assert layer.state_bytes(T) == 4 * (H * N * V + 3 * (WIDTH + 2 * N)) == state.nbytes // B


def test_a_wider_input_widens_the_state() -> None:
    layer = mixer()
    _, state = layer(inputs(), layer.empty_state(B), output_state=True)
    assert state.s.dtype == state.x.dtype == torch.float64
    torch.testing.assert_close(layer(inputs(), state)[0], layer(torch.cat([inputs()] * 2, dim=1))[0][:, T:], **CLOSE)


def test_autocast_keeps_a_wide_state() -> None:
    layer, x = mixer().float(), inputs().float()
    with torch.autocast("cpu", dtype=torch.float16):
        out, state = layer(x, output_state=True)
        again, _ = layer.step(x[:, 0], state)
    assert state.s.dtype == state.x.dtype == torch.float32
    torch.testing.assert_close(out.float(), layer(x)[0], **HALF)
    assert bool(again.isfinite().all())


def test_width_by_expand_or_by_head() -> None:
    assert Mamba2(E, H).matrix == (H, 8, 8)  # 2 E / H
    assert Mamba2(E, H, expand=1, key_dim=16).matrix == (H, 16, 4)
    assert Mamba2(E, H, head_dim=5).out.in_features == 15


def test_the_start_survives_a_model_and_vectors_never_decay() -> None:
    model = build(ModelConfig(mixer="mamba2", d_model=16, n_heads=4, n_layers=1, vocab_size=11))
    layer = model.backbone.layers[0].mixer
    assert isinstance(layer, Mamba2)
    dt, a = softplus(layer.dt_bias), layer.a_log.exp()
    assert bool((dt >= 0.999e-3).all() and (dt <= 0.1001).all())
    assert bool((a >= 0.999).all() and (a <= 16.01).all())
    _, vectors = split_parameters(layer, False)
    assert {id(layer.dt_bias), id(layer.a_log), id(layer.skip), id(layer.filter_bias)} <= {id(p) for p in vectors}


@pytest.mark.parametrize(
    ("sizes", "options", "sentence"),
    [
        ({"n_heads": 5}, {}, r"d_model \(24\) must be a multiple of n_heads \(5\)"),
        ({"n_heads": 4, "causal": False}, {}, "mixer 'mamba2' looks back only"),
        ({"n_heads": 4, "n_kv_heads": 2}, {}, "mixer 'mamba2' has as many key-value heads as heads, 4"),
        ({"n_heads": 4}, {"expand": 0}, "expand is 0; accepted: a whole number, 1 or more"),
        ({"n_heads": 4}, {"kernel_size": 2.0}, "kernel_size is 2.0; accepted: a whole number, 1 or more"),
    ],
)
def test_bad_sizes_are_named(sizes: dict[str, Any], options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        build_mixer("mamba2", d_model=E, options=options, **sizes)
