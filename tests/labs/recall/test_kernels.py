"""Exact properties of the recall laboratory's kernels: Based, ReBased, all its ablations and controls.

T1 features and kernel agree at the published widths; T2 every form is the equation, gradients too; T3 the future cannot
change the past; T4 gradients; T5 floors and roots; T6 scale; T7 sign; T10 a first token that matches nothing.
The equation here is  out = A v / (A 1 + eps), A = tril(kappa(q, k)),  from `kernel`, with neither features nor forms.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from linnet import linear_attention
from linnet.feature_maps import FeatureMap, ReBased, Taylor, TaylorFull, ZeroFloor, build
from linnet.labs.recall.kernels import KERNELS
from tests.ops.runs import RUNS, every_run

TIGHT = {torch.float64: 1e-10, torch.float32: 1e-4}  # of the largest entry
FLOAT64 = {"rtol": 1e-10, "atol": 1e-10}
EPS = {torch.float64: 1e-6, torch.float32: 1e-2}  # a kernel that nears 0 divides by it, which rounding must not feel
B, T, H, D, V = 2, 70, 2, 4, 3  # T: more than a chunk

every_kernel = pytest.mark.parametrize("row", KERNELS)
CASES = [(*run, dtype) for run in RUNS for dtype in TIGHT if run[1] == "torch" or dtype == torch.float32]


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def kernel(row: str, head_dim: int = D) -> FeatureMap:
    """In float64, its parameters moved off their start, so that gamma = 1 and beta = 0 hide nothing."""
    name, options = KERNELS[row]
    phi = build(name, head_dim, H, **options).double()
    with torch.no_grad():
        for seed, parameter in enumerate(phi.parameters()):
            parameter += 0.3 * draw(*parameter.shape, seed=10 + seed)
    return phi


def equation(q: Tensor, k: Tensor, v: Tensor, phi: FeatureMap, eps: float) -> Tensor:
    scores = phi.kernel(q[:, :, None], k[:, None]).movedim(-1, 1).tril()  # [B,T,T,H] -> [B,H,T,T]
    return torch.einsum("bhts,bshv->bthv", scores / (scores.sum(-1, keepdim=True) + eps), v)


def with_gradients(out: Tensor, phi: FeatureMap, *inputs: Tensor) -> dict[str, Tensor]:
    """What came out, and the gradient of a weighted sum of it by every input and parameter."""
    leaves = {"q": inputs[0], "k": inputs[1], "v": inputs[2], **dict(phi.named_parameters())}
    weights = draw(*out.shape, seed=5).to(out.dtype)
    gradients = torch.autograd.grad((out * weights).sum(), list(leaves.values()))
    return {"out": out.detach(), **dict(zip(leaves, gradients, strict=True))}


@pytest.mark.parametrize(
    ("phi", "width"), [(TaylorFull(16), 273), (Taylor(16), 153), (ZeroFloor(16), 153), (ReBased(16, H), 136)], ids=str
)
def test_t1_features_and_kernel_at_the_published_widths(phi: FeatureMap, width: int) -> None:
    q, k = draw(5, H, 16, seed=1), draw(5, H, 16, seed=2)
    assert phi.feature_dim == phi.map_q(q).shape[-1] == width
    torch.testing.assert_close((phi.map_q(q) * phi.map_k(k)).sum(-1), phi.kernel(q, k), **FLOAT64)


def test_t1_rebased_through_all_256_products() -> None:
    """vec(a a^T) / sqrt(16) has the inner product of the 136 symmetric features."""
    phi = ReBased(16, H).double()
    q, k = draw(5, H, 16, seed=1), draw(5, H, 16, seed=2)
    a, b = ((x[..., :, None] * x[..., None, :]).flatten(-2) / 4 for x in (phi.prepare_q(q), phi.prepare_k(k)))
    assert a.shape[-1] == 256
    torch.testing.assert_close((a * b).sum(-1), (phi.map_q(q) * phi.map_k(k)).sum(-1), **FLOAT64)


@pytest.mark.parametrize(("form", "backend", "dtype"), CASES, ids=str)
@every_kernel
def test_t2_every_form_is_the_equation_with_its_gradients(
    row: str, form: str, backend: str, dtype: torch.dtype
) -> None:
    eps = EPS[dtype]
    exact = [draw(B, T, H, n, seed=n_th).float().double().requires_grad_() for n_th, n in enumerate((D, D, V))]
    phi = kernel(row)
    want = with_gradients(equation(exact[0], exact[1], exact[2], phi, eps), phi, *exact)
    given = [x.detach().to(dtype).requires_grad_() for x in exact]
    phi = kernel(row).to(dtype)
    out, _ = linear_attention(*given, feature_map=phi, form=form, backend=backend, eps=eps)
    for name, got in with_gradients(out, phi, *given).items():
        error = (got.double() - want[name]).abs().max() / want[name].abs().max()
        assert error < TIGHT[dtype], (name, float(error))


@every_run
@every_kernel
def test_t3_the_future_cannot_change_the_past(row: str, form: str, backend: str) -> None:
    phi = kernel(row).float()
    q, k, v = (draw(B, T, H, n, seed=n).float() for n in (D, D, V))
    before, _ = linear_attention(q, k, v, feature_map=phi, form=form, backend=backend)
    for t in (1, 63, 69):
        for x in (q, k, v):
            x[:, t:] = draw(*x[:, t:].shape, seed=t).float() * 3
        after, _ = linear_attention(q, k, v, feature_map=phi, form=form, backend=backend)
        assert torch.equal(after[:, :t], before[:, :t])
        assert not torch.equal(after[:, t:], before[:, t:])
        q, k, v = (draw(B, T, H, n, seed=n).float() for n in (D, D, V))


@every_kernel
def test_t4_gradients_including_gamma_and_beta(row: str) -> None:
    phi = kernel(row, 2)
    q, k, v = (draw(1, 3, H, 2, seed=seed).requires_grad_() for seed in range(3))

    def out(*_: Tensor) -> Tensor:
        return linear_attention(q, k, v, feature_map=phi, eps=1e-2)[0]

    assert torch.autograd.gradcheck(out, (q, k, v, *phi.parameters()))


def test_t5_floors() -> None:
    """Least weight over s = q.k / sqrt(D): 1/2 for Based, 0 for its control, both at s = -1; 0 for ReBased at s = 0."""
    s = torch.linspace(-3, 3, 601, dtype=torch.float64)
    q = torch.ones(601, 1, 1, dtype=torch.float64)
    bare = ReBased(1, norm_scope="none", affine="none")
    for phi, floor, where in ((Taylor(1), 0.5, -1.0), (ZeroFloor(1), 0.0, -1.0), (bare, 0.0, 0.0)):
        kappa = phi.kernel(q, s[:, None, None]).flatten()
        assert kappa.min().item() == pytest.approx(floor, abs=1e-12)
        assert s[kappa.argmin()].item() == pytest.approx(where, abs=1e-12)


def test_t5_beta_moves_the_root() -> None:
    """q'.k' = a qk + c along one coordinate, with c from the betas of another: zero at qk = -c / a."""
    phi = ReBased(2, norm_scope="none").double()
    assert phi.k is not None
    with torch.no_grad():
        for side, gamma, beta in ((phi.q, 2.0, 3.0), (phi.k, 0.5, 0.7)):
            assert side.gamma is not None
            assert side.beta is not None
            side.gamma[0, 0], side.beta[0, 1] = gamma, beta
    a, c = 2.0 * 0.5, 3.0 * 0.7

    def kappa(qk: float) -> float:
        q, k = torch.tensor([[[1.0, 0.0]], [[qk, 0.0]]], dtype=torch.float64)
        return phi.kernel(q, k).item()

    assert kappa(-c / a) == pytest.approx(0.0, abs=1e-12)
    for qk in (-3.0, 0.0, 0.4):
        assert kappa(qk) == pytest.approx((a * qk + c) ** 2 / 2)


@pytest.mark.parametrize("factor", [0.1, 0.5, 3.0, 10.0])
def test_t6_the_scale_of_gamma_is_free_when_beta_is_zero(factor: float) -> None:
    q, k, v = (draw(B, T, H, n, seed=n) for n in (D, D, V))

    def out(phi: FeatureMap) -> Tensor:
        return linear_attention(q, k, v, feature_map=phi, eps=0.0)[0]

    phi = ReBased(D, H).double()
    before = out(phi)
    with torch.no_grad():
        assert phi.q.gamma is not None
        phi.q.gamma *= factor
    torch.testing.assert_close(out(phi), before, rtol=1e-8, atol=1e-8)
    with torch.no_grad():
        assert phi.q.beta is not None
        phi.q.beta += 0.5
    assert (out(phi) - before).abs().max() > 1e-2
    for control in (Taylor(D), ZeroFloor(D)):  # there the scale is a temperature
        plain = out(control)
        scaled, _ = linear_attention(factor * q, k, v, feature_map=control, eps=0.0)
        assert (scaled - plain).abs().max() > 1e-2


def test_t7_sign() -> None:
    """a and -a cannot be told apart by the square of a . b; Based can, by its linear term."""
    q, k, v = (draw(B, T, H, n, seed=n) for n in (D, D, V))
    phi = kernel("(gamma norm(x) + beta)^2")
    before, _ = linear_attention(q, k, v, feature_map=phi)
    assert isinstance(phi, ReBased)
    with torch.no_grad():
        for parameter in phi.q.parameters():
            parameter.neg_()
    assert torch.equal(linear_attention(q, k, v, feature_map=phi)[0], before)
    for control in (Taylor(D), ZeroFloor(D)):
        assert (control.kernel(-q, k) - control.kernel(q, k)).abs().max() > 1


@every_run
@pytest.mark.parametrize("eps", [1e-6, 1e-12])
@pytest.mark.parametrize("row", ["x^2", "(gamma x + beta)^2", "element-wise square"])
def test_t10_a_first_token_that_matches_nothing(row: str, eps: float, form: str, backend: str) -> None:
    """kappa(q_1, k_1) = 0 exactly: the first output is 0 / eps, so 0, and no gradient is lost to a NaN."""
    phi = ReBased(2, **{**KERNELS[row][1], "norm_scope": "none"})
    q, k, v = torch.ones(3, 1, 5, 1, 2)
    q[0, 0, 0, 1] = k[0, 0, 0, 0] = 0.0
    leaves: list[Any] = [x.requires_grad_() for x in (q, k, v)]
    out, _ = linear_attention(*leaves, feature_map=phi, form=form, backend=backend, eps=eps)
    assert out.isfinite().all()
    assert out[0, 0].abs().max() < 1e-6
    assert (out[0, 1:] - 1).abs().max() < 1e-5
    for gradient in torch.autograd.grad(out.sum(), [*leaves, *phi.parameters()]):
        assert gradient.isfinite().all()


@every_run
def test_t10_at_the_root_of_the_control_rounding_decides(form: str, backend: str) -> None:
    """1/2 + s + s^2 / 2 is a sum that cancels at s = -1: what is left is of the size of rounding, and harmless."""
    q, k, v = torch.ones(3, 1, 5, 1, 2)
    k[0, 0] = -(2**-0.5)
    out, _ = linear_attention(q, k, v, feature_map="zero_floor", form=form, backend=backend)
    assert out[0, 0].abs().max() < 1
    assert (out[0, 1:] - 1).abs().max() < 1e-3


def test_the_controls_are_maps_of_their_own() -> None:
    """Every row of the table of kernels can be built, and no two give the same numbers."""
    x, y = draw(2, 5, H, D, seed=1), draw(2, 5, H, D, seed=2)
    collected: dict[str, Tensor] = {}
    for row, (name, options) in KERNELS.items():
        feature_map = build(name, D, H, **options).double()
        with torch.no_grad():
            for seed, parameter in enumerate(feature_map.parameters()):
                parameter += draw(*parameter.shape, seed=10 + seed)
        collected[row] = feature_map.kernel(x, y)
    for row, kernel in collected.items():
        assert not any(torch.allclose(kernel, other) for name, other in collected.items() if name != row), row
