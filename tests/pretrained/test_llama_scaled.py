"""Llama models with scaled rotary positions and biases: the logits of transformers, past the window of training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from linnet.generate import open_engine
from linnet.models import LanguageModel, Model
from linnet.native.library import library
from linnet.pretrained import load_llama
from tests.pretrained.llama_files import GGUF, HF, write_gguf, write_hf
from tests.pretrained.llama_numpy import Array, Sizes, half_split, random_parts

CLOSE = 1e-5  # of the largest logit, float32; transformers computes angles in float32, linnet in float64
SIZES = Sizes()
BIASED = ("wq", "wk", "wv", "wo", "w1", "w2", "w3")
WINDOW, LENGTH = 16, 90  # length of training, and length here
OF_WINDOW = {"original_max_position_embeddings": WINDOW}
ROPES: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **OF_WINDOW},
    "yarn": {"rope_type": "yarn", "factor": 8.0, **OF_WINDOW},
    "yarn, all fields": {
        "rope_type": "yarn", "factor": 8.0, "beta_fast": 8.0, "beta_slow": 2.0, "truncate": False,
        "mscale": 0.7, "mscale_all_dim": 1.3, **OF_WINDOW,
    },
}  # fmt: skip
BIASES = {"none": {}, "attention": {"attention_bias": True}, "both": {"attention_bias": True, "mlp_bias": True}}


def apart(result: torch.Tensor, want: torch.Tensor) -> float:
    return float((result - want).abs().max() / want.abs().max())


@pytest.mark.slow
@pytest.mark.parametrize("biases", BIASES)
@pytest.mark.parametrize("rope", ROPES)
def test_logits_are_those_of_transformers_in_every_form(rope: str, biases: str, tmp_path: Path) -> None:
    """Whole, in two pieces, by steps, by the native decoder, and through our own folder."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4}
    more = {"num_key_value_heads": 2, "vocab_size": 300, "max_position_embeddings": 128, "initializer_range": 0.2}
    scaled = {"rope_parameters": {"rope_theta": 500.0, **ROPES[rope]}}
    theirs = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **more, **scaled, **BIASES[biases])).eval()
    for parameter in theirs.parameters():  # biases start at zero, which would hide a mistake
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    theirs.save_pretrained(tmp_path / "theirs")
    model, _ = load_llama(tmp_path / "theirs")
    tokens = torch.randint(300, (1, LENGTH))
    with torch.inference_mode():
        want = theirs(tokens).logits
        result, _ = model(tokens)
        first, state = model(tokens[:, :40])
        rest, _ = model(tokens[:, 40:], state)
        steps, state = [], None
        for token in tokens.unbind(1):
            logits, state = model.step(token, state)
            steps.append(logits)
        model.save_pretrained(tmp_path / "ours")
        again, _ = Model.from_pretrained(tmp_path / "ours")(tokens)
    assert apart(result, want) < CLOSE
    assert apart(torch.cat([first, rest], dim=1), want) < CLOSE
    assert apart(torch.stack(steps, dim=1), want) < CLOSE
    assert torch.equal(again, result)
    if library() is not None:
        engine = open_engine(model, backend="native")
        rows = engine.add()
        decoded = torch.stack([engine.step(token, rows) for token in tokens.unbind(1)], dim=1)
        assert apart(decoded, want) < CLOSE


def biased(parts: dict[str, Array]) -> dict[str, Array]:
    draw = np.random.default_rng(3)
    return {part: draw.standard_normal(parts[part].shape[:2]).astype(np.float32) for part in BIASED}


def with_biases(folder: Path, biases: dict[str, Array]) -> Path:
    """The Hugging Face folder with these biases [L,rows] added."""
    heads = {"wq": SIZES.heads, "wk": SIZES.kv_heads}
    tensors = load_file(folder / "model.safetensors")
    for part, rows in biases.items():
        for i, row in enumerate(rows):
            row = half_split(row[:, None], heads[part])[:, 0] if part in heads else row
            tensors[f"model.layers.{i}.{HF[part]}.bias"] = torch.from_numpy(np.ascontiguousarray(row))
    save_file(tensors, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text()) | {"attention_bias": True, "mlp_bias": True}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_biases_of_a_folder_are_where_they_belong(tmp_path: Path) -> None:
    parts = random_parts(SIZES)
    biases = biased(parts)
    model, _ = load_llama(with_biases(write_hf(tmp_path / "m", SIZES, parts), biases))
    assert (model.config.bias, model.config.attention_bias, model.config.mlp_bias) == (False, True, True)
    block: Any = model.blocks[1]
    torch.testing.assert_close(block.mixer.out.bias, torch.from_numpy(biases["wo"][1]))
    torch.testing.assert_close(block.mlp.up.bias, torch.from_numpy(np.concatenate([biases["w1"][1], biases["w3"][1]])))
    torch.testing.assert_close(block.mlp.down.bias, torch.from_numpy(biases["w2"][1]))
    assert block.mixer.qkv.bias.shape == block.mixer.qkv.weight.shape[:1]


def test_gguf_and_folder_give_the_same_model(tmp_path: Path) -> None:
    """Biases and yarn, with llama.cpp's names; its q and k are interleaved, biases too."""
    pytest.importorskip("gguf")
    parts = random_parts(SIZES)
    biases = biased(parts)
    rope = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}
    folder = with_biases(write_hf(tmp_path / "m", SIZES, parts, rope_scaling=rope), biases)
    extra = {f"blk.{i}.{GGUF[part]}.bias": row for part, rows in biases.items() for i, row in enumerate(rows)}
    numbers = {"llama.rope.scaling.factor": 4.0, "llama.rope.scaling.original_context_length": 8}
    file = write_gguf(tmp_path / "m.gguf", SIZES, parts, scaling="yarn", numbers=numbers, extra=extra)
    ours, theirs = load_llama(folder)[0], load_llama(file)[0]
    assert ours.config.rotary_scaling == theirs.config.rotary_scaling
    assert _equal(ours, theirs)
    with pytest.raises(ValueError, match=r"has 'rope_freqs.weight', rope scaling as a table; .*import the Hugging"):
        load_llama(write_gguf(tmp_path / "t.gguf", SIZES, parts, extra={"rope_freqs.weight": np.ones(3, np.float32)}))


def test_what_a_rope_object_leaves_out_is_filled_in_as_transformers_does(tmp_path: Path) -> None:
    parts, longest = random_parts(SIZES), SIZES.longest
    rope: dict[str, Any] = {"type": "yarn", "factor": None, "finetuned": True, "attention_factor": None}
    for more, window in (({}, longest), ({"original_max_position_embeddings": 8}, 8)):
        folder = write_hf(tmp_path / str(window), SIZES, parts, rope_scaling=rope | more)
        want = {"rope_type": "yarn", "factor": longest / window, "original_max_position_embeddings": window}
        assert load_llama(folder)[0].config.rotary_scaling == want


def _equal(a: LanguageModel, b: LanguageModel) -> bool:
    other = b.state_dict()
    return all(torch.equal(value, other[name]) for name, value in a.state_dict().items())
