"""Scores: two estimators of one number, the sharper with the smaller error; tails that do not poison the rest."""

from __future__ import annotations

import math

import pytest
import torch

from linnet.labs.icl.baselines import ada_rr, const_rr, one_step, ridge
from linnet.labs.icl.evaluate import (
    CHUNK,
    DIVERGED,
    TEST_SEED,
    evaluate_model,
    measure,
    oracle,
    predictor,
    profile,
    score,
)
from linnet.labs.icl.noise import PAPER_NOISE, Noise
from linnet.labs.icl.paper import EXACT as KNOWN
from linnet.labs.icl.regression import Batch, Regression
from linnet.regress.gram import Gram
from linnet.regress.model import ICLConfig, ICLTransformer

EXACT = {"rel": 1e-9, "abs": 1e-12}
ERRORS = 3  # standard errors
COUNT = 10_000
U5 = Noise.parse("U5")


def draw(noise: Noise = U5, count: int = 400, d: int = 10, n: int = 20, seed: int = 0) -> Batch:
    return Regression(noise, d, n).sample(count, torch.Generator().manual_seed(seed))


def one_layer(noise: Noise, kind: str = "diag", dtype: torch.dtype = torch.float64) -> ICLTransformer:
    """omega_yx = -1 / (n + d + 1 + E[sigma²]) and all else 0."""
    model = ICLTransformer(ICLConfig(kind, layers=1), dtype=dtype)
    with torch.no_grad():
        model.p.zero_(), model.q.zero_()
        model.p[0, 0, 1], model.q[0, 0, 0] = -1 / (31 + noise.mean_square), 1.0
    return model


@pytest.mark.parametrize("noise", [U5, Noise.parse("1,3"), Noise.parse("U1")], ids=lambda noise: noise.name)
def test_both_estimators_agree_and_the_sharp_one_has_the_smaller_error(noise: Noise) -> None:
    batch = draw(noise, COUNT)
    for w in (const_rr(batch.gram, noise), ada_rr(batch.gram)):
        scores = score(w, batch)
        assert abs(scores.loss - scores.sharp) < ERRORS * scores.se
        assert 0 < scores.sharp_se < 0.75 * scores.se
        assert scores.se < 0.75 * scores.query_se


def test_a_sequence_by_hand() -> None:
    """Without noise the oracle is the truth, and all three losses are ½|w - w_true|² or ½<w - w_true, x_t>²."""
    batch = draw(Noise.parse("U0"), count=2, d=2, n=5)
    w = batch.weights + torch.tensor([[3.0, 4.0], [0.0, 1.0]])
    scores = score(w, batch)
    asked = 0.5 * torch.stack([batch.query[0] @ torch.tensor([3.0, 4.0]).double(), batch.query[1, 1]]).square()
    assert (scores.loss, scores.sharp) == (pytest.approx(6.5, **EXACT), pytest.approx(6.5, **EXACT))
    assert scores.se == pytest.approx(6.0, **EXACT)  # the errors are 12.5 and 0.5
    assert scores.query_se == pytest.approx(float((asked[0] - asked[1]).abs()) / 2, **EXACT)
    assert (scores.diverged, scores.count) == (0.0, 2)
    assert scores.oracle == pytest.approx(0.0, abs=1e-20)


def test_the_error_of_one_query_per_sequence() -> None:
    batch = draw()
    answer, best = ada_rr(batch.gram), ridge(batch.gram, batch.sigma**2)
    squares = [(torch.einsum("bd,bd->b", w, batch.query) - batch.target).square() for w in (answer, best)]
    asked = 0.5 * (squares[0] - squares[1])
    assert score(answer, batch).query_se == pytest.approx(float(asked.std()) / 400**0.5, **EXACT)


def test_the_oracle_has_no_loss_and_nothing_has_less_in_expectation() -> None:
    batch = draw(count=COUNT)
    best = ridge(batch.gram, batch.sigma**2)
    scores = score(best, batch)
    assert (scores.loss, scores.sharp, scores.median) == (0.0, 0.0, 0.0)
    assert torch.equal(oracle(batch), best)
    assert abs(scores.oracle - KNOWN["U5"].oracle) < 0.03
    assert score(torch.zeros_like(best), batch).loss > 0


def test_few_examples_without_noise_still_have_an_oracle() -> None:
    batch = draw(Noise.parse("U0"), count=5, n=4)
    want = torch.linalg.pinv(batch.x) @ batch.y.unsqueeze(-1)
    torch.testing.assert_close(oracle(batch), want.squeeze(-1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e200])
def test_a_few_sequences_that_explode_leave_median_and_trimmed_mean(bad: float) -> None:
    batch = draw(count=400)
    w = const_rr(batch.gram, U5)
    before = score(w, batch)
    w[[3, 77]] = bad
    scores = score(w, batch)
    assert scores.diverged == 2 / 400
    assert scores.loss == scores.sharp == scores.se == scores.sharp_se == scores.query_se == math.inf
    assert scores.median == pytest.approx(before.median, abs=0.02)
    assert scores.trimmed == pytest.approx(before.loss, abs=0.05)
    assert scores.oracle == before.oracle


def test_many_that_explode_show_in_the_trimmed_mean() -> None:
    batch = draw(count=400)
    w = const_rr(batch.gram, U5)
    w[:5] = math.nan
    assert score(w, batch).trimmed == math.inf
    w[:] = math.nan
    scores = score(w, batch)
    assert (scores.median, scores.diverged) == (math.inf, 1.0)


def test_trimmed_median_and_diverged_are_of_the_losses() -> None:
    batch = draw(Noise.parse("U0"), count=300, d=1, n=3)
    size = torch.arange(300, dtype=torch.float64).unsqueeze(-1)
    scores = score(batch.weights + size, batch)  # losses ½ k², k = 0..299
    losses = [0.5 * k * k for k in range(300)]
    assert scores.median == pytest.approx(losses[149], **EXACT)
    assert scores.trimmed == pytest.approx(sum(losses[:297]) / 297, **EXACT)
    assert scores.diverged == sum(loss > DIVERGED for loss in losses) / 300
    assert losses[10] == DIVERGED  # the border itself has not diverged


def test_relative_to_the_oracle() -> None:
    batch = draw()
    scores = score(const_rr(batch.gram, U5), batch)
    assert scores.relative == scores.loss / scores.oracle
    quiet = draw(Noise.parse("U0"))
    assert score(quiet.weights + 1, quiet).relative == math.inf
    assert math.isnan(score(oracle(quiet), quiet).relative)
    assert score(const_rr(batch.gram, U5)[:1], Batch(*(value[:1] for value in batch))).se == math.inf


@pytest.mark.parametrize("noise", PAPER_NOISE, ids=lambda noise: noise.name)
def test_one_layer_reaches_its_closed_form(noise: Noise) -> None:
    """½ d (1 - n / (n + d + 1 + E[sigma²])) - ½ oracle, with omega_yx = -1 / (n + d + 1 + E[sigma²])."""
    result = evaluate_model(one_layer(noise), noise, count=COUNT)
    want = 5 * (1 - 20 / (31 + noise.mean_square)) - KNOWN[noise.name].oracle
    assert abs(result.sharp - want) < ERRORS * result.sharp_se + 0.0001
    assert abs(result.loss - want) < ERRORS * result.se + 0.0001


def test_a_model_is_measured_on_its_own_sizes_and_in_its_own_precision() -> None:
    noise = Noise.parse("U2")
    double, single = (
        evaluate_model(one_layer(noise, dtype=dtype), noise, 2000) for dtype in (torch.float64, torch.float32)
    )
    assert double.loss == pytest.approx(single.loss, rel=1e-4)
    assert double != single
    small = ICLTransformer(ICLConfig("full", layers=2, d=3, n=5), torch.Generator().manual_seed(0))
    assert evaluate_model(small, noise, 100).count == 100
    batch = draw(noise)
    torch.testing.assert_close(predictor(one_layer(noise))(batch.gram), one_step(batch.gram, noise))


def test_the_test_stream_is_fixed_and_chunks_follow_each_other() -> None:
    sums: list[Gram] = []

    def answer(gram: Gram) -> torch.Tensor:
        sums.append(gram)
        return ada_rr(gram)

    problem, count = Regression(U5), CHUNK + 100
    metrics = measure(answer, problem, count)
    generator = torch.Generator().manual_seed(TEST_SEED)
    first, second = problem.sample(CHUNK, generator), problem.sample(100, generator)
    assert [len(gram.s) for gram in sums] == [CHUNK, 100]
    assert torch.equal(sums[0].s, first.gram.s)
    assert torch.equal(sums[1].s, second.gram.s)
    joined = Batch(*(torch.cat(pair) for pair in zip(first, second, strict=True)))
    assert metrics.loss == pytest.approx(score(ada_rr(joined.gram), joined).loss, rel=1e-9)
    assert measure(ada_rr, problem, 100) == measure(ada_rr, problem, 100)
    assert measure(ada_rr, problem, 100) != measure(ada_rr, problem, 100, seed=1)


def test_a_profile_shares_its_sequences_and_rises_away_from_the_penalty() -> None:
    """A fixed penalty is right at one sigma, penalty = sigma², and worse on both sides."""
    metrics = profile(lambda gram: ridge(gram, 4.0), [0.0, 1.0, 2.0, 3.0, 4.0], count=2000)
    losses = [one.sharp for one in metrics]
    assert losses[2] < 1e-20
    assert losses[0] > losses[1] > 0.01
    assert losses[4] > losses[3] > 0.01
    again = profile(ada_rr, [1.0, 2.0], d=3, n=6, count=50)
    assert again[0] == measure(ada_rr, Regression(Noise.parse("=1"), 3, 6), 50)


def test_refusals() -> None:
    batch = draw(count=4)
    with pytest.raises(ValueError, match=r"w is \[4, 9\]; accepted: \[4, 10\]"):
        score(batch.weights[:, 1:], batch)
    with pytest.raises(ValueError, match="0 sequences were requested"):
        measure(ada_rr, Regression(U5), 0)
    with pytest.raises(ValueError, match=r"sigma is -1\.0"):
        profile(ada_rr, [-1.0])
