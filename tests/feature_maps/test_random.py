"""Random maps: unbiased, more accurate with more features, redrawn only on request."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from linnet.feature_maps import Favor, RandomFourier
from linnet.feature_maps.random import RandomMap, orthogonal_rows

D = 8


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def pairs(n: int) -> tuple[Tensor, Tensor]:
    """Small vectors: the relative variance of FAVOR+ grows like exp(scale |q + k|^2)."""
    return draw(n, D, seed=1) / 2, draw(n, D, seed=2) / 2


def favor(num_features: int, seed: int = 0) -> RandomMap:
    return Favor(D, num_features=num_features, seed=seed)


def favor_gaussian(num_features: int, seed: int = 0) -> RandomMap:
    return Favor(D, num_features=num_features, seed=seed, orthogonal=False)


def favor_antithetic(num_features: int, seed: int = 0) -> RandomMap:
    return Favor(D, num_features=num_features, seed=seed, antithetic=True)


def fourier(num_features: int, seed: int = 0) -> RandomMap:
    return RandomFourier(D, num_features=num_features, seed=seed)


MAPS = [favor, favor_gaussian, favor_antithetic, fourier]
every_map = pytest.mark.parametrize("build", MAPS, ids=lambda b: b.__name__)


def error(feature_map: RandomMap, q: Tensor, k: Tensor) -> Tensor:
    inner = (feature_map.map_q(q) * feature_map.map_k(k)).sum(-1)
    return inner / feature_map.kernel(q, k) - 1


@every_map
def test_error_shrinks_like_the_root_of_the_number_of_features(build) -> None:
    q, k = pairs(200)
    coarse, fine = (
        torch.stack([error(build(m, seed=s), q, k) for s in range(8)]).square().mean().sqrt() for m in (64, 4096)
    )
    assert fine < 0.1
    assert 4 < coarse / fine < 16  # sqrt(4096 / 64) = 8


@every_map
def test_estimate_is_unbiased(build) -> None:
    q, k = pairs(1)
    errors = torch.cat([error(build(16, seed=s), q, k) for s in range(1000)])
    standard_error = errors.std() / 1000**0.5
    assert errors.mean().abs() < 4 * standard_error < 0.05


def test_variance_follows_the_closed_form_and_is_lower_when_orthogonal_or_antithetic() -> None:
    """Independent rows, F features: (e^z - 1) / F relative, z = scale |q + k|^2; antithetic (1 - e^-z) times that."""
    q, k = (x / 2 for x in pairs(100))
    z = (q + k).square().sum(-1) / D**0.5
    independent = (z.exp() - 1) / 16

    def spread(**options: bool) -> Tensor:
        maps = (Favor(D, num_features=16, seed=s, **options) for s in range(200))
        return torch.stack([error(m, q, k) for m in maps]).square().mean()

    assert spread(orthogonal=False) == pytest.approx(independent.mean().item(), rel=0.15)
    antithetic = (independent * (1 - (-z).exp())).mean().item()
    assert spread(orthogonal=False, antithetic=True) == pytest.approx(antithetic, rel=0.15)
    assert spread() < 0.9 * independent.mean()


def test_closed_forms() -> None:
    q, k = draw(5, D, seed=1), draw(5, D, seed=2)
    torch.testing.assert_close(Favor(D).kernel(q, k), ((q * k).sum(-1) / D**0.5).exp())
    torch.testing.assert_close(Favor(D, scale=0.3).kernel(q, k), ((q * k).sum(-1) * 0.3).exp())
    distance = (q - k).square().sum(-1)
    torch.testing.assert_close(RandomFourier(D, scale=0.3).kernel(q, k), (-0.15 * distance).exp())


def test_rows_are_orthogonal_in_blocks_with_gaussian_lengths() -> None:
    rows = orthogonal_rows(2000 * D + 3, D, torch.Generator().manual_seed(0))
    assert rows.shape == (2000 * D + 3, D)
    gram = rows[:D] @ rows[:D].T
    assert (gram - gram.diagonal().diag()).abs().max() < 1e-12
    assert rows.square().sum(-1).mean() == pytest.approx(D, rel=0.02)
    assert rows.square().sum(-1).var() == pytest.approx(2 * D, rel=0.1)  # chi-square with D degrees of freedom
    torch.testing.assert_close(rows.T @ rows / len(rows), torch.eye(D).double(), rtol=0, atol=0.05)
    assert rows.mean(0).abs().max() < 0.05


@every_map
def test_same_seed_same_draw_and_using_the_map_changes_nothing(build) -> None:
    one, two, other = build(16), build(16), build(16, seed=1)
    before = one.projection.clone()
    torch.manual_seed(5)
    one.train()(draw(3, D))
    one.eval()(draw(3, D))
    assert torch.equal(one.projection, before)
    assert torch.equal(one.projection, two.projection)
    assert not torch.equal(one.projection, other.projection)


def test_building_a_map_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    Favor(D).redraw()
    assert torch.equal(before, torch.get_rng_state())


def test_redraw_is_reproducible_from_a_generator() -> None:
    maps = [Favor(D, seed=s) for s in (0, 1)]
    first = maps[0].projection.clone()
    for feature_map in maps:
        feature_map.redraw(torch.Generator().manual_seed(3))
    assert torch.equal(maps[0].projection, maps[1].projection)
    assert not torch.equal(maps[0].projection, first)
    built = Favor(D, generator=torch.Generator().manual_seed(3))
    assert torch.equal(built.projection, maps[0].projection)


def test_redraw_without_a_generator_continues_the_seed_also_after_reloading() -> None:
    straight, stopped = Favor(D, seed=4), Favor(D, seed=4)
    draws = [straight.projection]
    for _ in range(3):
        straight.redraw()
        draws.append(straight.projection)
    assert len({tuple(d.flatten().tolist()) for d in draws}) == 4
    stopped.redraw()
    resumed = Favor(D, seed=4)
    resumed.load_state_dict(copy.deepcopy(stopped.state_dict()))
    for want in draws[2:]:
        resumed.redraw()
        assert torch.equal(resumed.projection, want)


def test_redraw_between_forward_and_backward_keeps_the_gradient_of_the_forward() -> None:
    x = draw(3, D).float().requires_grad_()
    feature_map = Favor(D)
    (want,) = torch.autograd.grad(feature_map(x).sum(), x)
    out = feature_map(x).sum()
    feature_map.redraw()
    (got,) = torch.autograd.grad(out, x)
    assert torch.equal(got, want)


def test_low_precision_modules_keep_the_draw() -> None:
    feature_map = Favor(D)
    before = feature_map.projection.clone()
    for cast in (feature_map.half, feature_map.bfloat16, feature_map.float, feature_map.double):
        assert torch.equal(cast().projection.float(), before)
    assert feature_map.projection.dtype == torch.float64


def test_on_the_meta_device_the_draw_comes_with_the_state_dict() -> None:
    source = Favor(D, seed=3)
    with torch.device("meta"):
        empty = Favor(D)
    assert empty(torch.empty(2, D, device="meta")).shape == (2, 2 * D)
    empty.load_state_dict(source.state_dict(), assign=True)
    assert torch.equal(empty(draw(2, D)), source(draw(2, D)))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Favor(0), r"head_dim is 0; accepted: a whole number"),
        (lambda: Favor(D, num_features=0), r"num_features is 0; accepted: a whole number"),
        (lambda: Favor(D, num_features=7, antithetic=True), r"num_features \(7\) must be even"),
        (lambda: Favor(D, scale=float("inf")), r"scale \(inf\)"),
        (lambda: Favor(D, seed=-1), r"seed is -1; accepted: a whole number"),
        (lambda: Favor(D, seed=torch.Generator()), "pass a torch.Generator as generator="),
        (lambda: RandomFourier(D, num_features=9), r"num_features \(9\) must be even"),
        (lambda: RandomFourier(D, num_features=2.0), r"num_features is 2.0; accepted: a whole number"),
        (lambda: Favor(D)(torch.ones(2, D + 1)), r"Favor was built for \[..., head_dim=8\] and received \[2, 9\]"),
    ],
)
def test_bad_arguments(build, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()
