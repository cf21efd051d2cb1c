"""The digits claim: its rule and its licence on made-up rows, images made smaller, and the bits of a pixel alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from linnet.data.images import ImageSource, image_set
from linnet.labs.claims.rnn.digits import images, pixels_alone, read
from linnet.labs.core.claim import NO, OPEN, YES, Finding
from linnet.labs.core.licence import licence
from linnet.labs.core.verdicts import CLOSE, FAILS, HOLDS, NOT_SEEN, SEEN, UNTESTED
from tests.labs.claims.rnn.variant_rows import STILL, arm_rows

PAPER: dict[str, Any] = {
    "data": "mnist", "side": 28, "model": {"preset": "mnist"}, "train": {"steps": 1_350_000, "batch_size": 10},
}  # fmt: skip
SMALL: dict[str, Any] = {**PAPER, "side": 14, "model": {"preset": "digits"}, "train": {"steps": 340, "batch_size": 16}}
EQUAL, APART, WIDE = [1.03, 1.025, 1.03, 1.03, 1.025], [1.10, 1.11, 1.10, 1.12, 1.11], [1.00, 1.02, 1.15, 1.10, 0.98]


def result(
    linear: Sequence[float] = EQUAL,
    *,
    config: dict[str, Any] = PAPER,
    seeds: int = 5,
    bits: float = 0.62,
    alone: float = 1.73,
    falls: Sequence[float] = STILL,
) -> Finding:
    """Softmax needs `bits` per dimension, linear these times as many, LSH 1.2 times."""
    scores = {"linear": [bits * one for one in linear[:seeds]], "softmax": [bits] * seeds, "lsh": [1.2 * bits] * seeds}
    return read(arm_rows("digits", "bits_per_dim", scores, config, {"alone": alone}, falls))


@pytest.mark.parametrize(
    ("made", "state", "outcome"),
    [
        (result(), YES, HOLDS),
        (result(APART), NO, FAILS),
        (result(WIDE), OPEN, CLOSE),
        (result(config=SMALL, seeds=3), YES, SEEN),
        (result(APART, config=SMALL, seeds=3), NO, NOT_SEEN),
        (result(APART, config=SMALL, bits=2.18, alone=2.41), NO, UNTESTED),  # learned little of the images
        (result(APART, bits=1.40), NO, UNTESTED),  # the paper's size without its bits
        (result(seeds=3), YES, UNTESTED),
        (result(APART, falls=(1.1, 1.05, 1.02, 1)), NO, UNTESTED),
    ],
)
def test_outcomes(made: Finding, state: str, outcome: str) -> None:
    assert (made.evidence.state, made.outcome) == (state, outcome)


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (result(bits=1.55), "softmax needs 0.896 of the bits of each pixel alone; 0.85 or less is accepted"),
        (result(bits=1.40), "softmax needs 1.4 bits per dimension; 0.683 or less is accepted"),
        (result(falls=(1.1, 1.05, 1.02, 1)), "falls by 2.0 %"),
        (result(config=SMALL), "pixels 196 (the paper has 784); layers 3 (the paper has 8)"),
    ],
)
def test_what_a_verdict_lacks_is_named(made: Finding, why: str) -> None:
    assert why in licence(made.evidence).reason


def test_what_a_reader_sees() -> None:
    one = result()
    assert one.numbers[0].ours == pytest.approx(1.028, abs=1e-3)
    assert one.numbers[0].paper == "1.037 (0.644 / 0.621)"
    assert [n.ours for n in one.numbers[2:]] == pytest.approx([0.62, 0.62 * 1.028, 0.744, 1.73])
    assert "+2.8 % bits against softmax" in one.sentence
    assert one.scope == "MNIST 28x28, d = 256, 8 layers, 1,350,000 steps, 5 seeds"
    assert one.tables[0].rows[1][:2] == ("linear", "0.644")
    assert one.charts[0].series["softmax"][-1][1] == pytest.approx(0.62)  # type: ignore[union-attr]


def test_too_few_rows_say_nothing() -> None:
    assert result(seeds=2).outcome == UNTESTED
    rows = arm_rows("digits", "bits_per_dim", {"linear": [2.0] * 3, "softmax": [2.0] * 3}, SMALL, {"alone": 3.0})
    assert "lsh" in read(rows).sentence


def test_images_are_made_smaller_by_the_mean_of_blocks() -> None:
    whole = image_set("digits", "test").images.reshape(-1, 8, 8).astype(float)
    small = images({"data": "digits", "side": 4, "test_images": 5}, "test")
    assert small.images.shape == (5, 16)
    means = [whole[2, i : i + 2, j : j + 2].mean() for i in range(0, 8, 2) for j in range(0, 8, 2)]
    assert np.abs(small.images[2] - np.array(means)).max() <= 0.5
    same = images({"data": "digits", "side": 8, "test_images": 0}, "test")
    assert (same.images == image_set("digits", "test").images).all()


def test_a_pixel_alone_costs_the_entropy_of_its_histogram() -> None:
    fields = np.zeros((4096, 1, 2), np.uint8)
    fields[::2, 0, 1] = 1  # the first pixel says nothing, the second is a fair coin
    source = ImageSource(fields, levels=2)
    assert pixels_alone(source, source) == pytest.approx(0.5, abs=1e-3)
