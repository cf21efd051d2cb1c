"""Mamba the layer: the equations of its file, where its parameters start, its map, forms, padding and bad sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu, softplus

from linnet.layers import Mamba, attention_map
from linnet.models import ModelConfig, build
from linnet.train.optim import split_parameters

CLOSE = {"atol": 1e-10, "rtol": 1e-10}  # float64
B, T, E, N = 2, 9, 6, 3


def layer(**change: Any) -> Mamba:
    torch.manual_seed(0)
    made = Mamba(E, **{"d_state": N, **change}).double()
    for parameter in made.parameters():
        parameter.data.add_(0.3 * torch.randn_like(parameter))
    return made


def inputs() -> Tensor:
    return torch.randn(B, T, E, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def convolved(made: Mamba, x: Tensor) -> tuple[Tensor, Tensor]:
    """u after the convolution and silu, and z: [T,2E] of one row."""
    u, z = made.proj(x).chunk(2, dim=-1)
    padded = torch.cat([u.new_zeros(3, u.shape[1]), u])
    taps = [made.filter[:, i] * padded[i : i + len(u)] for i in range(4)]
    return silu(sum(taps) + made.filter_bias), z


def test_equals_the_equations() -> None:
    made, x = layer(), inputs()
    rows = []
    for row in x:
        u, z = convolved(made, row)
        low, b, c = made.select(u).split([1, N, N], dim=-1)  # rank ceil(6 / 16) = 1
        dt = softplus(made.dt(low) + made.dt_bias)
        h, a, outs = torch.zeros(2 * E, N, dtype=torch.float64), -made.a_log.view(2 * E, N).exp(), []
        for t in range(T):
            h = torch.exp(dt[t, :, None] * a) * h + torch.outer(dt[t] * u[t], b[t])
            outs.append(h @ c[t] + made.skip * u[t])
        rows.append(made.out(torch.stack(outs) * silu(z)))
    torch.testing.assert_close(made(x)[0], torch.stack(rows), **CLOSE)


@pytest.mark.parametrize("form", ["parallel", "chunked", "recurrent"])
def test_forms_agree(form: str) -> None:
    made, x = layer(), inputs()
    want, end = made(x, output_state=True)
    made.form = form
    found, again = made(x, output_state=True)
    torch.testing.assert_close(found, want, **CLOSE)
    torch.testing.assert_close(again.s, end.s, **CLOSE)


def test_the_map_times_what_enters_is_what_leaves() -> None:
    made, x = layer(), inputs()
    weights = attention_map(made, x)
    assert weights.shape == (B, 2 * E, T, T)
    assert not weights.triu(1).any()
    for row in range(B):
        u, z = convolved(made, x[row])
        y = torch.einsum("etj,je->te", weights[row], u)
        torch.testing.assert_close(made.out(y * silu(z)), made(x)[0][row], **CLOSE)


def test_parameters_start_as_in_the_paper() -> None:
    """In a model too, whose own start is for matrices and biases of projections; and none of them decays."""
    model = build(ModelConfig(d_model=64, n_layers=1, n_heads=4, mixer="mamba", vocab_size=16, bias=False))
    made = model.blocks[0].mixer
    dt = softplus(made.dt_bias.detach())
    assert dt.min() > 0.999e-3
    assert dt.max() < 0.1001
    assert ((dt < 0.01).float().mean() - 0.5).abs() < 0.2  # as many below the middle of the logarithms as above
    a = -made.a_log.detach().exp().view(128, 16)
    torch.testing.assert_close(a, -torch.arange(1.0, 17).expand(128, 16))
    assert sum(p.numel() for p in made.parameters()) == 32_640
    free = {id(p) for p in split_parameters(model, decay_all=False)[1]}
    assert all(id(p) in free for p in (made.a_log, made.dt_bias, made.skip, made.filter_bias))


def test_nan_in_the_padding_reaches_no_gradient() -> None:
    made, x = layer(), inputs()
    mask = torch.ones(B, T, dtype=torch.bool)
    mask[:, [0, 4, T - 1]] = False
    made(torch.where(mask[..., None], x, torch.nan), mask=mask)[0][mask].square().sum().backward()
    found = [p.grad for p in made.parameters()]
    made.zero_grad()
    made(x[:, [t for t in range(T) if t not in (0, 4, T - 1)]])[0].square().sum().backward()
    for a, p in zip(found, made.parameters(), strict=True):
        torch.testing.assert_close(a, p.grad, **CLOSE)


def test_autocast_keeps_the_state_wide() -> None:
    made, x = layer().float(), inputs().float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, state = made(x, output_state=True)
        again, _ = made.step(x[:, 0], state)
    assert y.dtype == again.dtype == torch.bfloat16
    assert state.s.dtype == state.x.dtype == torch.float32
    torch.testing.assert_close(y.float(), made(x)[0], atol=0.1, rtol=0.1)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"causal": False}, "'mamba' looks back only"),
        ({"n_heads": 2, "n_kv_heads": 1}, "as many key-value heads"),
        ({"d_state": 0}, "d_state is 0"),
        ({"expand": 1.5}, "expand is 1.5"),
        ({"kernel_size": True}, "kernel_size is True"),
    ],
)
def test_bad_sizes_are_named(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        layer(**change)


def test_key_dim_is_the_size_of_the_state() -> None:
    assert layer(key_dim=5).matrix == (2 * E, 5, 1)
