"""Lemma 4.3: M, u, a, w are the tokens of every layer; the nearest DIAG of a FULL model; any omega as a model."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import Tensor

from linnet.labs.icl.noise import Noise
from linnet.labs.icl.recursion import Quantities, Step, first, from_omega, nearest_diag, step, trace
from linnet.labs.icl.regression import Batch, Regression
from linnet.labs.icl.verify_wrong import STEPS
from linnet.regress.model import KINDS, ICLConfig, ICLTransformer

SAME = 1e-10  # relative, float64
WRONG = 1e-4  # relative: what a wrong recursion is off by at the least
D, N, B, L = 3, 7, 5, 4


def made(kind: str, heads: int = 2) -> tuple[ICLTransformer, Batch]:
    generator = torch.Generator().manual_seed(heads)
    batch = Regression(Noise.parse("U1"), D, N).sample(B, generator)
    model = ICLTransformer(ICLConfig(kind, L, D, N, heads), generator).requires_grad_(False)
    for layer in range(L):
        model.p[layer] *= 0.4 / model.maps(batch.gram.s)[layer].abs().max()
    return model, batch


def error(result: Tensor, wanted: Tensor) -> float:
    return float((result - wanted).abs().max() / wanted.abs().max())


def token_errors(model: ICLTransformer, batch: Batch, step: Step = step) -> list[float]:
    """Largest error of the tokens that the trace describes, layer by layer; one example after the other."""
    quantities = trace(model, batch.gram.s, step=step)
    wanted = model.tokens(batch.x, batch.y, batch.query.unsqueeze(1))
    errors = []
    for m, u, a, w, e in zip(*quantities, wanted, strict=True):
        said = torch.empty_like(e)
        for b in range(B):
            for i in range(N + 1):
                x, y = (batch.x[b, i], batch.y[b, i]) if i < N else (batch.query[b], 0.0)
                said[b, i, :-1], said[b, i, -1] = m[b] @ x + y * u[b], a[b] * y - w[b] @ x
        errors.append(error(said, e))
    return errors


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("heads", [1, 3])
def test_trace_describes_every_token(kind: str, heads: int) -> None:
    model, batch = made(kind, heads)
    assert max(token_errors(model, batch)) < SAME
    quantities = trace(model, batch.gram.s)
    assert [part.shape for part in quantities] == [(L + 1, B, D, D), (L + 1, B, D), (L + 1, B), (L + 1, B, D)]
    assert error(quantities.w[1:], model.weights(batch.gram.s, layerwise=True)[1:]) < SAME


@pytest.mark.parametrize("form", STEPS)
def test_wrong_recursions_do_not(form: str) -> None:
    model, batch = made("full")
    assert token_errors(model, batch, STEPS[form])[-1] > WRONG


def test_wrong_steps_have_one_mistake_each() -> None:
    """Everything but the part that is named is that of the right step."""
    model, batch = made("full")
    g = model.maps(batch.gram.s)
    now = step(g[0], first(batch.gram.s))
    right = step(g[1], now)
    differing = [
        [
            name
            for name, one, two in zip(Quantities._fields, right, wrong(g[1], now), strict=True)
            if error(two, one) > WRONG
        ]
        for wrong in STEPS.values()
    ]
    assert differing == [["m"], ["a"], ["w"]]


def test_count_scales_as_in_weights() -> None:
    model, batch = made("full")
    again = trace(model, 3 * batch.gram.s, count=3 * N)
    for quantities, wanted in zip(again, trace(model, batch.gram.s), strict=True):
        assert error(quantities, wanted) < SAME


def test_one_sequence_without_a_batch() -> None:
    model, batch = made("diag")
    alone = trace(model, batch.gram.s[2])
    assert [part.shape for part in alone] == [(L + 1, D, D), (L + 1, D), (L + 1,), (L + 1, D)]
    assert error(alone.w, trace(model, batch.gram.s).w[:, 2]) < SAME


@pytest.mark.parametrize("heads", [1, 3])
def test_a_diag_model_is_its_own_nearest(heads: int) -> None:
    model, _ = made("diag", heads)
    omega, residual = nearest_diag(*model.matrices())
    assert error(omega, model.omega()) < SAME
    assert float(residual.max()) < SAME


def test_residual_is_the_part_outside() -> None:
    """By the tensor sum_k P_k ⊗ Q_k itself, with the products of diag(I, 0) and diag(0, 1) taken out."""
    model, _ = made("full", heads=3)
    p, q = model.matrices()
    omega, residual = nearest_diag(p, q)
    parts = [torch.diag(torch.tensor(v, dtype=torch.float64)) for v in ([1.0] * D + [0.0], [0.0] * D + [1.0])]
    for layer in range(L):
        whole = torch.einsum("kij,kab->ijab", p[layer], q[layer])
        basis = torch.stack([torch.einsum("ij,ab->ijab", one, two).flatten() for one in parts for two in parts], 1)
        best = torch.linalg.lstsq(basis, whole.flatten()).solution
        assert error(omega[layer].flatten(), best) < SAME
        outside = (whole.flatten() - basis @ best).norm() / whole.norm()
        assert float(residual[layer]) == pytest.approx(float(outside), rel=SAME)
    assert 0.1 < float(residual.min()) <= float(residual.max()) <= 1


def test_residual_does_not_depend_on_who_holds_a_factor() -> None:
    p, q = made("full")[0].matrices()
    omega, residual = nearest_diag(p, q)
    other_omega, other = nearest_diag(100 * p, q / 100)
    assert error(other_omega, omega) < SAME
    assert error(other, residual) < SAME
    assert nearest_diag(0 * p, q)[1].tolist() == [0.0] * L


@pytest.mark.parametrize("p_shape", [(2, 1, 4, 3), (1, 4, 4), (2, 2, 4, 4)])
def test_matrices_that_are_refused(p_shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"P is .*\d\] and Q is \[2, 1, 4, 4\]; accepted: both \[L,K,E,E\]"):
        nearest_diag(torch.zeros(p_shape), torch.zeros(2, 1, 4, 4))


def test_any_omega_is_a_model_with_two_heads() -> None:
    omega = torch.randn(6, 2, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    omega[1] = 0
    model = from_omega(omega, d=D, n=N)
    assert model.config == ICLConfig("diag", 6, D, N, 2)
    assert error(model.omega().detach(), omega) < SAME


def test_omegas_that_are_refused() -> None:
    with pytest.raises(ValueError, match=r"omega is \[3, 4\]; accepted: \[L,2,2\]"):
        from_omega(torch.zeros(3, 4))
    with pytest.raises(ValueError, match="omega holds NaN or infinity"):
        from_omega(torch.full((1, 2, 2), float("nan")))
    with pytest.raises(ValueError, match="layers is 0"):
        from_omega(torch.zeros(0, 2, 2))


def test_the_folder_does_not_bring_scikit_learn() -> None:
    code = "import sys, linnet.labs.icl; linnet.labs.icl.nearest_diag; print('sklearn' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
