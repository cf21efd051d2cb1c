"""Export of models that were made here: which architecture is chosen, what is refused, and nothing half-written."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from linnet.data import BPETokenizer, ByteTokenizer
from linnet.data.llama_tokenizer import LlamaTokenizer
from linnet.models import LanguageModel, ModelConfig
from linnet.pretrained import export, export_pretrained, load_pretrained

PLAIN = {"mlp": "none", "norm": "rms", "bias": False}
HYBRID = {"mlp": "swiglu", "norm": "rms", "bias": False, "tie_embeddings": False, "max_length": 64}
ATTENTION = {"gate": True, "qk_norm": True, "n_kv_heads": 2, "qk_norm_eps": 1e-5}
RWKV = {"mlp": "none", "embed_norm": True, "bias": False}
MADE: dict[str, dict[str, Any]] = {  # the model_type that is chosen -> the fields of a model
    "llama": {**HYBRID, "mixer": "softmax", "positions": "rotary", "n_kv_heads": 2},
    "mamba": {**PLAIN, "mixer": "mamba"},
    "falcon_mamba": {**PLAIN, "mixer": "mamba", "mixer_options": {"mamba": {"select_norm_eps": 1e-4}}},
    "mamba2": {**PLAIN, "mixer": "mamba2"},
    "bamba": {
        **HYBRID, "mixer": ("mamba2", "mamba2", "softmax"), "positions": "rotary", "rotary_fraction": 0.5,
        "mixer_options": {"mamba2": {"key_dim": 5}},
    },
    "granitemoehybrid": {**HYBRID, "mixer": ("mamba2", "softmax", "mamba2")},
    "qwen3_next": {
        **HYBRID, "mixer": ("gated_delta", "softmax", "gated_delta"), "positions": "rotary", "rotary_fraction": 0.5,
        "mixer_options": {"softmax": ATTENTION, "gated_delta": {"key_heads": 2}},
    },
    "rwkv": {
        **RWKV, "mixer": ("rwkv4", "channel_mix"), "n_layers": 4, "mixer_options": {"channel_mix": {"gate": True}},
        "rescale_every": 2,
    },
    "rwkv7": {
        **RWKV, "mixer": ("rwkv7", "channel_mix"), "n_layers": 4,
        "mixer_options": {"rwkv7": {"value_residual": True, "norm_eps": 64e-6, "rank": 5}}, "d_model": 24, "n_heads": 3,
        "head_dim": 8, "norm_eps": 8e-6,
    },
}  # fmt: skip
REFUSED: list[tuple[str, dict[str, Any], str | None, str]] = [  # made from, changes, the model_type asked for, sentence
    ("llama", {"mixer": "elu"}, None, "mixer is 'elu'; accepted: 'softmax', 'mamba', 'mamba2', "),
    ("llama", {"mixer": "elu"}, "llama", "mixer is 'elu'; accepted: 'softmax' of a 'llama' model"),
    ("llama", {}, "lama", "unknown model_type 'lama'; did you mean 'llama'"),
    ("llama", {"mlp": "gelu"}, "llama", "'llama' cannot express this model: mlp is 'gelu', where it would become"),
    ("llama", {"norm": "layer"}, None, "norm is 'layer', where it would become 'rms', nor can any other published one"),
    ("llama", {"positions": "learned"}, "llama", "positions is 'learned'"),
    ("llama", {"rotary_fraction": 0.5}, "llama", "this model: rope_parameters\\['partial_rotary_factor'\\] is 0.5"),
    ("mamba", {"norm_place": "post"}, "mamba", "norm_place is 'post'"),
    ("mamba", {}, "falcon_mamba", r"\['select_norm_eps'\] is not given, where it would become 1e-06"),
    ("mamba", {"mlp": "swiglu"}, None, "mlp is 'swiglu'"),
    ("mamba2", {"mixer_options": {"mamba2": {"norm_eps": 1e-3}}}, "mamba2", r"\['norm_eps'\] is 0.001"),
    ("bamba", {"rotary_fraction": None}, "granitemoehybrid", ""),
    ("qwen3_next", {"mixer_options": {"softmax": {}}}, None, r"\['gate'\] is not given, where it would become True"),
    ("qwen3_next", {"mixer_options": {"softmax": ATTENTION, "gated_delta": {"negative": True}}}, None, "negative.* is"),
    ("qwen3_next", {"mixer": "mamba2", "mixer_options": {}}, "qwen3_next", "accepted: 'gated_delta', 'softmax' of"),
    ("rwkv", {"n_layers": 3}, "rwkv", "in 3 layers; accepted: .* in turn"),
    ("rwkv", {"rescale_every": 3}, "rwkv", "rescale_every is 3"),
    ("rwkv", {"norm_eps": 1e-3}, "rwkv", "norm_eps is 0.001, where it would become 1e-05"),
    ("rwkv7", {"mixer_options": {"rwkv7": {"norm_eps": 64e-6}}}, "rwkv7", r"\['value_residual'\] is not given"),
]  # fmt: skip


def made(fields: dict[str, Any], **changes: Any) -> LanguageModel:
    torch.manual_seed(0)
    sizes = {"d_model": 32, "n_layers": 3, "n_heads": 4, "vocab_size": 300, "init_std": 0.2}
    return LanguageModel(ModelConfig(**{**sizes, **fields, **changes})).eval().requires_grad_(False)


@pytest.mark.parametrize("name", MADE)
def test_a_model_made_here_is_that_of_transformers(name: str, transformers: ModuleType, tmp_path: Path) -> None:
    model, tokens = made(MADE[name]), torch.arange(40).view(2, 20)
    assert export_pretrained(model, tmp_path / "m") == name
    again, _ = load_pretrained(tmp_path / "m")
    torch.testing.assert_close(again(tokens)[0], model(tokens)[0], rtol=1e-6, atol=1e-6)
    if name != "rwkv7":  # transformers has no such class
        theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "m", dtype=torch.float32).eval()
        assert (theirs.generation_config.eos_token_id, theirs.generation_config.bos_token_id) == (None, None)
        logits = theirs(tokens, use_cache=False).logits.detach()
        torch.testing.assert_close(logits, model(tokens)[0], rtol=1e-4, atol=1e-5 * float(logits.abs().max()))


@pytest.mark.parametrize(("name", "changes", "model_type", "sentence"), REFUSED)
def test_what_an_architecture_cannot_compute_is_refused_by_name(
    name: str, changes: dict[str, Any], model_type: str | None, sentence: str, tmp_path: Path
) -> None:
    model = made(MADE[name], **changes)
    if not sentence:
        export_pretrained(model, tmp_path / "m", model_type)
        return
    with pytest.raises(ValueError, match=sentence):
        export_pretrained(model, tmp_path / "m", model_type)
    assert not any(tmp_path.iterdir())


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = made(MADE["mamba2"])
    export_pretrained(model, tmp_path / "m")
    with pytest.raises(ValueError, match="a folder that does not exist yet"):
        export_pretrained(model, tmp_path / "m")

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(export, "write_tensors", full)
    with pytest.raises(OSError, match="No space left"):
        export_pretrained(model, tmp_path / "other")
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_half_precision_becomes_float32_and_other_models_are_refused(tmp_path: Path) -> None:
    model = made(MADE["mamba2"]).bfloat16()
    export_pretrained(model, tmp_path / "m")
    weights = load_file(tmp_path / "m" / "model.safetensors")
    assert {value.dtype for value in weights.values()} == {torch.float32}
    assert torch.equal(weights["backbone.norm_f.weight"], model.backbone.norm.weight.float())
    with pytest.raises(ValueError, match="a Linear has no published form; accepted: a LanguageModel"):
        export_pretrained(torch.nn.Linear(1, 1), tmp_path / "n")  # type: ignore[arg-type]


def test_a_tokenizer_goes_with_the_model(transformers: ModuleType, tmp_path: Path) -> None:
    text = "the quick brown fox jumps over the lazy dog " * 3
    bpe = BPETokenizer.train([text], 270)
    model = made(MADE["mamba2"], vocab_size=bpe.vocab_size)
    export_pretrained(model, tmp_path / "m", tokenizer=bpe)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "m")
    assert theirs(text)["input_ids"] == bpe.encode(text)
    again, same = load_pretrained(tmp_path / "m")
    assert same is not None
    assert (same.fingerprint, again.config.mixer) == (bpe.fingerprint, "mamba2")
    with pytest.raises(ValueError, match="the tokenizer has 256 tokens, the model 30"):
        export_pretrained(made(MADE["mamba2"]), tmp_path / "n", tokenizer=ByteTokenizer())
    pieces = LlamaTokenizer(["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), "a"], [0.0] * 260)
    export_pretrained(made(MADE["mamba2"], vocab_size=260), tmp_path / "n", tokenizer=pieces)
    assert json.loads((tmp_path / "n" / "config.json").read_text())["bos_token_id"] == 1
    assert not (tmp_path / "n" / "tokenizer.json").exists()


def test_a_vocabulary_that_was_rounded_up_keeps_its_tokenizer(tmp_path: Path) -> None:
    bpe = BPETokenizer.train(["some words to learn, some words to say"], 270)
    rounded = bpe.vocab_size + 5
    export_pretrained(made(MADE["mamba2"], vocab_size=rounded), tmp_path / "m")
    bpe.save(tmp_path / "m")
    _, padded = load_pretrained(tmp_path / "m")
    assert padded is not None
    assert padded.vocab_size == rounded
    assert padded.encode("some words") == bpe.encode("some words")
    assert padded.decode([rounded - 1]) == f"<|unused {rounded - 1}|>"
    with pytest.raises(ValueError, match=f"has {bpe.vocab_size} tokens, but .* is a model of {rounded}"):
        load_pretrained(tmp_path / "m", tmp_path / "m" / "tokenizer.json")
