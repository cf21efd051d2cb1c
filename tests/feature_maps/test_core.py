"""Core: features, their vector-Jacobian product and the closed-form kernel agree, for all kinds and degrees 1 to 4."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor

from linnet.feature_maps import Core
from linnet.feature_maps.core import KINDS

FLOAT64 = {"rtol": 1e-10, "atol": 1e-10}

CORES = [Core(kind) for kind in KINDS if kind != "polynomial"]
CORES += [Core("polynomial", (0.0,) * p + (0.6,)) for p in range(1, 5)]
CORES += [Core("polynomial", tuple(1.0 / (p + 1) for p in range(n + 1))) for n in range(1, 5)]
CORES += [Core("polynomial", (0.5, 0.0, 2.0))]

every_core = pytest.mark.parametrize("core", CORES, ids=lambda c: f"{c.kind}{len(c.coeffs) or ''}")


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@every_core
def test_vjp_equals_autograd(core: Core) -> None:
    x = draw(2, 3, 4).requires_grad_()
    features = core.features(x)
    grad = draw(*features.shape, seed=1)
    (want,) = torch.autograd.grad(features, x, grad)
    torch.testing.assert_close(core.features_vjp(x, grad), want, **FLOAT64)


@every_core
def test_vjp_is_differentiable(core: Core) -> None:
    x = draw(2, 3).requires_grad_()
    grad = draw(*core.features(x).shape, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(core.features_vjp, (x, grad))


@every_core
def test_width_of_features(core: Core) -> None:
    for head_dim in (1, 2, 5):
        assert core.features(draw(3, head_dim)).shape == (3, core.feature_dim(head_dim))


@pytest.mark.parametrize("core", [c for c in CORES if c.has_kernel], ids=str)
def test_kernel_and_its_slope(core: Core) -> None:
    q, k = draw(6, 4, seed=1), draw(6, 4, seed=2)
    s = (q * k).sum(-1).requires_grad_()
    kernel = core.kernel(s)
    torch.testing.assert_close(kernel, (core.features(q) * core.features(k)).sum(-1), **FLOAT64)
    (slope,) = torch.autograd.grad(kernel.sum(), s)
    torch.testing.assert_close(core.kernel_grad(s), slope, **FLOAT64)


def test_symmetric_features_against_every_product() -> None:
    """Degree 3 by hand: the sum over all ordered index triples."""
    q, k = draw(3, seed=1), draw(3, seed=2)
    core = Core("polynomial", (0.0, 0.0, 0.0, 1.0))
    want = sum(q[i] * q[j] * q[m] * k[i] * k[j] * k[m] for i, j, m in product(range(3), repeat=3))
    torch.testing.assert_close((core.features(q) * core.features(k)).sum(), torch.as_tensor(want), **FLOAT64)


@pytest.mark.parametrize(
    ("kind", "coeffs", "message"),
    [
        ("cubic", (), "'cubic' is unknown"),
        ("elu", (1.0,), "only 'polynomial' takes coefficients"),
        ("polynomial", (), "only 'polynomial' takes coefficients"),
        ("polynomial", (1.0, -1.0), "must be >= 0"),
    ],
)
def test_bad_cores(kind: str, coeffs: tuple[float, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Core(kind, coeffs)
