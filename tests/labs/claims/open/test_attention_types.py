"""Cross, bidirectional and hybrid attention: every outcome of the rule on made-up rows, and the real variants."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from linnet.labs.claims.open.attention_types import CLAIM, hybrids
from linnet.labs.claims.open.cross import translator
from linnet.labs.core.claim import Chart
from linnet.labs.core.results import Row, make_row
from linnet.labs.core.verdicts import CLOSE, FAILS, HOLDS, UNTESTED
from linnet.models import EncoderDecoder

from .made_up import arm_rows

FLAT = (1.0,) * 6


def decode(linear: Sequence[float], longest: int = 4096, noise: float = 0.0) -> Row:
    """A token takes 1 ms after the short source, and these times that after the long one, round by round."""
    rounds = [1e-3 * (1 + noise * (turn % 2)) for turn in range(len(linear))]
    slower = [one * by for one, by in zip(rounds, linear, strict=True)]
    metrics = {
        "linear": {"seconds": [rounds, slower], "bytes": [500, 500]},
        "softmax": {"seconds": [rounds, [3 * one for one in rounds]], "bytes": [512, 32_768]},
    }
    config = {"experiment": "cross decode", "sources": [64, longest], "rounds": len(linear), "d_model": 128}
    return make_row(config, metrics, 0.1)


def trained(softmax: float = 1.0) -> list[Row]:
    result = []
    for mixer, score in (("elu", 0.4), ("softmax", softmax)):
        config = {"experiment": "cross", "mixer": mixer, "length": 16}
        result += [make_row({**config, "seed": seed}, {"score": score}, 0.1) for seed in range(3)]
        result += arm_rows("recall", mixer, [score] * 3, length=24)
        result += arm_rows("recall", mixer, [score - 0.2] * 3, length=24, causal=False)
    for variants, score in zip(hybrids("conv"), (0.2, 0.9, 0.8), strict=True):
        result += arm_rows("recall", scores=[score] * 3, length=48, pairs=4, **variants)
    return result


@pytest.mark.parametrize(
    ("made", "outcome"),
    [
        ([decode(FLAT), *trained()], HOLDS),
        ([decode(FLAT), *trained(softmax=0.1)], HOLDS),  # quality is reported, not judged
        ([decode(FLAT)], HOLDS),
        ([decode((1.5,) * 6), *trained()], FAILS),
        ([decode((0.9, 1.5) * 6), *trained()], CLOSE),
        ([decode(FLAT[:4]), *trained()], UNTESTED),  # rounds
        ([decode(FLAT, noise=1.0), *trained()], UNTESTED),  # the ratio is 1, but the machine was busy
        ([decode(FLAT, longest=512), *trained()], UNTESTED),
        (trained(), UNTESTED),
        ([], UNTESTED),
    ],
)
def test_outcomes(made: list[Row], outcome: str) -> None:
    assert CLAIM.read(made).outcome == outcome


def test_what_a_reader_sees() -> None:
    finding = CLAIM.read([decode(FLAT), *trained()])
    first = finding.numbers[0]
    assert first.what == "time of a decoded token, source of 4,096 tokens / 64: linear cross attention"
    assert first.ours == pytest.approx(1.0)
    assert first.of == "6 rounds"
    assert finding.scope == "width 128, 64 to 4,096 source tokens, 6 rounds"
    shown = {number.what: number.ours for number in finding.numbers}
    assert shown["reversal of 16 symbols, share right: softmax cross - linear cross"] == pytest.approx(0.6)
    assert shown["recall, share right: window and linear - linear alone"] == pytest.approx(0.6)
    assert finding.tables[0].rows[0] == ("linear", "64", "1,000", "500")
    lines, bars = finding.charts
    assert isinstance(lines, Chart)
    assert isinstance(bars, Chart)
    assert lines.series["softmax"][1][:2] == (4096, pytest.approx(3000))
    assert bars.series["hybrid"][0][:2] == ("recall", pytest.approx(0.8))


@pytest.mark.parametrize("softmax", [1.0, 0.5])
def test_advice_and_differences_need_a_softmax_that_learned(softmax: float) -> None:
    finding = CLAIM.read([decode(FLAT), *trained(softmax)])
    assert ("40% of a reversed word" in finding.meaning) == (softmax == 1.0)
    (reversal,) = (number.what for number in finding.numbers if number.what.startswith("reversal"))
    assert reversal.endswith("(softmax did not learn it: no comparison)") == (softmax < 1.0)


def test_a_source_that_slows_decoding_is_not_called_free() -> None:
    assert "cost a decoded token nothing extra" in CLAIM.read([decode(FLAT)]).meaning
    assert "nothing extra" not in CLAIM.read([decode((1.5,) * 6)]).meaning


def test_the_two_translators_differ_in_the_cross_attention_alone() -> None:
    models = [EncoderDecoder(translator(mixer, 16, 32, 2)) for mixer in ("elu", "softmax")]
    assert len({model.parameter_count() for model in models}) == 1
    for model in models:
        assert {type(block.mixer).__name__ for block in model.blocks} == {"BaseConv"}
    assert [model._readers()[0].feature_map is None for model in models] == [False, True]
