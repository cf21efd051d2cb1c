"""In-context regression in native code: answers, gradients, Jacobians and Adam, against float64 torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from linnet.native import icl, library
from tests.labs.icl.sequences import FLOAT32, FLOAT64, fresh, model, off, parts, problems
from tests.ops.rows import needs_library

pytestmark = needs_library


@pytest.fixture(params=library.info()["isas"])
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    before = library.info()["isa"]
    library.use_isa(request.param)
    yield request.param
    library.use_isa(before)


CASES = [("full", 1, 1), ("full", 2, 2), ("full", 4, 1), ("diag", 1, 1), ("diag", 3, 2), ("diag", 4, 1), ("gd++", 3, 1)]


@pytest.mark.parametrize("d", [1, 3, 10, 14])
@pytest.mark.parametrize(("kind", "layers", "heads"), CASES)
def test_answers_and_gradients_of_stored_sequences(isa: str, kind: str, layers: int, heads: int, d: int) -> None:
    made, (s, target) = model(kind, d, layers, heads), problems(d, 37)
    w = made.weights(s)
    loss = 0.5 * (w - target).square().sum()
    dp, dq = torch.autograd.grad(loss, (made.p, made.q))
    for wide, tolerance in ((True, FLOAT64), (False, FLOAT32)):
        stored = icl.pack(s, target, wide)
        assert off(icl.answers(stored, *parts(made)), w) < tolerance
        gradient = icl.gradient(stored, *parts(made))
        assert gradient.loss == pytest.approx(loss.item(), rel=tolerance)
        assert gradient.left_out == 0
        assert off(gradient.dp, dp) < tolerance
        assert off(gradient.dq[..., : dq.shape[-1]], dq) < tolerance


@pytest.mark.parametrize("d", [3, 10])
@pytest.mark.parametrize(("kind", "layers", "heads"), [("full", 1, 1), ("full", 3, 2), ("diag", 3, 2)])
def test_jacobian(isa: str, kind: str, layers: int, heads: int, d: int) -> None:
    made, (s, target) = model(kind, d, layers, heads), problems(d, 19)
    p, q = parts(made)
    w, result = icl.jacobian(icl.pack(s, target, wide=True), p, q)
    with torch.no_grad():
        assert off(w, made.weights(s)) < FLOAT64
    lead = torch.randn(19, d, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    got = torch.einsum("nd,ndm->m", lead, result)
    if kind == "full":
        want = torch.cat([x.flatten() for x in torch.autograd.grad((made.weights(s) * lead).sum(), (made.p, made.q))])
        assert off(got, want) < FLOAT64
        return
    dp, dq = torch.autograd.grad((made.weights(s) * lead).sum(), (made.p, made.q))
    omega = got.view(layers, 2, 2)  # dp[k,i] = sum_j domega[i,j] q[k,j]
    assert off(torch.einsum("lij,lkj->lki", omega, q), dp) < FLOAT64
    assert off(torch.einsum("lij,lki->lkj", omega, p), dq) < FLOAT64


def test_a_tempered_loss_is_its_logarithm() -> None:
    made, (s, target), c = model("full", 3, 3), problems(3, 40), 1.0
    losses = 0.5 * (made.weights(s) - target).square().sum(-1)
    assert 5 < int((losses > c).sum()) < 35
    tempered = torch.where(losses > c, c * (1 + (losses / c).log()), losses)
    dp, dq = torch.autograd.grad(tempered.sum(), (made.p, made.q))
    gradient = icl.gradient(icl.pack(s, target, wide=True), *parts(made), temper=c)
    assert off(gradient.dp, dp) < FLOAT64
    assert off(gradient.dq, dq) < FLOAT64
    assert gradient.loss == pytest.approx(float(losses.sum().detach()), rel=FLOAT64)


def test_sequences_that_explode_are_left_out_and_counted(isa: str) -> None:
    made, (s, target) = model("full", 3, 3), problems(3, 40)
    keep = torch.ones(40, dtype=torch.bool)
    keep[[3, 17, 39]] = False
    bad_s, bad_target = s.clone(), target.clone()
    bad_s[3], bad_s[17] = s[3] * 1e30, float("nan")
    bad_target[39] = float("inf")
    want = icl.gradient(icl.pack(s[keep], target[keep], False), *parts(made))
    gradient = icl.gradient(icl.pack(bad_s, bad_target, False), *parts(made))
    assert gradient.left_out == 3
    assert gradient.loss == pytest.approx(want.loss, rel=FLOAT32)
    assert off(gradient.dp, want.dp) < FLOAT32
    assert off(gradient.dq, want.dq) < FLOAT32
    losses = 0.5 * (made.weights(s) - target).square().sum(-1).detach()
    limit = float(losses.median()) * 1.001
    gradient = icl.gradient(icl.pack(s, target, True), *parts(made), limit=limit)
    assert gradient.left_out == int((losses > limit).sum())
    assert gradient.loss == pytest.approx(float(losses[losses <= limit].sum()), rel=FLOAT64)


@pytest.mark.parametrize("kind", ["full", "diag"])
@pytest.mark.parametrize(("clip", "freeze"), [(0.0, False), (0.02, False), (0.0, True)])
def test_adam_takes_the_steps_of_torch(kind: str, clip: float, freeze: bool) -> None:
    p, q = parts(model(kind, 3, 2, 2))
    both = torch.nn.Parameter(torch.cat([p.flatten(), q.flatten()]))
    rates = torch.tensor([1e-2, 5e-3, 2e-2, 1e-2, 1e-3], dtype=torch.float64)
    frozen = (torch.arange(both.numel()) % 3 == 0).to(torch.uint8) if freeze else None
    source = fresh(samples=64, noise="U2", first=8)
    optimizer = torch.optim.Adam([both], betas=(0.9, 0.95), eps=1e-8)
    losses = []
    for step, rate in enumerate(rates):
        a, b = (x.view(p.shape).contiguous() for x in both.detach().chunk(2))
        gradient = icl.gradient(replace(source, first=8 + 64 * step), a, b)
        losses.append(gradient.loss / 64)
        both.grad = torch.cat([gradient.dp.flatten(), gradient.dq.flatten()]) / 64
        if clip:
            assert float(both.grad.norm()) > clip
            both.grad *= clip / both.grad.norm()
        if frozen is not None:
            both.grad[frozen.bool()] = 0.0  # Adam does not move what never had a gradient
        optimizer.param_groups[0]["lr"] = float(rate)
        optimizer.step()
    adam = icl.Adam(p, q, frozen, beta2=0.95)
    first, _ = adam.train(source, p, q, rates[:2], clip=clip)
    rest, left_out = adam.train(replace(source, first=8 + 128), p, q, rates[2:], clip=clip, threads=2)
    assert adam.done == 5
    assert left_out == 0
    assert torch.cat([first, rest]).tolist() == pytest.approx(losses, rel=FLOAT32)
    assert off(torch.cat([p.flatten(), q.flatten()]), both.detach()) < FLOAT64 * 1e3


def test_a_step_whose_gradient_is_no_number_is_skipped() -> None:
    p, q = torch.zeros(2, 1, 1, 4, 4, dtype=torch.float64)
    p[..., -1, 0], q[..., 0, 0] = 1e-18, 1e30  # losses of 1e26, and dP over the largest float
    before = p.clone(), q.clone()
    adam = icl.Adam(p, q)
    curve, left_out = adam.train(fresh(samples=32), p, q, torch.full((2,), 0.1, dtype=torch.float64))
    assert curve.isnan().all()
    assert left_out == 0
    assert torch.equal(p, before[0])
    assert torch.equal(q, before[1])
    assert not adam.m.any()
    assert not adam.v.any()


@pytest.mark.parametrize(
    "given",
    [{"n": 0}, {"samples": 0}, {"target": "posterior"}, {"noise": "none"}],
)  # fmt: skip
def test_what_cannot_be_run_is_refused(given: dict[str, Any]) -> None:
    p, q = parts(model("diag", 3, 2))
    source = replace(fresh(), sigma=torch.empty(0)) if "noise" in given else fresh(**given)
    with pytest.raises(RuntimeError, match="an argument out of range"):
        icl.gradient(source, p, q)


def test_no_threads_and_no_steps_are_refused() -> None:
    p, q = parts(model("diag", 3, 2))
    with pytest.raises(RuntimeError, match="an argument out of range"):
        icl.gradient(fresh(), p, q, threads=0)
    with pytest.raises(RuntimeError, match="an argument out of range"):
        icl.Adam(p, q).train(fresh(), p, q, torch.empty(0, dtype=torch.float64))
