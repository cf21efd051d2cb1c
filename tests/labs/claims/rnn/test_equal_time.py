"""Equal seconds: the clock stands still while it evaluates, the images are what they should be, and the verdict."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from linnet.labs.claims.rnn import equal_time
from linnet.labs.claims.rnn.equal_time import CLAIM, LINEAR, SOFTMAX, Stopwatch, TimeUp
from linnet.labs.claims.rnn.grey_images import LONG, SHORT, drawn, images
from linnet.labs.core.claim import CONFIRMED, REFUTED, UNCLEAR, UNTESTED, Chart, Row, Setting
from linnet.train import Event


def row(length: int, seed: int, ratio: float, bits: float, level: float = 6.0) -> Row:
    """Softmax makes 100 updates and ends at `level` bits, a little more with every seed."""
    ends = {LINEAR: (100 * ratio, level + bits + 0.02 * seed), SOFTMAX: (100, level + 0.01 * seed)}
    variants = {
        variant: {"updates": updates, "bits": end, "curve": [[1.0, updates / 2, end + 1], [2.0, updates, end]]}
        for variant, (updates, end) in ends.items()
    }
    return {"config": {"length": length, "seed": seed, "seconds": 2.0, "data": "drawn"}, "metrics": variants}


def rows(ratio: float = 2.5, bits: float = -0.5, control: float = 1.2, **how: Any) -> list[Row]:
    sizes = ((LONG, ratio, bits), (SHORT, control, 0.0))
    return [row(length, seed, r, b, **how) for length, r, b in sizes for seed in range(3)]


@pytest.mark.parametrize(
    ("how", "outcome"),
    [
        ({}, CONFIRMED),
        ({"bits": 0.5}, REFUTED),
        ({"ratio": 0.8, "bits": -0.01}, REFUTED),
        ({"bits": -0.01}, UNCLEAR),
        ({"ratio": 1.7}, UNCLEAR),
        ({"control": 2.0}, UNCLEAR),
        ({"level": 8.2}, UNTESTED),
    ],
)
def test_outcomes(how: dict[str, Any], outcome: str) -> None:
    assert CLAIM.read(rows(**how)).outcome == outcome


def test_two_seeds_or_a_diverged_one_are_too_few() -> None:
    assert CLAIM.read(rows()[1:]).outcome == UNTESTED
    diverged = rows()
    diverged[4]["metrics"][SOFTMAX]["bits"] = None
    finding = CLAIM.read(diverged)
    assert finding.outcome == UNTESTED
    assert "2 seeds at 128 values" in finding.sentence


def test_what_a_reader_sees() -> None:
    finding = CLAIM.read(rows())
    assert [round(one.ours, 3) for one in finding.numbers] == [2.5, -0.49, 1.2, 0.01]
    assert finding.numbers[0].of == "3 seeds"
    assert "ends ahead" in finding.meaning
    assert "ends behind" in CLAIM.read(rows(bits=0.5)).meaning
    assert "ends no different" in CLAIM.read(rows(bits=-0.01)).meaning
    length, variant, seconds, updates, _ = finding.tables[0].rows[0]
    assert (length, variant, float(seconds), float(updates)) == ("1,024", LINEAR, 2, 250)
    (chart,) = finding.charts
    assert isinstance(chart, Chart)
    assert chart.series["softmax, 1,024"][-1] == pytest.approx((2.0, 6.01))


def test_the_clock_counts_training_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(equal_time, "perf_counter", lambda: now)

    def score(*args: object, **how: object) -> dict[str, float]:
        nonlocal now
        now += 50  # an evaluation takes longer than all of the training
        return {"bits_per_dim": 5.0}

    monkeypatch.setattr(equal_time, "evaluate", score)
    watch = Stopwatch(None, None, 10.0, 2, 4)  # type: ignore[arg-type]  # evaluate is replaced
    for step in range(1, 11):
        now += 1
        watch(Event("step", step))
    now += 1
    with pytest.raises(TimeUp):
        watch(Event("step", 11))
    assert watch.updates == 10  # of a second each, after the first
    assert [point[:2] for point in watch.curve] == [[2, 2], [4, 4], [6, 6], [8, 8], [10, 10]]


def test_drawn_images_are_smooth_with_an_edge() -> None:
    result = drawn(20, 0)
    assert result.shape == (20, 32, 32)
    assert (result == drawn(20, 0)).all()
    assert (result != drawn(20, 1)).any()
    steps = np.abs(np.diff(result.astype(int), axis=2))
    assert np.median(steps) < 8
    assert np.median(steps.max((1, 2))) > 30


def test_short_images_are_means_of_the_long_ones() -> None:
    long, short = (images("drawn", length, "test") for length in (LONG, SHORT))
    assert (long.images.shape[1], short.images.shape[1]) == (LONG, SHORT)
    block = long.images[0].reshape(32, 32)[4:8, 2:4].mean()
    assert short.images[0].reshape(8, 16)[1, 1] == int(block)


def test_cifar10_is_taken_where_it_is() -> None:
    settings = (Setting("hour"), Setting("hour", data=frozenset({"cifar10"})))
    names = [{config["data"] for config in CLAIM.configs(setting)} for setting in settings]
    assert names == [{"drawn"}, {"cifar10"}]
    tokens = {c["batch"] * c["length"] for c in CLAIM.configs(Setting("hour"))}
    assert tokens == {2 * LONG}  # an update sees as many values at both lengths


def test_a_quick_run_leaves_it_out_and_says_so() -> None:
    assert CLAIM.units(Setting("quick")) == []
    finding = CLAIM.read([])
    assert finding.outcome == UNTESTED
    assert "--budget hour" in finding.sentence
