"""RWKV-4 and RWKV-7 as layers: the equations of their file, their starts, maps, forms, padding and bad sizes."""

from __future__ import annotations

from math import exp
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from linnet.layers import RWKV4, RWKV7, MatrixMixer, attention_map
from linnet.models import ModelConfig, build
from linnet.train.optim import split_parameters

CLOSE = {"atol": 1e-10, "rtol": 1e-10}  # float64
B, T, E, H, D, V = 2, 9, 6, 2, 4, 3
both = pytest.mark.parametrize("name", ["rwkv4", "rwkv7"])


def layer(name: str, **change: Any) -> Any:
    torch.manual_seed(0)
    made: MatrixMixer
    made = RWKV4(E, **change) if name == "rwkv4" else RWKV7(E, **{"n_heads": H, "key_dim": D, "rank": 5, **change})
    for parameter in made.parameters():
        parameter.data.add_(0.3 * torch.randn_like(parameter))
    return made.double()


def inputs() -> Tensor:
    return torch.randn(B, T, E, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def lerp(x: Tensor, share: Tensor) -> Tensor:
    """(1 - share) x_t + share x_{t-1}"""
    before = torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], dim=1)
    return (1 - share) * x + share * before


def seven(made: RWKV7, x: Tensor) -> tuple[Tensor, ...]:
    """r, w, k, v, kappa, a, gate of RWKV-7, heads apart."""
    r, k, v, d, a, g = (lerp(x, share) for share in made.shift.view(6, E))
    r, k, v = made.r(r), made.k(k), made.v(v)
    d = made.decay_bias + made.decay_out(torch.tanh(made.decay_in(d)))
    a = torch.sigmoid(made.rate_bias + made.rate_out(made.rate_in(a)))
    gate = made.gate_out(torch.sigmoid(made.gate_in(g)))
    w = torch.exp(-exp(-0.5) * torch.sigmoid(d))
    kappa = (k * made.remove).view(B, T, H, D)
    kappa = kappa / kappa.square().sum(-1, keepdim=True).sqrt()
    k = k * ((1 - made.replace) + made.replace * a)
    return (*(y.view(B, T, H, D) for y in (r, w, k)), v.view(B, T, H, V), kappa, a.view(B, T, H, D), gate)


def finished(made: RWKV7, x: Tensor, read: Tensor) -> Tensor:
    """What the layer answers when the memory has given `read` [B,T,H,V]."""
    r, _, k, v, _, _, gate = seven(made, x)
    normed = layer_norm(read, (V,), eps=made.norm_eps).flatten(2) * made.norm_weight + made.norm_bias
    now = ((r * k * made.bonus.view(H, D)).sum(-1, keepdim=True) * v).flatten(2)
    return made.out((normed + now) * gate)


def test_rwkv4_equals_the_equations() -> None:
    made, x = layer("rwkv4"), inputs()
    r, k, v = made.r(lerp(x, made.shift_r)), made.k(lerp(x, made.shift_k)), made.v(lerp(x, made.shift_v))
    n = d = torch.zeros(B, E, dtype=torch.float64)
    outs = []
    for t in range(T):
        now = torch.exp(made.bonus + k[:, t])
        outs.append((n + now * v[:, t]) / (d + now))
        fade = torch.exp(-torch.exp(made.decay))
        n, d = fade * n + k[:, t].exp() * v[:, t], fade * d + k[:, t].exp()
    torch.testing.assert_close(made(x)[0], made.out(torch.sigmoid(r) * torch.stack(outs, dim=1)), **CLOSE)


def test_rwkv7_equals_the_equations() -> None:
    """In the paper's own order: S [V,D] from the left, S_t = S_{t-1} (diag(w) - kappa^T (a * kappa)) + v^T k."""
    made, x = layer("rwkv7"), inputs()
    r, w, k, v, kappa, a, _ = seven(made, x)
    S, reads = torch.zeros(B, H, V, D, dtype=torch.float64), []
    for t in range(T):
        c = kappa[:, t]
        change = torch.diag_embed(w[:, t]) - c[..., :, None] * (a[:, t] * c)[..., None, :]
        S = S @ change + v[:, t, :, :, None] * k[:, t, :, None]
        reads.append((S @ r[:, t, :, :, None])[..., 0])
    torch.testing.assert_close(made(x)[0], finished(made, x, torch.stack(reads, dim=1)), **CLOSE)


@both
@pytest.mark.parametrize("form", ["parallel", "chunked", "recurrent"])
def test_forms_agree(name: str, form: str) -> None:
    made, x = layer(name), inputs()
    want, end = made(x, output_state=True)
    made.form = form
    found, again = made(x, output_state=True)
    torch.testing.assert_close(found, want, **CLOSE)
    torch.testing.assert_close(again.s, end.s, **CLOSE)


def test_the_map_of_rwkv4_times_the_values_is_the_average() -> None:
    made, x = layer("rwkv4"), inputs()
    weights = attention_map(made, x)  # [B,E,T,T]
    y = torch.einsum("betj,bje->bte", weights, made.v(lerp(x, made.shift_v)))
    torch.testing.assert_close(made.out(torch.sigmoid(made.r(lerp(x, made.shift_r))) * y), made(x)[0], **CLOSE)
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]), **CLOSE)


def test_the_map_of_rwkv7_times_the_values_is_what_the_memory_gives() -> None:
    made, x = layer("rwkv7"), inputs()
    weights = attention_map(made, x)
    assert weights.shape == (B, H, T, T)
    assert not weights.triu(1).any()
    read = torch.einsum("bhtj,bjhv->bthv", weights, seven(made, x)[3])
    torch.testing.assert_close(finished(made, x, read), made(x)[0], **CLOSE)


@both
def test_only_projections_decay(name: str) -> None:
    model = build(ModelConfig(d_model=64, n_layers=1, n_heads=4, mixer=name, vocab_size=16, bias=False))
    made = model.blocks[0].mixer
    decays = {id(p) for p in split_parameters(model, decay_all=False)[0]}
    assert {n for n, p in made.named_parameters() if id(p) in decays} == {
        n for n, _ in made.named_parameters() if n.endswith(".weight")
    }


def test_rwkv4_has_as_many_parameters_as_the_paper_says() -> None:
    made = RWKV4(64, bias=False)
    assert sum(p.numel() for p in made.parameters()) == 4 * 64 * 64 + 5 * 64
    rates = made.decay.detach().exp()
    torch.testing.assert_close(rates[[0, -1]].log(), torch.tensor([-5.0, 3.0]))


@both
def test_nan_in_the_padding_reaches_no_gradient(name: str) -> None:
    made, x = layer(name), inputs()
    mask = torch.ones(B, T, dtype=torch.bool)
    mask[:, [0, 4, T - 1]] = False
    made(torch.where(mask[..., None], x, torch.nan), mask=mask)[0][mask].square().sum().backward()
    found = [p.grad for p in made.parameters()]
    made.zero_grad()
    made(x[:, [t for t in range(T) if t not in (0, 4, T - 1)]])[0].square().sum().backward()
    for a, p in zip(found, made.parameters(), strict=True):
        torch.testing.assert_close(a, p.grad, **CLOSE)


@both
def test_autocast_keeps_the_state_wide(name: str) -> None:
    made, x = layer(name).float(), inputs().float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, state = made(x, output_state=True)
        again, _ = made.step(x[:, 0], state)
    assert y.dtype == again.dtype == torch.bfloat16
    assert state.s.dtype == state.x.dtype == torch.float32
    torch.testing.assert_close(y.float(), made(x)[0], atol=0.1, rtol=0.1)


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        ("rwkv4", {"causal": False}, "'rwkv4' looks back only"),
        ("rwkv7", {"causal": False}, "'rwkv7' looks back only"),
        ("rwkv7", {"n_kv_heads": 1}, "as many key-value heads"),
        ("rwkv7", {"n_heads": 4}, r"d_model \(6\) must be a multiple of n_heads \(4\)"),
        ("rwkv7", {"rank": 0}, "rank is 0"),
    ],
)
def test_bad_sizes_are_named(name: str, change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        layer(name, **change)
