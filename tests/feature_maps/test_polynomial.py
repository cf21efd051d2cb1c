"""Polynomial and Taylor maps: their kernels written out, and the symmetric form against the full one."""

from __future__ import annotations

import pytest
import torch

from linnet.feature_maps import Polynomial, Taylor, TaylorFull

FLOAT64 = {"rtol": 1e-10, "atol": 1e-10}


def pair(dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(2, 7, dim, generator=generator, dtype=torch.float64))  # type: ignore[return-value]


@pytest.mark.parametrize("degree", [1, 2, 3, 5])
@pytest.mark.parametrize("bias", [0.0, 0.5])
@pytest.mark.parametrize("scale", [None, 1.0, 0.2])
def test_polynomial_kernel(degree: int, bias: float, scale: float | None) -> None:
    q, k = pair(5)
    feature_map = Polynomial(5, degree=degree, bias=bias, scale=scale)
    want = ((q * k).sum(-1) * (5**-0.5 if scale is None else scale) + bias) ** degree
    torch.testing.assert_close(feature_map.kernel(q, k), want, **FLOAT64)
    torch.testing.assert_close((feature_map(q) * feature_map(k)).sum(-1), want, **FLOAT64)


def test_taylor_order_two_is_based() -> None:
    q, k = pair(16)
    s = (q * k).sum(-1) / 4
    feature_map = Taylor(16)
    torch.testing.assert_close(feature_map.kernel(q, k), 1 + s + s**2 / 2, **FLOAT64)
    assert feature_map.core.coeffs == pytest.approx((1, 1 / 4, 1 / 32))
    assert feature_map.feature_dim == 1 + 16 + 16 * 17 // 2
    assert TaylorFull(16).feature_dim == 1 + 16 + 16**2


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_symmetric_and_full_features_have_the_same_inner_product(order: int) -> None:
    q, k = pair(4)
    short, full = Taylor(4, order=order), TaylorFull(4, order=order)
    assert short.feature_dim <= full.feature_dim
    torch.testing.assert_close((short(q) * short(k)).sum(-1), (full(q) * full(k)).sum(-1), **FLOAT64)
    torch.testing.assert_close(full.kernel(q, k), short.kernel(q, k), **FLOAT64)


def test_taylor_approaches_the_exponential() -> None:
    q, k = pair(4)
    exact = ((q * k).sum(-1) / 2).exp()
    errors = [(Taylor(4, order=n).kernel(q, k) - exact).abs().max().item() for n in (2, 6, 12)]
    assert errors[0] > 10 * errors[1] > 100 * errors[2]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Polynomial(0), r"head_dim is 0; accepted: a whole number"),
        (lambda: Polynomial(4, degree=0), r"degree is 0; accepted: a whole number"),
        (lambda: Polynomial(4, degree=1.5), r"degree is 1.5; accepted: a whole number"),  # type: ignore[arg-type]
        (lambda: Polynomial(4, bias=-1.0), r"bias \(-1.0\)"),
        (lambda: Polynomial(4, bias=float("nan")), r"bias \(nan\)"),
        (lambda: Polynomial(4, scale=0.0), r"scale \(0.0\)"),
        (lambda: Polynomial(64, degree=6), "needs 119877472 features"),
        (lambda: Taylor(-3), r"head_dim is -3; accepted: a whole number"),
        (lambda: Taylor(4, order=0), r"order is 0; accepted: a whole number"),
        (lambda: Taylor(4, scale=-1.0), r"scale \(-1.0\)"),
        (lambda: TaylorFull(4, order=True), r"order is True; accepted: a whole number"),
        (lambda: TaylorFull(64, order=4), "features, more than"),
        (lambda: TaylorFull(4)(torch.ones(2, 5)), r"head_dim=4\] and received \[2, 5\]"),
    ],
)
def test_bad_arguments(build: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()  # type: ignore[operator]
