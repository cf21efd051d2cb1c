"""ModelConfig: JSON and back, sizes known before building, and an error for invalid values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from linnet.models import PRESETS, Model, ModelConfig, build, count_parameters, preset, state_bytes
from linnet.models.base import read_config

# config.json as written before there was a config_version
OLD = """{"task": "language", "d_model": 8, "n_layers": 2, "n_heads": 2, "n_kv_heads": null, "head_dim": null,
"key_dim": null, "mixer": "MIXER", "mixer_options": {}, "mlp": "gelu", "d_ff": null, "norm": "layer",
"norm_place": "pre", "norm_eps": 1e-05, "positions": "rotary", "max_length": 1024, "rotary_base": 10000.0,
"causal": true, "dropout": 0.0, "bias": true, "tie_embeddings": true, "init_std": 0.02, "vocab_size": 5,
"input_dim": 0, "output_dim": 0, "horizon": 1, "output_channels": [], "head": "categorical", "n_mixtures": 10,
"n_encoder_layers": 0, "source_vocab_size": 0}"""
# mixer -> the fingerprint then, with all numbers zero, and what its layers did by default
BEFORE: dict[str, tuple[str, dict[str, float]]] = {
    "rwkv7": ("6fcfa62a", {"norm_eps": 1e-5}),
    "gated_delta": ("23ea2047", {"scale": 1.0}),
    "elu": ("", {}),
}


def zeroed(config: ModelConfig) -> Any:
    model = build(config)
    for tensor in model.state_dict().values():
        tensor.zero_()
    return model


@pytest.mark.parametrize("mixer", BEFORE)
def test_a_file_of_an_older_version_is_the_model_it_was(mixer: str, tmp_path: Path) -> None:
    fingerprint, defaults = BEFORE[mixer]
    (tmp_path / "config.json").write_text(OLD.replace("MIXER", mixer))
    config = read_config(tmp_path)
    model, new = zeroed(config), zeroed(ModelConfig(**(json.loads(OLD) | {"mixer": mixer})))
    for name, value in defaults.items():
        assert {getattr(block.mixer, name) for block in model.blocks} == {value}
        assert {getattr(block.mixer, name) for block in new.blocks} != {value}
    assert model.fingerprint() == fingerprint or not fingerprint  # its states still fit
    assert (model.fingerprint() == new.fingerprint()) == (not defaults)  # a different computation has another one
    model.save_pretrained(tmp_path / "again")
    again = Model.from_pretrained(tmp_path / "again")
    assert again.config == config
    assert again.fingerprint() == model.fingerprint()


def test_options_that_a_file_says_are_kept() -> None:
    config = ModelConfig.from_dict({"mixer": "rwkv7", "mixer_options": {"rwkv7": {"norm_eps": 0.5}}})
    assert config.options_of("rwkv7") == {"norm_eps": 0.5}
    assert ModelConfig(mixer="rwkv7").options_of("rwkv7") == {}
    assert build(ModelConfig(mixer="rwkv7")).blocks[0].mixer.norm_eps == 64e-5  # the authors' own


@pytest.mark.parametrize("field", ["bias", "attention_bias", "mlp_bias"])
def test_biases_are_counted_where_they_are(field: str) -> None:
    none = ModelConfig(d_model=16, n_heads=2, n_layers=1, mlp="swiglu", d_ff=20, bias=False)
    there = count_parameters(none.replace(**{field: True})) - count_parameters(none)
    assert there == {"bias": 3 * 16 + 16 + 40 + 16, "attention_bias": 3 * 16 + 16, "mlp_bias": 40 + 16}[field]
    assert there == build(none.replace(**{field: True})).parameter_count() - build(none).parameter_count()


def test_scaling_goes_to_json_and_back() -> None:
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "truncate": False}
    config = ModelConfig(positions="rotary", rotary_scaling=scaling, attention_bias=True, mlp_bias=False)
    assert ModelConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


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
    assert state_bytes(PRESETS["mnist"].replace(mixer="softmax"), 784) == 784 * 8 * 2 * 256 * 4
    assert count_parameters(PRESETS["mqar"].replace(mixer=("conv", "taylor"))) == 577_984
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
        ({"n_layers": 0}, "n_layers is 0; accepted: a whole number from 1 to"),
        ({"d_model": 64.0}, "d_model is 64.0"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"n_kv_heads": 3}, r"n_kv_heads \(3\) must divide n_heads \(4\)"),
        ({"mixer": "window", "causal": False}, "looks back only"),
        ({"mixer_options": {"window": {}}}, "mixer_options has 'window'; accepted: options for the mixers"),
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
