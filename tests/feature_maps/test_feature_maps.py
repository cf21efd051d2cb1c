"""What every feature map must satisfy: width, kernel, one token at a time, gradients, dtype."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from linnet import feature_maps as fm
from linnet.feature_maps import FeatureMap

FLOAT64 = {"rtol": 1e-10, "atol": 1e-10}
FLOAT32 = {"rtol": 2e-5, "atol": 2e-5}
LOW = {torch.bfloat16: 0.05, torch.float16: 0.01}  # relative to the largest feature

H, D = 3, 4
Builder = Callable[[], FeatureMap]

TABLE: dict[str, tuple[Builder, int]] = {
    "identity": (lambda: fm.Identity(D), 4),
    "elu": (lambda: fm.Elu(D), 4),
    "relu": (lambda: fm.Relu(D), 4),
    "relu2": (lambda: fm.SquaredRelu(D), 4),
    "exp": (lambda: fm.Exp(D), 4),
    "polynomial 1": (lambda: fm.Polynomial(D, degree=1), 4),
    "polynomial 2": (lambda: fm.Polynomial(D), 10),
    "polynomial 2 biased": (lambda: fm.Polynomial(D, bias=0.7), 15),
    "polynomial 3": (lambda: fm.Polynomial(D, degree=3, scale=0.3), 20),
    "polynomial 4 biased": (lambda: fm.Polynomial(D, degree=4, bias=1.0), 70),
    "taylor 1": (lambda: fm.Taylor(D, order=1), 5),
    "taylor 2": (lambda: fm.Taylor(D), 15),
    "taylor 3": (lambda: fm.Taylor(D, order=3), 35),
    "taylor full 2": (lambda: fm.TaylorFull(D), 21),
    "taylor full 3": (lambda: fm.TaylorFull(D, order=3, scale=0.4), 85),
    "zero floor": (lambda: fm.ZeroFloor(D), 15),
    "rebased": (lambda: fm.ReBased(D, H), 10),
    "rebased rms": (lambda: fm.ReBased(D, H, norm="rms"), 10),
    "rebased l2 per head": (lambda: fm.ReBased(D, H, norm="l2", norm_scope="per_head"), 10),
    "rebased per head": (lambda: fm.ReBased(D, H, norm_scope="per_head", affine="shared", tie_qk=True), 10),
    "rebased gamma only": (lambda: fm.ReBased(D, H, norm_scope="none", use_beta=False), 10),
    "rebased beta only": (lambda: fm.ReBased(D, H, use_gamma=False), 10),
    "rebased bare": (lambda: fm.ReBased(D, norm_scope="none", affine="none"), 10),
    "rebased elementwise": (lambda: fm.ReBased(D, H, square="elementwise"), 4),
    "favor": (lambda: fm.Favor(D), 8),
    "favor 7": (lambda: fm.Favor(D, num_features=7, orthogonal=False), 7),
    "favor antithetic": (lambda: fm.Favor(D, num_features=10, antithetic=True), 10),
    "random fourier": (lambda: fm.RandomFourier(D, num_features=6), 6),
    "hedgehog": (lambda: fm.Hedgehog(D, H), 8),
    "hedgehog halves": (lambda: fm.Hedgehog(D, H, activation="halves", bias=True), 8),
    "hedgehog exp": (lambda: fm.Hedgehog(D, H, activation="exp", tie_qk=True), 8),
    "t2r": (lambda: fm.T2R(D, H, generator=torch.Generator().manual_seed(1)), 4),
    "t2r wide": (lambda: fm.T2R(D, H, feature_dim=9, tie_qk=False, generator=torch.Generator().manual_seed(1)), 9),
    "dpfp": (lambda: fm.DPFP(D), 8),
    "dpfp 3": (lambda: fm.DPFP(D, nu=3), 24),
    "softmax features": (lambda: fm.SoftmaxFeatures(D), 4),
}
RANDOM = ("favor", "random fourier")
UNBOUNDED = ("exp", "hedgehog exp", "polynomial 3", "polynomial 4", "taylor 3", "taylor full 3")

every_map = pytest.mark.parametrize("name", TABLE)


def make(name: str) -> FeatureMap:
    """Return the map with its parameters moved off their initial values, so that gamma = 1 or W = I hide nothing."""
    feature_map = TABLE[name][0]()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in feature_map.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    return feature_map


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def sides(feature_map: FeatureMap) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    return feature_map.map_q, feature_map.map_k


@every_map
def test_features_have_the_stated_width(name: str) -> None:
    feature_map = make(name)
    assert feature_map.feature_dim == TABLE[name][1]
    for phi in (*sides(feature_map), feature_map):
        assert phi(draw(2, 5, H, D)).shape == (2, 5, H, TABLE[name][1])
        assert phi(draw(2, 0, H, D)).shape == (2, 0, H, TABLE[name][1])


@pytest.mark.parametrize("name", [n for n in TABLE if not n.startswith(RANDOM)])
def test_inner_product_of_features_is_the_kernel(name: str) -> None:
    feature_map = make(name)
    q, k = draw(2, 5, H, D, seed=1), draw(2, 5, H, D, seed=2)
    inner = (feature_map.map_q(q) * feature_map.map_k(k)).sum(-1)
    if not feature_map.core.has_kernel:
        with pytest.raises(ValueError, match="no closed-form kernel"):
            feature_map.kernel(q, k)
        return
    torch.testing.assert_close(feature_map.kernel(q, k), inner, **FLOAT64)
    assert inner.abs().max() > 1e-3


@every_map
def test_each_token_is_mapped_alone(name: str) -> None:
    feature_map = make(name)
    x = draw(2, 6, H, D)
    for phi in sides(feature_map):
        alone = torch.stack([torch.stack([phi(x[b, t]) for t in range(6)]) for b in range(2)])
        torch.testing.assert_close(phi(x), alone, rtol=1e-12, atol=1e-12)


@every_map
def test_gradients_are_exact(name: str) -> None:
    feature_map = make(name).double()
    x = draw(2, H, D).requires_grad_()
    parameters = tuple(feature_map.parameters())
    for phi in sides(feature_map):
        assert torch.autograd.gradcheck(lambda x, *_, phi=phi: phi(x), (x, *parameters))


@every_map
def test_second_gradients_are_exact(name: str) -> None:
    feature_map = make(name).double()
    assert torch.autograd.gradgradcheck(feature_map.map_q, (draw(1, H, D).requires_grad_(),))


@every_map
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_dtype_is_kept_and_close(name: str, dtype: torch.dtype) -> None:
    feature_map = make(name)
    x = draw(2, 3, H, D).to(dtype)
    for phi, exact in zip(sides(feature_map), sides(make(name)), strict=True):
        out, want = phi(x), exact(x.double())
        assert out.dtype == dtype
        if dtype in LOW:
            assert (out.double() - want).abs().max() <= LOW[dtype] * want.abs().max()
        else:
            torch.testing.assert_close(out.double(), want, **(FLOAT64 if dtype == torch.float64 else FLOAT32))


@every_map
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_a_cast_map_returns_the_dtype_of_its_input(name: str, dtype: torch.dtype) -> None:
    feature_map = make(name).to(dtype)
    for given in (torch.float32, dtype):
        out = feature_map.map_k(draw(2, H, D, dtype=given))
        assert out.dtype == given
        assert out.isfinite().all()


@every_map
def test_autocast_changes_nothing(name: str) -> None:
    feature_map = make(name)
    x = draw(2, 3, H, D, dtype=torch.float32)
    plain = [phi(x) for phi in sides(feature_map)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = [phi(x) for phi in sides(feature_map)]
    for a, b in zip(plain, inside, strict=True):
        torch.testing.assert_close(b, a, rtol=0, atol=0)


@every_map
@pytest.mark.parametrize("size", [0.0, 50.0, -50.0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_finite_at_zero_and_at_large_inputs(name: str, size: float, dtype: torch.dtype) -> None:
    feature_map = make(name)
    if name.startswith(UNBOUNDED) and dtype == torch.float16:
        size /= 16  # e^50 and 50^3 exceed 65504, as the docstrings say
    elif name == "hedgehog exp":
        size /= 3  # what overflows is |W x| > 88, and W x is larger than x here
    for x in (torch.full((2, H, D), size, dtype=dtype), size * draw(2, H, D).sign().to(dtype)):
        x.requires_grad_()
        for phi in sides(feature_map):
            features = phi(x)
            (gradient,) = torch.autograd.grad(features.float().sum(), x)
            assert features.isfinite().all()
            assert gradient.isfinite().all()


@every_map
def test_state_dict_round_trip_is_exact(name: str) -> None:
    saved = make(name)
    fresh = TABLE[name][0]()
    if isinstance(fresh, fm.Favor | fm.RandomFourier):
        fresh.redraw(torch.Generator().manual_seed(99))
    fresh.load_state_dict(saved.state_dict())
    x = draw(2, H, D)
    for a, b in zip(sides(saved), sides(fresh), strict=True):
        torch.testing.assert_close(a(x), b(x), rtol=0, atol=0)
    tensors = list(saved.state_dict().values())
    assert len({t.data_ptr() for t in tensors}) == len(tensors)  # shared storage would not save as safetensors


@every_map
def test_compiles_without_a_graph_break(name: str) -> None:
    torch.compiler.reset()
    feature_map = make(name)
    x = draw(2, 3, H, D, dtype=torch.float32)
    compiled = torch.compile(lambda x: feature_map.map_q(x), backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), feature_map.map_q(x), **FLOAT32)


def test_only_random_maps_redraw() -> None:
    with pytest.raises(ValueError, match="Elu is not random"):
        fm.Elu(D).redraw()
