"""The copy claim: its rule on made-up rows, and a network of each arm that its configuration describes."""

from __future__ import annotations

import pytest

from linnet.labs.claims.rnn.copy import falling, read, spikes
from linnet.labs.core.claim import CONFIRMED, REFUTED, UNCLEAR, UNTESTED, Row

FLAT = (0.5, 0.9, 0.99, 0.99)  # accuracy at the four points of a curve


def rows(
    linear: list[float],
    softmax: list[float],
    lsh: list[float],
    *,
    right: float = 0.995,
    curve: tuple[float, ...] = FLAT,
    falls: float = 1.0,
    softmax_right: float = 1.0,
) -> list[Row]:
    """Runs with these losses at the end; `falls`: what the loss was before its last quarter, in times its end."""
    collected = []
    for variant, losses in {"linear": linear, "softmax": softmax, "lsh": lsh}.items():
        for seed, loss in enumerate(losses):
            before = [loss * falls] * 3
            points = [[25 * (i + 1), y, x] for i, (y, x) in enumerate(zip([*before, loss], curve, strict=True))]
            metrics = {"loss": loss, "accuracy": softmax_right if variant == "softmax" else right, "curve": points}
            config = {"experiment": "copy", "arm": variant, "length": 20, "seed": seed, "train": {"steps": 100}}
            collected.append({"config": config, "metrics": {**metrics, "train_seconds": 3.0}})
    return collected


def test_equal_losses_below_lsh_confirm() -> None:
    finding = read(rows([0.011, 0.010, 0.012], [0.010, 0.010, 0.010], [0.04, 0.05, 0.04]))
    assert finding.outcome == CONFIRMED
    assert finding.numbers[0].ours == pytest.approx(99.5)
    assert finding.numbers[3].ours == pytest.approx(1.1)
    assert finding.numbers[4].ours == pytest.approx((0.011 / 0.04 + 0.2 + 0.3) / 3)
    assert finding.tables[0].rows[1][:4] == ("20", "linear", "99.5 %", "0.0110")
    assert finding.charts[0].series["linear"][-1][:2] == [100, pytest.approx(0.011)]  # type: ignore[union-attr]


def test_a_loss_far_above_softmax_that_no_longer_falls_refutes() -> None:
    apart = ([0.05, 0.06, 0.05], [0.01, 0.01, 0.01], [0.1, 0.1, 0.1])
    assert read(rows(*apart)).outcome == REFUTED
    still = read(rows(*apart, falls=2.0))
    assert still.outcome == UNCLEAR
    assert "still falls" in still.sentence


def test_too_few_symbols_refute_only_where_softmax_copies() -> None:
    losses = ([0.05] * 3, [0.04] * 3, [0.1] * 3)
    assert read(rows(*losses, right=0.9)).outcome == REFUTED
    neither = read(rows(*losses, right=0.9, softmax_right=0.9))
    assert neither.outcome == UNCLEAR
    assert "softmax itself" in neither.sentence


def test_lsh_below_linear_refutes() -> None:
    assert read(rows([0.02] * 3, [0.02] * 3, [0.01] * 3)).outcome == REFUTED


def test_wide_intervals_and_spikes_are_unclear() -> None:
    wide = read(rows([0.01, 0.01, 0.05], [0.01] * 3, [0.1] * 3))
    assert wide.outcome == UNCLEAR
    assert "All three" in wide.meaning
    spiky = read(rows([0.011] * 3, [0.01] * 3, [0.1] * 3, curve=(0.5, 0.9, 0.7, 0.99)))
    assert spiky.outcome == UNCLEAR
    assert "on the way" in spiky.sentence


def test_two_seeds_or_a_missing_arm_say_nothing() -> None:
    assert read(rows([0.01] * 2, [0.01] * 3, [0.1] * 3)).outcome == UNTESTED
    missing = read(rows([0.01] * 3, [0.01] * 3, []))
    assert missing.outcome == UNTESTED
    assert "lsh" in missing.sentence


def test_longer_words_are_in_the_table_and_not_in_the_verdict() -> None:
    short = rows([0.011] * 3, [0.01] * 3, [0.1] * 3)
    long = rows([2.0], [0.01], [], right=0.1)
    for row in long:
        row["config"]["length"] = 64
    finding = read(short + long)
    assert finding.outcome == CONFIRMED
    assert [line[0] for line in finding.tables[0].rows] == ["20"] * 3 + ["64"] * 2


def test_spikes_and_falling_read_the_curve() -> None:
    row = rows([0.01], [], [], curve=(0.9, 0.85, 0.95, 0.99), falls=1.2)[0]
    assert not spikes(row)
    assert not falling(row)
    assert falling(rows([0.01], [], [], falls=1.3)[0])
    assert spikes(rows([0.01], [], [], curve=(0.9, 0.79, 0.95, 0.99))[0])
