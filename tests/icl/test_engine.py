"""The engine: torch and native are one, pools are what they say, and Adam goes down either way."""

from __future__ import annotations

import pytest
import torch

from linnet.icl import baselines, engine
from linnet.icl.engine import Adam, Pool, Wild, answers, jacobian, pool
from linnet.icl.recipes import frozen
from linnet.models import ICLConfig, ICLTransformer
from linnet.native import icl as native
from linnet.tasks import Noise, Regression

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
    found = pool(PROBLEM, 40, 5)
    batch = PROBLEM.sample(40, torch.Generator().manual_seed(5))
    assert torch.equal(found.s, batch.gram.s)
    assert torch.allclose(found.target, baselines.bayes(batch.gram, PROBLEM.noise))
    clean = pool(Regression(Noise.parse("U0"), d=3, n=8), 10, 5)
    solved = torch.linalg.solve(clean.s[:, :3, :3], clean.s[:, :3, 3])
    assert torch.allclose(clean.target, solved, atol=1e-8)


def test_wild_sequences_are_wider_and_count_less() -> None:
    plain, wild = pool(PROBLEM, 40, 5), pool(PROBLEM, 40, 5, Wild(every=4, x=2.0, w=3.0, weight=0.1))
    wide = torch.arange(40) % 4 == 0
    assert torch.equal(plain.s[~wide], wild.s[~wide])
    assert torch.allclose(wild.s[wide][:, :3, :3], 4 * plain.s[wide][:, :3, :3])
    assert wild.weight.tolist() == pytest.approx([0.1 if i % 4 == 0 else 1.0 for i in range(40)])


def rates(count: int) -> torch.Tensor:
    return torch.full((count,), 3e-3, dtype=torch.float64)


def descend(kind: str, **options: object) -> tuple[float, torch.Tensor]:
    p, q = parameters(kind)
    p, q = p * 0 - 0.2, q * 0 + 0.1
    q[..., -1] = 0.0
    mask = frozen(p) if kind == "gd++" else None
    adam = Adam(PROBLEM, p, q, batch=256, seed=7, frozen=mask, **options)  # type: ignore[arg-type]
    before = float(adam.run(rates(5)).mean())
    adam.run(rates(60), wild=Wild(every=4), temper=3.0, clip=1.0)
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
    fresh = Adam(PROBLEM, p, q, batch=32, seed=1)._fresh(Wild())
    assert fresh.grid is not None
    assert len(fresh.grid) == engine.GRID
