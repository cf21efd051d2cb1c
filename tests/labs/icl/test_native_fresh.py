"""Sequences that native code draws for itself: their distribution, their targets, and that nothing else changes them.

What the kernel draws is not handed out, so `drawn` reads a sequence off its gradients: with P = e_d e_kᵀ and Q = 0 the
answer is 0, the loss 1/2 |target|², and dQ[a,j] = S[a,k] target[j].
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from linnet.labs.icl.noise import Noise
from linnet.labs.icl.regression import Regression
from linnet.native import icl, library
from linnet.regress.gram import Gram, ridge
from tests.labs.icl.sequences import FLOAT32, N, fresh, model, off, parts
from tests.ops.rows import needs_library

pytestmark = needs_library
SIGMAS = 5.0  # standard errors that means may be apart


@pytest.fixture(params=library.info()["isas"])
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    before = library.info()["isa"]
    library.use_isa(request.param)
    yield request.param
    library.use_isa(before)


def drawn(source: icl.Fresh, index: int) -> tuple[Tensor, Tensor]:
    """S [E,E] and the target [d] of one sequence of the stream."""
    source, width = replace(source, samples=1, first=index), source.d + 1
    columns = []
    for k in range(width):
        p, q = torch.zeros(2, 1, 1, width, width, dtype=torch.float64)
        p[..., -1, k] = 1.0
        gradient = icl.gradient(source, p, q)
        columns.append(gradient.dq[0, 0, :, :-1])
    products = torch.stack(columns)  # [k,a,j] = S[a,k] target[j]
    length = (2 * gradient.loss) ** 0.5
    direction = products[0, 0] / products[0, 0].norm()  # S[0,0] > 0
    return (products @ direction) / length, direction * length


@pytest.mark.parametrize("kind", ["full", "diag"])
def test_the_number_of_threads_changes_no_bit(kind: str) -> None:
    p, q = parts(model(kind, 10, 3))
    grid, weight = Noise.parse("U2").grid(8)
    source = fresh(10, 20, 1000, "U2", target="posterior", grid=grid, log_weight=weight.log())
    one, *others = [icl.gradient(source, p, q, threads=threads) for threads in (1, 2, 3, 16)]
    for other in others:
        assert one.loss == other.loss
        assert torch.equal(one.dp, other.dp)
        assert torch.equal(one.dq, other.dq)


@pytest.mark.parametrize("target", ["query", "weights", "ridge", "posterior"])
def test_every_instruction_set_draws_the_same_stream(target: str) -> None:
    p, q = parts(model("full", 10, 2))
    grid, weight = Noise.parse("1,3").grid()
    source = fresh(
        10,
        20,
        77,
        "1,3",
        target=target,
        grid=grid,
        log_weight=weight.log(),
        augmented=2,
        augmented_x=1.5,
        augmented_w=2.0,
    )
    before, result = library.info()["isa"], []
    for one in library.info()["isas"]:
        library.use_isa(one)
        result.append(icl.gradient(source, p, q))
    library.use_isa(before)
    for other in result[1:]:
        assert other.loss == pytest.approx(result[0].loss, rel=FLOAT32)
        assert off(other.dp, result[0].dp) < FLOAT32


@pytest.mark.parametrize(
    ("d", "n", "noise"), [(3, 7, "U2"), (3, 2, "1,3"), (1, 1, "=0.5"), (10, 20, "U5"), (10, 6, "=1")]
)
def test_fresh_sequences_have_the_moments_of_the_problem(d: int, n: int, noise: str) -> None:
    """Means of the losses and of all gradients, which are polynomials in S and the weights, beside drawn examples."""
    p, q = (0.3 * x for x in parts(model("full", d, 2, seed=3)))  # small: of large ones the tails decide
    count, many = 8_000, 100_000
    batch = Regression(Noise.parse(noise), d, n).sample(count, torch.Generator().manual_seed(4))
    gradient = icl.gradient(fresh(d, n, many, noise), p, q)
    w, jacobian = icl.jacobian(icl.pack(batch.gram.s, batch.weights, wide=True), p, q)
    miss = w - batch.weights
    each = torch.cat([0.5 * miss.square().sum(-1, keepdim=True), torch.einsum("nd,ndm->nm", miss, jacobian)], -1)
    got = torch.cat([torch.tensor([gradient.loss]).double(), gradient.dp.flatten(), gradient.dq.flatten()]) / many
    error = each.std(0) * (1 / count + 1 / many) ** 0.5
    used = error > 0  # the last layer has one row of P
    assert float(((got - each.mean(0)).abs()[used] / error[used]).max()) < SIGMAS
    assert not got[~used].any()


def test_sums_belong_to_their_weights_and_noise() -> None:
    """Without noise alpha = Sigma w and lambda = <w, alpha>; the rest of lambda grows as sigma²."""
    for index in range(20):
        s, w = drawn(fresh(noise="=0"), index)
        assert off(s[-1, :-1], s[:-1, :-1] @ w) < FLOAT32
        assert off(s[-1, -1], w @ s[-1, :-1]) < FLOAT32
        assert off(s, s.mT) < FLOAT32
        noisy, same = drawn(fresh(noise="=2"), index)
        assert off(same, w) < FLOAT32
        assert off(noisy[:-1, :-1], s[:-1, :-1]) < FLOAT32
        assert off(noisy[-1, -1], s[-1, -1]) > 1e-3


def test_fewer_examples_than_features_leave_sums_of_their_rank() -> None:
    for index in range(20):
        s, _ = drawn(fresh(n=2, noise="=2"), index)
        values = torch.linalg.eigvalsh(s) / s.trace()
        assert float(values[:2].abs().max()) < FLOAT32
        assert float(values[2]) > FLOAT32


def test_every_choice_of_sigma_is_as_likely() -> None:
    """P = e_y e_yᵀ and Q = c e_y e_xᵀ answer w = -c lambda: the loss is 1/2 (c lambda + weight)²."""
    count, many, c = 20_000, 100_000, 0.1
    p, q = torch.zeros(2, 1, 1, 2, 2, dtype=torch.float64)
    p[..., 1, 1], q[..., 1, 0] = 1.0, c
    batch = Regression(Noise.parse("0,1,3"), 1, N).sample(count, torch.Generator().manual_seed(4))
    each = 0.5 * (c * batch.y.square().sum(-1) + batch.weights[:, 0]).square()
    got = icl.gradient(fresh(1, N, many, "0,1,3"), p, q).loss / many
    assert abs(got - float(each.mean())) < SIGMAS * float(each.std()) * (1 / count + 1 / many) ** 0.5


def test_the_target_ridge() -> None:
    for d, n in ((3, N), (10, 20), (10, 4)):
        for index in range(5):
            s, w = drawn(fresh(d, n, noise="=1.5", target="ridge"), index)
            want = ridge(Gram(s, torch.tensor(float(n))), 1.5**2)
            assert off(w, want) < FLOAT32 * 10


@pytest.mark.parametrize(("d", "n"), [(1, 5), (3, N), (10, 20), (10, 12)])
def test_the_target_posterior(isa: str, d: int, n: int) -> None:
    """The mean of ridge solutions, weighed by the evidence of their noise level."""
    grid, weight = Noise.parse("U3").grid(8)
    for index in range(5):
        s, w = drawn(fresh(d, n, noise="U3", target="posterior", grid=grid, log_weight=weight.log()), index)
        matrix = s[:-1, :-1] + grid.square()[:, None, None] * torch.eye(d).double()
        ridges = torch.linalg.solve(matrix, s[:-1, -1].expand(len(grid), d))
        rest = (s[-1, -1] - ridges @ s[:-1, -1]) / grid.square()
        log = weight.log() - 0.5 * (torch.logdet(matrix) + 2 * (n - d) * grid.log() + rest)
        assert off(w, log.softmax(0) @ ridges) < FLOAT32 * 30  # S itself is known to float32 only


def test_a_posterior_without_noise_is_least_squares() -> None:
    grid, weight = Noise.parse("U0").grid()
    s, w = drawn(fresh(noise="U0", target="posterior", grid=grid, log_weight=weight.log()), 0)
    assert off(w, torch.linalg.solve(s[:-1, :-1], s[:-1, -1])) < FLOAT32 * 10


def test_the_target_query() -> None:
    """The loss 1/2 (<w, x> - y)²: with w = 0 the gradient is y x, and y = <weights, x> without noise."""
    lengths = []
    for index in range(200):
        _, weights = drawn(fresh(), index)
        p, q = torch.zeros(2, 1, 1, 4, 4, dtype=torch.float64)
        p[..., -1, 0] = 1.0
        gradient = icl.gradient(replace(fresh(target="query"), first=index), p, q)
        s, _ = drawn(fresh(), index)
        y_x = gradient.dq[0, 0, 0, :-1] / s[0, 0]
        y = (2 * gradient.loss) ** 0.5
        assert abs(y_x @ weights) == pytest.approx(y**2, rel=1e-3)
        lengths.append(float(y_x.norm() ** 2) / y**2)
    assert sum(lengths) / 200 == pytest.approx(3, abs=SIGMAS * (6 / 200) ** 0.5)  # x is 3 normals


def test_streams_continue_and_differ() -> None:
    p, q = parts(model("diag", 3, 2))
    whole, *rest = [
        icl.gradient(source, p, q)
        for source in (fresh(samples=48), fresh(samples=16), fresh(samples=32, first=16), fresh(samples=48, seed=6))
    ]
    assert rest[0].loss + rest[1].loss == pytest.approx(whole.loss, rel=FLOAT32)
    assert off(rest[0].dp + rest[1].dp, whole.dp) < FLOAT32
    assert abs(rest[2].loss / whole.loss - 1) > 1e-3
    single = [icl.gradient(fresh(first=index), p, q).loss for index in range(48)]
    assert sum(single) == pytest.approx(whole.loss, rel=FLOAT32)
    assert len(set(single)) == 48


def test_wild_blocks() -> None:
    """Every so many sixteens one has wider inputs and weights, counts as told in the gradient and not in the loss."""
    p, q = torch.zeros(2, 1, 1, 4, 4, dtype=torch.float64)
    p[..., -1, 0] = 1.0
    plain = icl.gradient(fresh(), p, q)
    augmented = icl.gradient(fresh(augmented=1, augmented_x=2.0, augmented_w=3.0, augmented_weight=0.5), p, q)
    assert off(augmented.dq[0, 0, :3, :3], plain.dq[0, 0, :3, :3] * (2.0**2 * 3.0 * 0.5)) < FLOAT32
    assert augmented.loss == 0.0
    given: dict[str, Any] = {"augmented_x": 2.0, "augmented_w": 3.0, "augmented_weight": 0.5}
    both = icl.gradient(fresh(samples=48, augmented=2, **given), p, q)
    alone = [icl.gradient(fresh(samples=16, first=at, augmented=at != 16, **given), p, q) for at in (0, 16, 32)]
    assert off(sum((one.dq for one in alone), torch.zeros(())), both.dq) < FLOAT32
    assert both.loss == pytest.approx(alone[1].loss, rel=FLOAT32)
