"""The engine: torch and native are one, pools are what they say, and Adam goes down either way."""

from __future__ import annotations

import pytest
import torch

from linnet.labs.icl import baselines, engine
from linnet.labs.icl.engine import Adam, Augmented, Pool, answers, jacobian, pool
from linnet.labs.icl.noise import Noise
from linnet.labs.icl.recipes import frozen
from linnet.labs.icl.regression import Regression
from linnet.native import icl as native
from linnet.regress.model import ICLConfig, ICLTransformer

CLOSE = 1e-10
PROBLEM = Regression(Noise.parse("U2"), d=3, n=8)
needs_native = pytest.mark.skipif(not native.available(), reason="no native library")


def parameters(kind: str, heads: int = 1, layers: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    shape = (layers, heads, 4, 4) if kind == "full" else (layers, heads, 2)
    p, q = (0.1 * torch.randn(shape, generator=generator, dtype=torch.float64) for _ in "pq")
    return p, q


@pytest.fixture
def torch_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "available", lambda: False)


def plain_pool(count: int = 37) -> Pool:
    batch = PROBLEM.sample(count, torch.Generator().manual_seed(3))
    return Pool(batch.gram.s, batch.weights)


@pytest.mark.parametrize(("kind", "heads"), [("full", 1), ("full", 2), ("diag", 1), ("diag", 2)])
def test_answers_are_those_of_the_model(kind: str, heads: int) -> None:
    p, q = parameters(kind, heads)
    model = ICLTransformer(ICLConfig(kind, layers=3, d=3, n=8, heads=heads))
    with torch.no_grad():
        model.p.copy_(p)
        model.q.copy_(q)
        wanted = model.weights(plain_pool().s)
    assert torch.allclose(answers(plain_pool(), p, q), wanted, atol=CLOSE, rtol=CLOSE)


@pytest.mark.usefixtures("torch_only")
@pytest.mark.parametrize("kind", ["full", "diag"])
def test_torch_answers_are_those_of_the_model(kind: str) -> None:
    test_answers_are_those_of_the_model(kind, 2)


@needs_native
@pytest.mark.parametrize(("kind", "heads"), [("full", 2), ("diag", 2)])
def test_native_and_torch_jacobians_agree(kind: str, heads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    p, q = parameters(kind, heads)
    w, rows = jacobian(plain_pool(), 0, 37, p, q)
    monkeypatch.setattr(native, "available", lambda: False)
    w_torch, rows_torch = jacobian(plain_pool(), 0, 37, p, q)
    assert rows.shape == (37, 3, 2 * p.numel())
    assert torch.allclose(w, w_torch, atol=CLOSE)
    assert torch.allclose(rows, rows_torch, atol=CLOSE)


def test_a_part_of_a_jacobian_is_that_part() -> None:
    p, q = parameters("full")
    _, rows = jacobian(plain_pool(), 0, 37, p, q)
    _, part = jacobian(plain_pool(), 16, 37, p, q)
    assert torch.allclose(part, rows[16:], atol=CLOSE)


def test_a_pool_aims_at_the_posterior_mean() -> None:
    result = pool(PROBLEM, 40, 5)
    batch = PROBLEM.sample(40, torch.Generator().manual_seed(5))
    assert torch.equal(result.s, batch.gram.s)
    assert torch.allclose(result.target, baselines.bayes(batch.gram, PROBLEM.noise))
    clean = pool(Regression(Noise.parse("U0"), d=3, n=8), 10, 5)
    solved = torch.linalg.solve(clean.s[:, :3, :3], clean.s[:, :3, 3])
    assert torch.allclose(clean.target, solved, atol=1e-8)


def test_wild_sequences_are_wider_and_count_less() -> None:
    plain, augmented = pool(PROBLEM, 40, 5), pool(PROBLEM, 40, 5, Augmented(every=4, x=2.0, w=3.0, weight=0.1))
    wide = torch.arange(40) % 4 == 0
    assert torch.equal(plain.s[~wide], augmented.s[~wide])
    assert torch.allclose(augmented.s[wide][:, :3, :3], 4 * plain.s[wide][:, :3, :3])
    assert augmented.weight.tolist() == pytest.approx([0.1 if i % 4 == 0 else 1.0 for i in range(40)])


def rates(count: int) -> torch.Tensor:
    return torch.full((count,), 3e-3, dtype=torch.float64)


def descend(kind: str, **options: object) -> tuple[float, torch.Tensor]:
    p, q = parameters(kind)
    p, q = p * 0 - 0.2, q * 0 + 0.1
    q[..., -1] = 0.0
    mask = frozen(p) if kind == "gd++" else None
    adam = Adam(PROBLEM, p, q, batch=256, seed=7, frozen=mask, **options)  # type: ignore[arg-type]
    before = float(adam.run(rates(5)).mean())
    adam.run(rates(60), augmented=Augmented(every=4), temper=3.0, clip=1.0)
    return float(adam.run(rates(5)).mean()) / before, q


@pytest.mark.parametrize("target", ["posterior", "query"])
def test_adam_goes_down(target: str) -> None:
    assert descend("diag", target=target)[0] < 0.6


@pytest.mark.usefixtures("torch_only")
@pytest.mark.parametrize("target", ["posterior", "query"])
def test_adam_goes_down_in_torch(target: str) -> None:
    assert descend("diag", target=target)[0] < 0.6


@pytest.mark.parametrize("without", [False, True])
def test_what_is_frozen_stays(without: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if without:
        monkeypatch.setattr(native, "available", lambda: False)
    ratio, q = descend("gd++")
    assert ratio < 0.8
    assert bool((q[..., 1] == 0).all())
    assert bool((q[..., 0] != 0.1).all())


def test_training_without_noise_aims_at_the_weights() -> None:
    p, q = parameters("diag")
    adam = Adam(Regression(Noise.parse("U0"), d=3, n=8), p, q, batch=32, seed=1)
    assert adam.target == "weights"
    assert bool(torch.isfinite(adam.run(rates(3))).all())


def test_posterior_of_fresh_sequences_has_the_documented_grid() -> None:
    p, q = parameters("diag")
    fresh = Adam(PROBLEM, p, q, batch=32, seed=1)._fresh(Augmented())
    assert fresh.grid is not None
    assert len(fresh.grid) == engine.GRID


@needs_native
@pytest.mark.parametrize("shape", [(2, 1, 4, 4), (2, 1, 2)])
def test_regression_without_sequences(shape: tuple[int, ...]) -> None:
    p, q = (torch.rand(shape, dtype=torch.float64) for _ in range(2))
    none = Pool(torch.empty(0, 4, 4, dtype=torch.float64), torch.empty(0, 3, dtype=torch.float64))
    assert none.packed is not None
    torch.testing.assert_close(answers(none, p, q), engine._answers(none.s, p, q))
    w, slopes = jacobian(none, 0, 0, p, q)
    assert w.shape == (0, 3)
    assert slopes.shape == (0, 3, 2 * p.numel())
    result = native.gradient(none.packed, p, q)
    assert (result.loss, result.left_out, float(result.dp.abs().sum())) == (0.0, 0, 0.0)
    problem = Regression(Noise.parse("U5"), 3, 5)
    before = p.clone()
    assert Adam(problem, p, q, batch=8, seed=0).run(torch.empty(0, dtype=torch.float64)).shape == (0,)
    assert torch.equal(p, before)
