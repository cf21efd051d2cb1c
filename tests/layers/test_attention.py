"""Attention maps: the weights of an attention layer, for every kernel, are those its output is made of."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import linnet
from linnet.feature_maps import FEATURE_MAPS
from linnet.layers import Attention, LinearAttention, build_mixer

CLOSE = {"atol": 1e-10, "rtol": 1e-10}  # float64
EPS = 1e-6  # of linear attention
B, T, E, H = 2, 9, 24, 4
NAMES = (*FEATURE_MAPS, "softmax", "window", "lsh")
OPTIONS: dict[str, dict[str, Any]] = {"window": {"window": 4}, "lsh": {"n_buckets": 4, "span": 2}}
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "grouped": {"n_kv_heads": 2},
    "rotary": {"rotary": True, "key_dim": 4, "head_dim": 3},
    "both ways": {"causal": False},
}
CANNOT = {("lsh", "grouped"), ("window", "both ways")}
CASES = [(name, variant) for name in NAMES for variant in VARIANTS if (name, variant) not in CANNOT]


def layer(name: str, variant: str = "plain") -> Attention:
    torch.manual_seed(0)
    made = build_mixer(name, d_model=E, n_heads=H, options=OPTIONS.get(name), **VARIANTS[variant]).double()
    for parameter in made.parameters():
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    assert isinstance(made, Attention)
    return made


def inputs() -> Tensor:
    return torch.randn(B, T, E, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("name", "variant"), CASES)
def test_the_map_times_the_values_is_the_output(name: str, variant: str) -> None:
    made, x = layer(name, variant), inputs()
    weights = linnet.attention_map(made, x)
    assert weights.shape == (B, H, T, T)
    v = made.shared(made.project(x, None)[2])  # [B,T,H,V]
    out = torch.einsum("bhts,bshv->bthv", weights, v)
    torch.testing.assert_close(made.out(out.flatten(2)), made(x)[0], **CLOSE)


@pytest.mark.parametrize(("name", "variant"), CASES)
def test_rows_sum_to_one_and_do_not_look_ahead(name: str, variant: str) -> None:
    made, x = layer(name, variant), inputs()
    weights = linnet.attention_map(made, x)
    want = torch.ones(B, H, T, dtype=torch.float64)
    if isinstance(made, LinearAttention):  # almost: its denominator has EPS more than the sum of the scores
        q, k, *_ = made.project(x, None)
        k = made.shared(k)
        how: dict[str, Any] = {"feature_map": made._mapped[0], "causal": made.causal, "normalize": False}
        scores = linnet.linear_attention(q, k, torch.ones_like(k[..., :1]), **how)[0][..., 0].transpose(1, 2)
        want = scores / (scores + EPS)
    torch.testing.assert_close(weights.sum(-1), want, **CLOSE)
    ahead = weights.triu(1)
    assert bool(ahead.any()) == (variant == "both ways")


def test_a_window_and_a_bucket_leave_out_what_they_do_not_see() -> None:
    window = linnet.attention_map(layer("window"), inputs())
    assert torch.equal(window != 0, (torch.ones(T, T).tril() - torch.ones(T, T).tril(-4)).bool().expand(B, H, T, T))
    lsh = linnet.attention_map(layer("lsh"), inputs())
    assert not lsh.diagonal(dim1=-2, dim2=-1)[lsh.tril(-1).any(-1)].any()  # itself only when alone
    assert (lsh != 0).sum(-1).max() <= 4 * 2  # rounds times span


@pytest.mark.parametrize("name", ["softmax", "elu", "rebased"])
def test_the_map_has_a_gradient(name: str) -> None:
    made, x = layer(name), inputs().requires_grad_()
    weight = torch.linspace(-1, 1, T, dtype=torch.float64)
    (grad,) = torch.autograd.grad((linnet.attention_map(made, x) * weight).sum(), x)
    assert grad.abs().amax((0, 2)).min() > 0


def test_a_convolution_has_no_map() -> None:
    with pytest.raises(ValueError, match="BaseConv has no attention map"):
        linnet.attention_map(build_mixer("conv", d_model=E, n_heads=H), inputs())
