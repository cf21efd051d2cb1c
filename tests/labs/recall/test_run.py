"""A recall run: what its row says, that it learns, and that a search run stops where a reported one does not."""

from __future__ import annotations

import os
import signal

import pytest
import torch

from linnet.labs.recall import run as engine
from linnet.labs.recall.config import TEST_ROWS, RecallConfig
from linnet.labs.recall.probes import decay_alone, gains
from linnet.labs.recall.run import Recaller, rows_of, run, trained
from linnet.labs.recall.score import Kept, ratio, score

TINY = RecallConfig(d_model=16, key_dim=3, seq_len=16, pairs=2, vocab_size=32, steps=6, batch_size=8)


def test_a_row_says_what_was_measured_and_is_the_same_again() -> None:
    first, second = run(TINY), next(iter(rows_of(TINY)))
    assert first["metrics"] == second["metrics"]
    assert first["config"] == TINY.to_dict()
    metrics = first["metrics"]
    assert 0 <= metrics["accuracy"] <= 1
    assert metrics["mixer_bytes"] == 6 * 17 * 4  # f (f + 1) / 2 features, 16 values and their sum
    assert metrics["state_bytes"] == metrics["mixer_bytes"] + 2 * 16 * 4
    assert [step for step, _ in metrics["curve"]] == list(range(1, 7))
    assert metrics["ending"] == ""
    right, asked = (
        sum(pair[i] for name, pair in metrics["slices"].items() if name.startswith("pairs/")) for i in (0, 1)
    )
    assert asked == TEST_ROWS * TINY.pairs
    assert metrics["accuracy"] == pytest.approx(right / asked)


def test_the_score_is_the_share_of_right_answers() -> None:
    torch.manual_seed(0)
    model, task = Recaller(TINY.model()).eval(), TINY.source("test")
    drawn = task.draw(list(range(40)))
    with torch.no_grad():
        logits, _ = model(drawn.tokens)
    asked = drawn.targets >= 0
    wanted = (logits.argmax(-1) == drawn.targets)[asked].double().mean()
    assert ratio(score(model, task, range(40))["all"]) == pytest.approx(float(wanted))
    metrics = model.metrics({"tokens": drawn.tokens, "targets": drawn.targets})
    assert float(metrics["accuracy"][0] / metrics["accuracy"][1]) == pytest.approx(float(wanted))


def test_a_search_run_stops_when_it_is_good_enough() -> None:
    easy = TINY.replace(vocab_size=32, steps=200, lr=1e-2, stop_at=0.05)  # chance is 1 in 16
    result = run(easy)["metrics"]
    assert result["ending"] == "stopped"
    assert result["curve"][-1][0] < 200
    assert all(value < 0.05 for _, value in result["curve"][:-1])
    assert result["curve"][-1][1] >= 0.05


def test_a_run_that_diverges_is_a_row_too() -> None:
    result = run(TINY.replace(lr=1e30, steps=20, warmup=0.0))
    assert result["metrics"]["ending"] == "diverged"
    assert 0 <= result["metrics"]["accuracy"] <= 1


def test_a_run_that_is_told_to_stop_makes_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal ends training in good order; what it leaves must not pass for a result."""
    before = engine.Recaller.metrics

    def metrics(self: Recaller, batch: dict[str, torch.Tensor]) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        monkeypatch.setattr(engine.Recaller, "metrics", before)  # a second signal would end this process
        os.kill(os.getpid(), signal.SIGTERM)
        return before(self, batch)

    monkeypatch.setattr(engine.Recaller, "metrics", metrics)
    with pytest.raises(KeyboardInterrupt, match="SIGTERM after step 2 of 6"):
        run(TINY)


def test_held_out_sequences_are_drawn_once() -> None:
    kept = Kept(TINY.source("test"))
    assert kept.batch([1, 2])["tokens"] is kept.batch([1, 2])["tokens"]
    assert kept.batch([1, 2])["tokens"].equal(TINY.source("test").batch([1, 2])["tokens"])


def test_weights_follow_the_seed_and_not_the_caller() -> None:
    torch.manual_seed(5)
    a = trained(TINY)[0].state_dict()
    torch.manual_seed(6)
    b = trained(TINY)[0].state_dict()
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_gains_and_what_decay_alone_would_do() -> None:
    """lr 0 is refused, so: a rate so small that no gradient moves gamma, and a decay so large that it does."""
    config = TINY.replace(lr=1e-9, weight_decay=1e8, steps=20, warmup=0.0)
    result = gains(trained(config)[0], config)
    assert result["gamma_mean"] == pytest.approx(decay_alone(config), rel=1e-2)
    assert result["gamma_mean"] < 0.6
    kept = config.replace(decay_all=False)
    assert gains(trained(kept)[0], kept)["gamma_mean"] == pytest.approx(1.0, abs=1e-3)
    assert gains(Recaller(TINY.replace(mixer="elu").model()), TINY) == {}


@pytest.mark.slow
@pytest.mark.parametrize(("mixer", "key_dim"), [("softmax", None), ("rebased", 16)])
def test_small_models_learn_to_recall(mixer: str, key_dim: int | None) -> None:
    """64 tokens, 16 pairs, 256 symbols: the acceptance run. Softmax and ReBased reach 0.99 at the last step."""
    result = run(RecallConfig(mixer=mixer, key_dim=key_dim))
    assert result["metrics"]["accuracy"] >= 0.99, result["metrics"]["curve"]
    assert result["metrics"]["transition"] is not None


def test_the_engine_uses_the_probes_it_is_asked_for() -> None:
    result = run(TINY.replace(probes=("longer", "gains"), vocab_size=64))["metrics"]
    assert [(one["seq_len"], one["pairs"]) for one in result["longer"]] == [(16, 2), (32, 2), (32, 4)]
    assert result["gains"]["gamma_mean"] > 0
    assert set(engine.PROBES) >= {"gains", "longer"}
