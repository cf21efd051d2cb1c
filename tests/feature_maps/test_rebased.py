"""ReBased: the authors' joint norm, the per-head variant, and the paper's ablation family, each against plain torch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from linnet.feature_maps import ReBased
from linnet.feature_maps.rebased import ABLATIONS

FLOAT64 = {"rtol": 1e-10, "atol": 1e-10}
H, D = 3, 4


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def trained(**options: object) -> ReBased:
    feature_map = ReBased(D, H, **options).double()  # type: ignore[arg-type]
    with torch.no_grad():
        for seed, parameter in enumerate(feature_map.parameters()):
            parameter += draw(*parameter.shape, seed=10 + seed)
    return feature_map


def test_joint_norm_is_torch_layer_norm_before_the_split_into_heads() -> None:
    feature_map = trained()
    x = draw(2, 5, H * D)
    for mine, side in ((feature_map.prepare_q, feature_map.q), (feature_map.prepare_k, feature_map.k)):
        theirs = nn.LayerNorm(H * D).double()  # eps 1e-5, as in the authors' code
        assert side is not None
        with torch.no_grad():
            theirs.weight.copy_(side.gamma.flatten())
            theirs.bias.copy_(side.beta.flatten())
        torch.testing.assert_close(mine(x.unflatten(-1, (H, D))), theirs(x).unflatten(-1, (H, D)), **FLOAT64)


def test_per_head_shared_tied_is_one_layer_norm_over_each_head() -> None:
    feature_map = trained(norm_scope="per_head", affine="shared", tie_qk=True)
    x = draw(2, 5, H, D)
    want = layer_norm(x, (D,), feature_map.q.gamma, feature_map.q.beta, eps=1e-5)
    torch.testing.assert_close(feature_map.prepare_q(x), want, **FLOAT64)
    torch.testing.assert_close(feature_map.prepare_k(x), want, **FLOAT64)
    assert sorted(feature_map.state_dict()) == ["q.beta", "q.gamma"]


PAPER = [name for name in ABLATIONS if name.endswith(")^2") or name == "x^2"]


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_rows(name: str) -> None:
    assert len(PAPER) == 5
    feature_map = trained(**ABLATIONS[name])
    q, k = draw(2, 5, H, D, seed=1), draw(2, 5, H, D, seed=2)
    assert feature_map.k is not None
    a, b = q, k
    if "norm" in name:
        a, b = (layer_norm(x, (H, D), eps=1e-5) for x in (a, b))
    if "gamma" in name:
        a, b = a * feature_map.q.gamma, b * feature_map.k.gamma
    if "beta" in name:
        a, b = a + feature_map.q.beta, b + feature_map.k.beta
    want = (a * b).sum(-1) ** 2 / D
    torch.testing.assert_close(feature_map.kernel(q, k), want, **FLOAT64)
    torch.testing.assert_close((feature_map.map_q(q) * feature_map.map_k(k)).sum(-1), want, **FLOAT64)
    assert len(list(feature_map.parameters())) == 2 * (("gamma" in name) + ("beta" in name))


@pytest.mark.parametrize("norm", ["rms", "l2"])
@pytest.mark.parametrize(("scope", "axes"), [("joint", (-2, -1)), ("per_head", (-1,))])
def test_other_norms(norm: str, scope: str, axes: tuple[int, ...]) -> None:
    feature_map = trained(norm=norm, norm_scope=scope, eps=0.01)
    x = draw(2, 5, H, D)
    size = (x.square().mean(axes, True) if norm == "rms" else x.square().sum(axes, True)) + 0.01
    for mine, side in ((feature_map.prepare_q, feature_map.q), (feature_map.prepare_k, feature_map.k)):
        assert side is not None
        torch.testing.assert_close(mine(x), x / size.sqrt() * side.gamma + side.beta, **FLOAT64)


def test_without_a_scope_there_is_no_norm() -> None:
    x = draw(2, 5, H, D)
    for norm in ("layer", "rms", "l2"):
        assert torch.equal(ReBased(D, norm=norm, norm_scope="none", affine="none").prepare_q(x), x)


def test_elementwise_square_is_a_different_kernel() -> None:
    q, k = draw(5, H, D, seed=1), draw(5, H, D, seed=2)
    feature_map = ReBased(D, H, norm_scope="none", affine="none", square="elementwise")
    want = (q.square() * k.square()).sum(-1)
    torch.testing.assert_close(feature_map.kernel(q, k), want, **FLOAT64)
    torch.testing.assert_close((feature_map.map_q(q) * feature_map.map_k(k)).sum(-1), want, **FLOAT64)
    assert feature_map.feature_dim == D


def test_initial_parameters_are_the_papers() -> None:
    feature_map = ReBased(16, 12)
    assert sum(p.numel() for p in feature_map.parameters()) == 4 * 192  # the paper's "+768"
    assert feature_map.feature_dim == 136
    for name, parameter in feature_map.named_parameters():
        assert (parameter == (1.0 if "gamma" in name else 0.0)).all()


@pytest.mark.parametrize("options", [{}, {"norm_scope": "per_head"}, {"norm_scope": "joint", "affine": "none"}])
def test_wrong_number_of_heads(options: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"n_heads=3, head_dim=4\] and received \[2, 2, 4\]"):
        ReBased(D, H, **options).map_q(torch.ones(2, 2, D))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head_dim": 0}, r"head_dim is 0; accepted: a whole number"),
        ({"n_heads": 0}, r"n_heads is 0; accepted: a whole number"),
        ({"norm": "rsm"}, "unknown norm 'rsm'; did you mean 'rms'"),
        ({"norm_scope": "per-head"}, "unknown norm_scope 'per-head'; did you mean 'per_head'"),
        ({"affine": "all"}, "unknown affine 'all'"),
        ({"square": "outr"}, "did you mean 'outer'"),
        ({"eps": 0.0}, r"eps \(0.0\)"),
    ],
)
def test_bad_arguments(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ReBased(**{"head_dim": D, **options})  # type: ignore[arg-type]


def test_wrong_width() -> None:
    with pytest.raises(ValueError, match=r"head_dim=4\] and received \[2, 5\]"):
        ReBased(D, norm_scope="none", affine="shared").map_q(torch.ones(2, 5))
