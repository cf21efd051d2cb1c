"""ModelConfig: JSON and back, sizes known before building, and a sentence for what does not fit."""

from __future__ import annotations

import json
from typing import Any

import pytest

from linnet.models import PRESETS, ModelConfig, build, count_parameters, preset, state_bytes


def test_json_and_back() -> None:
    config = ModelConfig(mixer=["conv", "window"], mixer_options={"window": {"window": 8}}, n_kv_heads=2)
    assert ModelConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert config.mixers == ("conv", "window", "conv", "window")


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_goes_to_json_and_has_a_size(name: str) -> None:
    config = PRESETS[name]
    assert ModelConfig.from_dict(config.to_dict()) == config
    assert count_parameters(config) > 1000


@pytest.mark.parametrize("mixer", ["elu", "softmax", "rebased", "favor"])
def test_sizes_before_building_are_those_after(mixer: str) -> None:
    config = preset("char-small", mixer=mixer, d_model=32, n_layers=2, vocab_size=10)
    model = build(config)
    assert count_parameters(config) == sum(p.numel() for p in model.parameters())
    assert state_bytes(config, 77) == model.state_bytes(77)


def test_the_papers_sizes() -> None:
    """Numbers printed in the papers: state of the image models, parameters of the recall network."""
    assert state_bytes(PRESETS["mnist"], 784) == 270_336
    assert state_bytes(PRESETS["cifar10"], 3072) == 540_672
    assert state_bytes(PRESETS["mnist"].but(mixer="softmax"), 784) == 784 * 8 * 2 * 256 * 4
    assert count_parameters(PRESETS["mqar"].but(mixer=("conv", "taylor"))) == 577_984
    assert count_parameters(PRESETS["mqar"]) == 577_984 + 768


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"d_model": 100, "n_heads": 3}, r"d_model \(100\) must be a multiple of n_heads \(3\)"),
        ({"mixer": "rebasd"}, "unknown mixer 'rebasd'; did you mean 'rebased'"),
        ({"mixer": ()}, "empty list"),
        ({"mixer": "bilstm"}, "unknown mixer 'bilstm'"),
        ({"mlp": "geglu"}, "unknown mlp 'geglu'"),
        ({"positions": "rotery"}, "did you mean 'rotary'"),
        ({"n_layers": 0}, "n_layers is 0; accepted: an integer >= 1"),
        ({"d_model": 64.0}, "d_model is 64.0"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"n_kv_heads": 3}, r"n_kv_heads \(3\) must divide n_heads \(4\)"),
        ({"mixer": "window", "causal": False}, "looks back only"),
        ({"mixer_options": {"window": {}}}, "which is not among the mixers"),
    ],
)
def test_what_does_not_fit_is_named(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        ModelConfig(**fields)


def test_unknown_names_get_a_suggestion() -> None:
    with pytest.raises(ValueError, match="unknown preset 'mnst'; did you mean 'mnist'"):
        preset("mnst")
    with pytest.raises(ValueError, match="did you mean 'd_model'"):
        ModelConfig.from_dict({"dmodel": 3})
