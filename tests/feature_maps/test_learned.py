"""Hedgehog, T2R, DPFP and softmax features against their equations, written out with loops or plain torch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from linnet.feature_maps import DPFP, T2R, Hedgehog, SoftmaxFeatures

FLOAT64 = {"rtol": 1e-10, "atol": 1e-10}
H, D = 3, 4


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_hedgehog_starts_as_softmax_of_x_and_minus_x() -> None:
    x = draw(2, 5, H, D)
    feature_map = Hedgehog(D, H)
    want = torch.cat([x, -x], dim=-1).softmax(-1)
    torch.testing.assert_close(feature_map.map_q(x), want, **FLOAT64)
    torch.testing.assert_close(feature_map.map_k(x), want, **FLOAT64)
    halves = torch.cat([x.softmax(-1), (-x).softmax(-1)], dim=-1)
    torch.testing.assert_close(Hedgehog(D, H, activation="halves")(x), halves, **FLOAT64)
    torch.testing.assert_close(Hedgehog(D, H, activation="exp")(x), torch.cat([x, -x], -1).exp(), **FLOAT64)


@pytest.mark.parametrize("build", [Hedgehog, T2R])
def test_weights_are_per_head_and_separate_for_k_unless_tied(build) -> None:
    x = draw(5, H, D)
    apart, tied = build(D, H, tie_qk=False).double(), build(D, H, tie_qk=True).double()
    with torch.no_grad():
        for part, seed in ((apart.q, 1), (apart.k, 2), (tied.q, 3)):
            part.weight.copy_(draw(H, D, D, seed=seed))
    assert tied.k is None
    assert torch.equal(tied.map_q(x), tied.map_k(x))
    assert not torch.equal(apart.map_q(x), apart.map_k(x))
    before = apart.map_q(x)
    with torch.no_grad():
        apart.q.weight[1] += 1
    changed = (apart.map_q(x) != before).any(-1).any(0)
    assert changed.tolist() == [False, True, False]


def test_t2r_is_relu_of_a_linear_layer_per_head() -> None:
    x = draw(5, H, D)
    feature_map = T2R(D, H, feature_dim=7).double()
    want = torch.stack(
        [
            torch.nn.functional.linear(x[:, h], feature_map.q.weight[h], feature_map.q.bias[h]).relu()  # type: ignore[index]
            for h in range(H)
        ],
        dim=1,
    )
    torch.testing.assert_close(feature_map(x), want, **FLOAT64)
    assert "q.bias" not in T2R(D, bias=False).state_dict()
    assert all(p.abs().max() <= D**-0.5 and p.std() > 0.1 for p in feature_map.parameters())


def test_t2r_initialisation_is_reproducible() -> None:
    one, two = (T2R(D, H, generator=torch.Generator().manual_seed(2)) for _ in range(2))
    assert torch.equal(one.q.weight, two.q.weight)


@pytest.mark.parametrize("nu", [1, 2, 7])
def test_dpfp_is_the_product_of_shifted_rectified_coordinates(nu: int) -> None:
    x = draw(6, D)
    out = DPFP(D, nu=nu)(x)
    for n, row in enumerate(x.tolist()):
        r = [max(v, 0.0) for v in (*row, *(-v for v in row))]
        want = [r[i] * r[(i + j) % (2 * D)] for j in range(1, nu + 1) for i in range(2 * D)]
        torch.testing.assert_close(out[n], torch.tensor(want, dtype=torch.float64), **FLOAT64)


def test_softmax_features_sum_to_one() -> None:
    out = SoftmaxFeatures(D)(draw(6, H, D))
    assert (out > 0).all()
    torch.testing.assert_close(out.sum(-1), torch.ones(6, H, dtype=torch.float64), **FLOAT64)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Hedgehog(0), r"head_dim is 0; accepted: a whole number"),
        (lambda: Hedgehog(D, 0), r"n_heads is 0; accepted: a whole number"),
        (lambda: Hedgehog(D, activation="halve"), "did you mean 'halves'"),
        (lambda: T2R(D, feature_dim=0), r"feature_dim is 0; accepted: a whole number"),
        (lambda: T2R(D, H)(torch.ones(5, 2, D)), r"n_heads=3, head_dim=4\] and received \[5, 2, 4\]"),
        (lambda: DPFP(D, nu=0), r"nu is 0; accepted: a whole number"),
        (lambda: DPFP(D, nu=8), r"nu \(8\) must be at most 2 head_dim - 1 = 7"),
        (lambda: DPFP(D)(torch.ones(5)), r"received \[5\]"),
        (lambda: SoftmaxFeatures(0), r"head_dim is 0; accepted: a whole number"),
        (lambda: SoftmaxFeatures(D)(torch.ones(5)), r"received \[5\]"),
    ],
)
def test_bad_arguments(build, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()
