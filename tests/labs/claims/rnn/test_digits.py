"""The digits claim: its rule on made-up rows, images made smaller, and the bits of a pixel alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from linnet.data.images import ImageSource, image_set
from linnet.labs.claims.rnn.digits import images, pixels_alone, read
from linnet.labs.core.claim import CONFIRMED, REFUTED, UNCLEAR, UNTESTED, Finding
from tests.labs.claims.rnn.variant_rows import STEPS, arm_rows

CONFIG = {"data": "mnist", "side": 14, "train": {"steps": STEPS}}


def result(linear: Sequence[float], softmax: Sequence[float], lsh: Sequence[float], alone: float = 3.0) -> Finding:
    scores = {"linear": linear, "softmax": softmax, "lsh": lsh}
    return read(arm_rows("digits", "bits_per_dim", scores, CONFIG, {"alone": alone}))


def test_within_five_per_cent_confirms() -> None:
    one = result([2.06, 2.04, 2.08], [2.0, 2.0, 2.0], [2.5, 2.5, 2.5])
    assert one.outcome == CONFIRMED
    assert one.numbers[0].ours == pytest.approx(1.03)
    assert one.numbers[0].paper == "1.037 (0.644 / 0.621)"
    assert one.numbers[1].ours == pytest.approx(2.06 / 2.5)
    assert [n.ours for n in one.numbers[2:]] == pytest.approx([2.0, 2.06, 2.5, 3.0])
    assert one.tables[0].rows[1][:3] == ("linear", "0.644", "2.060")
    assert one.charts[0].series["softmax"][-1][:2] == [STEPS, 2.0]  # type: ignore[union-attr]


def test_more_than_that_refutes_and_an_interval_across_it_is_unclear() -> None:
    assert result([2.2, 2.3, 2.2], [2.0] * 3, [2.5] * 3).outcome == REFUTED
    assert result([2.0, 2.05, 2.3], [2.0] * 3, [2.5] * 3).outcome == UNCLEAR


def test_equality_of_networks_that_have_learnt_little_is_unclear() -> None:
    one = result([2.0] * 3, [2.0] * 3, [2.5] * 3, alone=2.1)
    assert one.outcome == UNCLEAR
    assert "learnt little" in one.sentence


def test_too_few_rows_say_nothing() -> None:
    assert result([2.0] * 2, [2.0] * 3, [2.5] * 3).outcome == UNTESTED
    assert "lsh" in result([2.0] * 3, [2.0] * 3, []).sentence


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
