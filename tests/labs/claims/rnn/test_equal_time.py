"""Equal seconds: the clock stands still while it evaluates, the images are what they should be, and the outcome."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from linnet.labs.claims.rnn import stopwatch
from linnet.labs.claims.rnn.equal_time import CLAIM, LINEAR, SOFTMAX, WEEK
from linnet.labs.claims.rnn.grey_images import LONG, SHORT, STEP_BITS, drawn, images, step_bits
from linnet.labs.claims.rnn.stopwatch import Stopwatch, TimeUp
from linnet.labs.core.claim import NO, OPEN, YES, Chart, Row, Setting
from linnet.labs.core.licence import licence, regime
from linnet.labs.core.verdicts import CLOSE, FAILS, HOLDS, NOT_SEEN, SEEN, UNTESTED
from linnet.train import Event

SMALL = {"preset": "mnist", "changes": {"d_model": 64, "n_layers": 2}, "seconds": 25.0, "data": "drawn"}
PACES = {True: (1.0, 2.0, 3.0, 4.0, 5.0), False: (0.3, 2.0, 2.6, 4.8, 5.0)}  # seconds of equal work, by quiet or not


def row(length: int, seed: int, ratio: float, bits: float, level: float, still: bool) -> Row:
    """Softmax makes 100 updates and ends at `level` bits, a little more with every seed."""
    ends = {LINEAR: (100 * ratio, level + bits + 0.02 * seed), SOFTMAX: (100, level + 0.01 * seed)}
    variants = {
        variant: {
            "updates": updates,
            "bits": end,
            "curve": [[seconds, updates * (i + 1) / 5, end] for i, seconds in enumerate(PACES[still])],
        }
        for variant, (updates, end) in ends.items()
    }
    return {"config": {**SMALL, "length": length, "seed": seed}, "metrics": variants}


def rows(bits: float = -0.5, *, seeds: int = 5, level: float = 4.0, still: bool = True) -> list[Row]:
    sizes = ((LONG, 2.5, bits), (SHORT, 1.2, 0.0))
    return [row(length, seed, r, b, level, still) for length, r, b in sizes for seed in range(seeds)]


@pytest.mark.parametrize(
    ("how", "state", "inside", "here"),
    [
        ({}, YES, HOLDS, SEEN),
        ({"bits": 0.5}, NO, FAILS, NOT_SEEN),
        ({"bits": -0.02}, OPEN, CLOSE, UNTESTED),
        ({"seeds": 3}, YES, UNTESTED, SEEN),
        ({"level": 5.0}, YES, UNTESTED, UNTESTED),  # softmax has not learned
        ({"still": False}, YES, UNTESTED, UNTESTED),
    ],
)
def test_outcomes(how: dict[str, Any], state: str, inside: str, here: str, monkeypatch: pytest.MonkeyPatch) -> None:
    finding = CLAIM.read(rows(**how))
    assert (finding.evidence.state, finding.outcome) == (state, here)
    monkeypatch.setattr("linnet.labs.claims.rnn.equal_time.regime_of", lambda config: regime("", ""))
    assert CLAIM.read(rows(**how)).outcome == inside


def test_what_a_verdict_lacks_is_named() -> None:
    assert "values 1,024 (the paper has 3,072); layers 2" in licence(CLAIM.read(rows()).evidence).reason
    assert licence(CLAIM.read(rows(level=5.0)).evidence).short == "softmax did not learn"
    assert licence(CLAIM.read(rows(still=False)).evidence).short == "the machine was too noisy"


def test_the_papers_sizes_are_inside_but_for_the_length() -> None:
    large = [
        {**one, "config": {**one["config"], "preset": "cifar10", "changes": {}, "seconds": WEEK}} for one in rows()
    ]
    assert CLAIM.read(large).evidence.regime.outside == ("values 1,024 (the paper has 3,072)",)


def test_two_seeds_or_a_diverged_one_are_too_few() -> None:
    assert CLAIM.read(rows(seeds=2)).outcome == UNTESTED
    diverged = rows(seeds=3)
    diverged[4]["metrics"][SOFTMAX]["bits"] = None
    finding = CLAIM.read(diverged)
    assert finding.outcome == UNTESTED
    assert "2 of 3 seeds at 128 values" in finding.sentence


def test_what_a_reader_sees() -> None:
    finding = CLAIM.read(rows())
    assert [round(one.ours, 3) for one in finding.numbers] == [-0.48, 2.5, 0.02, 1.2]
    assert finding.numbers[0].of == "5 seeds"
    assert finding.scope == "drawn images, 1,024 values, d = 64, 2 layers, 25 s each, 5 seeds"
    assert "2.500 times the updates in 25 s" in finding.meaning
    length, variant, seconds, updates, _ = finding.tables[0].rows[0]
    assert (length, variant, float(seconds), float(updates)) == ("1,024", LINEAR, 25, 250)
    (chart,) = finding.charts
    assert isinstance(chart, Chart)
    assert chart.series["softmax, 1,024"][-1] == pytest.approx((5.0, 4.02))


def test_the_clock_counts_training_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(stopwatch, "perf_counter", lambda: now)

    def score(*args: object, **how: object) -> dict[str, float]:
        nonlocal now
        now += 50  # an evaluation takes longer than all of the training
        return {"bits_per_dim": 5.0}

    monkeypatch.setattr(stopwatch, "evaluate", score)
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


def test_a_model_that_learned_beats_the_histogram_of_steps() -> None:
    """On the drawn images, the constant is what the histogram needs."""
    train, test = (images("drawn", LONG, split) for split in ("train", "test"))
    assert step_bits(train, test) == pytest.approx(STEP_BITS["drawn"], abs=0.01)


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
