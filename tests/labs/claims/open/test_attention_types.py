"""Cross, bidirectional and hybrid attention: every outcome of the rule on made-up rows, and the real arms."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from linnet.labs.claims.open.attention_types import CLAIM, hybrids
from linnet.labs.claims.open.cross import translator
from linnet.labs.core.claim import CONFIRMED, REFUTED, UNCLEAR, UNTESTED, Chart
from linnet.labs.core.results import Row, make_row
from linnet.models import EncoderDecoder

from .made_up import arm_rows

LONG = {"sources": [64, 4096], "rounds": 4}


def decode(linear: Sequence[float], softmax: float = 3.0) -> Row:
    """A token takes 1 ms after the short source, and these times that after the long one, round by round."""
    metrics = {
        "linear": {"seconds": [[1e-3] * 4, [1e-3 * x for x in linear]], "bytes": [500, 500]},
        "softmax": {"seconds": [[1e-3] * 4, [1e-3 * softmax] * 4], "bytes": [512, 32_768]},
    }
    return make_row({"experiment": "cross decode", **LONG}, metrics, 0.1)


def rows(
    linear: Sequence[float] = (1.0, 1.0, 1.0, 1.0),
    hybrid: Sequence[float] = (0.8, 0.8, 0.8),
    softmax: float = 0.9,
    seeds: int = 3,
) -> list[Row]:
    result = [decode(linear)]
    for mixer, score in (("elu", 0.4), ("softmax", 1.0)):
        config = {"experiment": "cross", "mixer": mixer, "length": 16}
        result += [make_row({**config, "seed": seed}, {"score": score}, 0.1) for seed in range(seeds)]
        result += arm_rows("recall", mixer, [score] * seeds, length=24)
        result += arm_rows("recall", mixer, [score - 0.2] * seeds, length=24, causal=False)
    for variants, scores in zip(hybrids("conv"), ([0.2] * 3, [softmax] * 3, hybrid), strict=True):
        result += arm_rows("recall", scores=list(scores)[:seeds], length=48, pairs=4, **variants)
    return result


@pytest.mark.parametrize(
    ("made", "outcome"),
    [
        (rows(), CONFIRMED),
        (rows(hybrid=(0.3, 0.3, 0.3)), REFUTED),
        (rows(linear=(1.5, 1.5, 1.5, 1.6)), REFUTED),
        (rows(hybrid=(0.3, 0.6, 0.9)), UNCLEAR),
        (rows(linear=(0.9, 1.5, 0.9, 1.5)), UNCLEAR),
        (rows(softmax=0.21), UNCLEAR),  # no gap to recover
        (rows(hybrid=(0.1, 0.1, 0.1)), UNCLEAR),  # one in four is a guess: nothing has begun to learn
        (rows(seeds=2), UNTESTED),
        (rows()[1:], UNTESTED),
        ([row for row in rows() if row["config"].get("causal") is not False], UNTESTED),
        ([], UNTESTED),
    ],
)
def test_outcomes(made: list[Row], outcome: str) -> None:
    assert CLAIM.read(made).outcome == outcome


def test_every_task_counts() -> None:
    copied = [
        row
        for variants, score in zip(hybrids(), (0.2, 0.8, 0.3), strict=True)
        for row in arm_rows("copy", scores=[score] * 3, length=64, **variants)
    ]
    finding = CLAIM.read([*rows(), *copied])
    assert finding.outcome == REFUTED
    shown = {number.what: number.ours for number in finding.numbers}
    assert shown["copy: share of linear's gap to softmax that window + linear recovers"] == pytest.approx(1 / 6)


def test_what_a_reader_sees() -> None:
    finding = CLAIM.read(rows())
    first = finding.numbers[0]
    assert first.what == "time of a decoded token, source of 4,096 tokens over 64: linear cross attention"
    assert first.ours == pytest.approx(1.0)
    assert first.of == "4 rounds"
    shown = {number.what: number.ours for number in finding.numbers}
    assert shown["recall: share of linear's gap to softmax that window + linear recovers"] == pytest.approx(6 / 7)
    assert shown["reversal of 16 symbols, share right: softmax cross minus linear cross"] == pytest.approx(0.6)
    assert shown["bidirectional recall, share right: softmax minus linear"] == pytest.approx(0.6)
    assert "writes 40% of a reversed word of 16 right" in finding.sentence
    assert "the cost of a decoded token does not depend on the source" in finding.meaning
    assert finding.tables[1].rows[0] == ("linear", "64", "1,000", "500")
    lines, bars = finding.charts
    assert isinstance(lines, Chart)
    assert isinstance(bars, Chart)
    assert lines.series["softmax"][1][:2] == (4096, pytest.approx(3000))
    assert bars.series["hybrid"][0][:2] == ("recall", pytest.approx(0.8))


def test_the_two_translators_differ_in_the_cross_attention_alone() -> None:
    models = [EncoderDecoder(translator(mixer, 16, 32, 2)) for mixer in ("elu", "softmax")]
    assert len({model.parameter_count() for model in models}) == 1
    for model in models:
        assert {type(block.mixer).__name__ for block in model.blocks} == {"BaseConv"}
    assert [model._readers()[0].feature_map is None for model in models] == [False, True]
