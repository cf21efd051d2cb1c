"""Arms: equal but for the mixer, the same row twice, and dead features counted."""

from __future__ import annotations

import json

import pytest
import torch

from linnet.labs.claims.open.variants import METRICS, PARTS, dead_features, run_variant, variant
from linnet.layers import LinearAttention
from linnet.models import LanguageModel, ModelConfig, count_parameters


@pytest.mark.parametrize("task", list(METRICS))
def test_arms_of_a_task_have_equal_parameters_and_see_the_same_rows(task: str) -> None:
    parts = [PARTS[task](variant(task, mixer, seed=1, steps=2)) for mixer in ("elu", "polynomial", "softmax")]
    assert len({part.model.parameter_count() for part in parts}) == 1
    rows = [part.train.batch([5])["tokens"] for part in parts]
    assert torch.equal(rows[0], rows[1])
    assert torch.equal(rows[0], rows[2])
    assert parts[0].model.state_bytes(64) < parts[1].model.state_bytes(64)
    assert parts[0].plan.to_dict() == parts[2].plan.to_dict()


def test_the_same_configuration_gives_the_same_metrics() -> None:
    config = variant("recall", "relu", seed=0, steps=2, length=16, batch_size=32)
    assert json.loads(json.dumps(config)) == config
    first, second = run_variant(config), run_variant(config)
    assert first == second
    assert first["score"] == first["accuracy"]
    assert 0 <= first["dead"] <= 1


def test_a_hybrid_has_its_window_and_a_flipped_arm_looks_both_ways() -> None:
    hybrid = PARTS["recall"](variant("recall", ["conv", "window", "elu"], seed=0, steps=2, window=5)).model.config
    assert hybrid.mixers == ("conv", "window", "elu")
    assert hybrid.mixer_options == {"window": {"window": 5}}
    both, usual = (PARTS["recall"](variant("recall", "elu", seed=0, steps=2, **way)) for way in ({"causal": False}, {}))
    assert (both.model.config.causal, usual.model.config.causal) == (False, True)
    assert torch.equal(both.train.batch([0])["tokens"], usual.train.batch([0])["tokens"].flip(1))
    assert count_parameters(both.model.config) == count_parameters(usual.model.config)


def test_dead_features_are_those_that_no_query_or_no_key_has() -> None:
    torch.manual_seed(0)
    model = LanguageModel(ModelConfig(mixer="relu", n_layers=1, d_model=16, n_heads=2, vocab_size=8))
    batch = {"tokens": torch.randint(8, (4, 16)), "targets": torch.randint(8, (4, 16))}
    mixer = model.blocks[0].mixer
    assert isinstance(mixer, LinearAttention)
    with torch.no_grad():
        mixer.qkv.bias[:] = 10.0  # every feature is alive
    assert dead_features(model, batch) == 0.0
    with torch.no_grad():
        mixer.qkv.bias[0:2] = -10.0  # queries of two features of the first head
        mixer.qkv.bias[16 + 1] = -10.0  # keys of one of them
        mixer.qkv.bias[16 + 8] = -10.0  # keys of a feature of the second head
    assert dead_features(model, batch) == pytest.approx(3 / 16, abs=1e-5)
    softmax = LanguageModel(ModelConfig(mixer="softmax", n_layers=1, d_model=16, n_heads=2, vocab_size=8))
    assert dead_features(softmax, batch) is None
