"""LinnetConfig: every field of ModelConfig there and back, the Hugging Face names, and the same refusals."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

from linnet.models import PRESETS, ModelConfig, preset

pytestmark = pytest.mark.slow
LANGUAGE = sorted(name for name, config in PRESETS.items() if config.task == "language")


@pytest.mark.parametrize("name", LANGUAGE)
def test_presets_go_to_a_folder_and_come_back(
    hf: ModuleType, transformers: ModuleType, name: str, tmp_path: Path
) -> None:
    config = hf.LinnetConfig.of(preset(name))
    config.save_pretrained(tmp_path)
    again = transformers.AutoConfig.from_pretrained(tmp_path)
    assert type(again) is hf.LinnetConfig
    assert again.model_config("language") == preset(name)
    assert again.use_cache


def test_classes_are_labels(hf: ModuleType, tmp_path: Path) -> None:
    for tokens, wanted in ((50, 50), (0, 7)):
        config = ModelConfig(task="classify", vocab_size=7, source_vocab_size=tokens)
        made = hf.LinnetConfig.of(config)
        assert (made.num_labels, made.vocab_size) == (7, wanted)
        made.save_pretrained(tmp_path)
        assert hf.LinnetConfig.from_pretrained(tmp_path).model_config("classify") == config


def test_hugging_face_names(hf: ModuleType) -> None:
    config = hf.LinnetConfig(hidden_size=48, num_hidden_layers=3, num_attention_heads=6, max_position_embeddings=77)
    ours = config.model_config("language")
    assert (ours.d_model, ours.n_layers, ours.n_heads, ours.max_length) == (48, 3, 6, 77)
    assert (config.hidden_size, config.num_hidden_layers, config.num_attention_heads) == (48, 3, 6)
    config.hidden_size = 96
    assert config.d_model == 96


def test_refused_where_a_model_config_is(hf: ModuleType) -> None:
    with pytest.raises(ValueError, match="unknown mixer 'elru'; did you mean 'elu'"):
        hf.LinnetConfig(mixer="elru")
    with pytest.raises(ValueError, match="d_model is 0; accepted"):
        hf.LinnetConfig(hidden_size=0)
    for config in (preset("digits"), ModelConfig(task="classify", input_dim=3)):
        with pytest.raises(ValueError, match="has no Hugging Face form"):
            hf.LinnetConfig.of(config)


def test_a_file_without_a_config_version_is_of_version_1(
    hf: ModuleType, transformers: ModuleType, tmp_path: Path
) -> None:
    """A model saved earlier keeps the defaults of its version; a new one has the published defaults."""
    config = hf.LinnetConfig(d_model=16, n_layers=1, n_heads=2, mixer="rwkv7", attention_bias=True)
    config.save_pretrained(tmp_path)
    again = transformers.AutoConfig.from_pretrained(tmp_path).model_config("language")
    assert again == config.model_config("language")
    assert again.options_of("rwkv7") == {}
    assert (again.attention_bias, again.mlp_bias) == (True, None)
    file = tmp_path / "config.json"
    file.write_text(json.dumps({k: v for k, v in json.loads(file.read_text()).items() if k != "config_version"}))
    old = transformers.AutoConfig.from_pretrained(tmp_path).model_config("language")
    assert old.options_of("rwkv7") == {"norm_eps": 1e-5}
