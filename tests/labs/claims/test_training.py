"""A training arm: its curve, its score, its ending, and that the seed decides all of it."""

from __future__ import annotations

import torch

from linnet.labs.claims.training import plan, seeded_model, train
from linnet.labs.core.claim import rounded
from linnet.labs.recall.tasks import CopyTask
from linnet.models import Model, ModelConfig

SHAPE = ModelConfig(d_model=16, n_layers=1, n_heads=2, vocab_size=11, positions="learned", max_length=20)
WORDS = CopyTask(seq_len=20)
HELD_OUT = CopyTask(seq_len=20, split="test", size=12)


@torch.no_grad()
def mean_loss(model: Model, source: CopyTask) -> float:
    total, count = model.loss(source.batch(range(source.length)))
    return float(total / count)


def test_the_curve_ends_at_the_last_step_and_the_score_is_of_all_rows() -> None:
    model = seeded_model(SHAPE, 0)
    metrics = train(model, WORDS, HELD_OUT, plan(7, points=3, batch_size=4, eval_rows=4), watched=("loss", "bits"))
    assert [point[0] for point in metrics["curve"]] == [3, 6, 7]
    assert all(len(point) == 3 for point in metrics["curve"])
    assert abs(metrics["loss"] - mean_loss(model, HELD_OUT)) < 1e-3
    assert abs(metrics["curve"][-1][1] - metrics["loss"]) > 1e-4, "the curve is of four rows only"
    assert metrics["ending"] == ""
    assert metrics["units"] == 7 * 4 * 20
    assert metrics["parameters"] == model.parameter_count()


def test_the_score_may_be_of_a_third_part() -> None:
    test = CopyTask(seq_len=20, split="test", size=8, seed=5)
    model = seeded_model(SHAPE, 0)
    metrics = train(model, WORDS, HELD_OUT, plan(2, batch_size=4), test=test)
    assert abs(metrics["loss"] - mean_loss(model, test)) < 1e-3


def test_the_seed_decides_weights_and_run_and_nothing_else_is_touched() -> None:
    before = torch.get_rng_state()
    runs = [train(seeded_model(SHAPE, seed), WORDS, HELD_OUT, plan(3, batch_size=4, seed=seed)) for seed in (1, 1, 2)]
    assert runs[0]["curve"] == runs[1]["curve"]
    assert runs[0]["curve"] != runs[2]["curve"]
    assert torch.equal(before, torch.get_rng_state())
    first, again, other = (seeded_model(SHAPE, seed).state_dict()["embed.weight"] for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_run_that_diverges_says_so_and_has_no_score() -> None:
    model = seeded_model(SHAPE, 0)
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    metrics = train(model, WORDS, HELD_OUT, plan(2, batch_size=4))
    assert metrics["ending"] == "diverged"
    assert "loss" not in metrics


def test_numbers_are_kept_to_five_figures() -> None:
    assert rounded(1.23456789) == 1.2346
    assert rounded(0.000123456789) == 0.00012346
