"""The time of a training step in T11: what is timed is a step, of networks that differ in their attention alone."""

from __future__ import annotations

import pytest

from linnet.labs.claims.rnn.speech import SMALL
from linnet.labs.claims.rnn.speech_pace import VARIANTS, paces, shape_of, speed_ratio, timed
from linnet.models import build


def test_attention_arms_differ_in_the_mixer_alone_and_have_the_papers_sizes_without_others() -> None:
    linear, softmax, lsh = (shape_of(variant, 64, {**SMALL, "n_layers": 2}) for variant in ("linear", "softmax", "lsh"))
    assert linear.replace(mixer="softmax") == softmax
    assert lsh.replace(mixer="softmax", mixer_options={}) == softmax
    assert (linear.mixer, linear.d_model, linear.n_layers, linear.causal) == ("elu", 64, 2, False)
    assert linear.norm_place == "pre"
    published = shape_of("linear", 800, {})
    assert (published.n_layers, published.n_heads, published.d_model) == (9, 6, 192)
    assert (shape_of("bilstm", 800, {}).d_model, shape_of("bilstm", 800, {}).n_layers) == (320, 3)
    assert build(shape_of("bilstm", 40, {**SMALL, "n_layers": 1})).parameter_count() > 0


def test_every_arm_is_timed_at_every_length_in_every_round() -> None:
    config = {"lengths": [16, 32], "frames": 32, "rounds": 2, "model": SMALL}
    result = paces(config)["seconds"]
    assert set(result) == {"16", "32"}
    assert {variant: len(seconds) for variant, seconds in result["32"].items()} == dict.fromkeys(VARIANTS, 2)
    assert all(second > 0 for seconds in result["16"].values() for second in seconds)


def test_the_ratio_is_of_softmax_over_linear_round_by_round() -> None:
    seconds = {"800": {"softmax": [0.4, 0.6], "linear": [0.2, 0.2]}}
    rows = [{"config": {"experiment": "speech-pace"}, "metrics": {"seconds": seconds}}]
    result = speed_ratio(rows)
    assert result is not None
    assert result.mean == pytest.approx(2.5)
    assert timed(rows, 100) == {}
    assert speed_ratio([{"config": {"experiment": "speech"}, "metrics": {}}]) is None
