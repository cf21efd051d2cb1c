"""Llama models from every file format: the logits of a plain float64 pass, and a sentence for every refusal."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from linnet.models import LanguageModel, Model
from linnet.pretrained import load_llama
from tests.fuzz.file_kinds import without
from tests.pretrained.llama_files import hf_tensors, write_bin, write_gguf, write_hf, write_npz
from tests.pretrained.llama_numpy import Array, Sizes, logits, random_parts

CLOSE = {"atol": 1e-9, "rtol": 1e-9}  # float64
SINGLE = {"atol": 2e-5, "rtol": 2e-5}  # float32, against transformers
SIZES = Sizes()
WIDE = Sizes(dim=32, hidden=64)  # rows that fill the blocks of Q8_0
TOKENS = [1, 7, 299, 0, 42, 42, 5, 17, 120, 3, 3]
Parts = dict[str, Array]


def of(model: LanguageModel) -> torch.Tensor:
    return model.double()(torch.tensor([TOKENS]))[0][0].detach()


def wanted(parts: Parts, sizes: Sizes = SIZES) -> torch.Tensor:
    return torch.from_numpy(logits(parts, TOKENS, sizes.heads, sizes.kv_heads))


WRITERS: dict[str, Callable[[Path, Parts], Path]] = {
    "bin": lambda folder, parts: write_bin(folder / "m.bin", SIZES, parts),
    "npz": lambda folder, parts: write_npz(folder / "m.npz", SIZES, parts),
    "hf": lambda folder, parts: write_hf(folder / "m", SIZES, parts),
    "hf sharded": lambda folder, parts: write_hf(folder / "m", SIZES, parts, shards=3),
    "gguf": lambda folder, parts: write_gguf(folder / "m.gguf", SIZES, parts),
}


def write(kind: str, folder: Path, parts: Parts) -> Path:
    if kind == "gguf":
        pytest.importorskip("gguf")
    return WRITERS[kind](folder, parts)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", WRITERS)
def test_logits_are_those_of_the_plain_forward_pass(kind: str, tied: bool, tmp_path: Path) -> None:
    parts = random_parts(SIZES, tied)
    model, tokenizer = load_llama(write(kind, tmp_path, parts))
    assert tokenizer is None
    assert (model.config.tie_embeddings, model.config.max_length, model.config.mixer) == (tied, 32, "softmax")
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    torch.testing.assert_close(of(model), wanted(parts), **CLOSE)


@pytest.mark.parametrize("kind", ["hf", "gguf"])
def test_eps_and_rotary_base_are_those_of_the_file(kind: str, tmp_path: Path) -> None:
    parts = random_parts(SIZES)
    if kind == "hf":
        path = write_hf(tmp_path / "m", SIZES, parts, rms_norm_eps=0.25, rope_theta=50.0)
    else:
        pytest.importorskip("gguf")
        path = write_gguf(tmp_path / "m.gguf", SIZES, parts, eps=0.25, base=50.0)
    want = logits(parts, TOKENS, SIZES.heads, SIZES.kv_heads, eps=0.25, base=50.0)
    torch.testing.assert_close(of(load_llama(path)[0]), torch.from_numpy(want), **CLOSE)


def test_a_loaded_model_is_saved_and_loaded_trained_and_stepped(tmp_path: Path) -> None:
    parts = random_parts(SIZES, tied=False)
    model, _ = load_llama(write_bin(tmp_path / "m.bin", SIZES, parts))
    model.save_pretrained(tmp_path / "ours")
    again = Model.from_pretrained(tmp_path / "ours")
    assert again.fingerprint() == model.fingerprint()
    total, _ = model.loss({"tokens": torch.tensor([TOKENS[:-1]]), "targets": torch.tensor([TOKENS[1:]])})
    total.backward()
    assert all(p.grad is not None for p in model.parameters())
    state, model = None, model.double()
    for token in TOKENS:
        last, state = model.step(torch.tensor([token]), state)
    torch.testing.assert_close(last[0].detach(), wanted(parts)[-1], **CLOSE)


def test_half_precision_arrays_are_read_as_they_are(tmp_path: Path) -> None:
    parts = {name: array.astype(np.float16) for name, array in random_parts(SIZES).items()}
    torch.testing.assert_close(of(load_llama(write_npz(tmp_path / "m.npz", SIZES, parts))[0]), wanted(parts), **CLOSE)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0"])
def test_gguf_numbers_are_what_gguf_says_they_are(kind: str, tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    parts = random_parts(WIDE, tied=False)
    path = write_gguf(tmp_path / "m.gguf", WIDE, parts, kind)
    model, _ = load_llama(path)
    which = gguf.GGMLQuantizationType[kind]
    rounded = {
        name: array if name.endswith("norm") else gguf.dequantize(gguf.quantize(array, which), which)
        for name, array in parts.items()
    }
    torch.testing.assert_close(of(model), wanted(rounded, WIDE), **CLOSE)
    assert (kind == "F32") == np.array_equal(rounded["wq"], parts["wq"])
    with without("gguf"):  # which only dequantises
        if kind != "Q8_0":
            assert torch.equal(of(load_llama(path)[0]), of(model))
        else:
            with pytest.raises(ImportError, match=r"reading Q8_0 tensors .* pip install linnet\[gguf\]"):
                load_llama(path)


def test_bfloat16_safetensors_are_read_as_float32(tmp_path: Path) -> None:
    parts = random_parts(SIZES)
    folder = write_hf(tmp_path / "m", SIZES, parts)
    short = {name: tensor.bfloat16() for name, tensor in hf_tensors(SIZES, parts).items()}
    save_file(short, folder / "model.safetensors")
    model, _ = load_llama(folder)
    assert torch.equal(model.embed.weight, short["model.embed_tokens.weight"].float())


def test_configurations_of_hugging_face(tmp_path: Path) -> None:
    """Variants of config.json: place of rope_theta, missing fields, explicit head_dim, old tables, a tied head."""
    parts = random_parts(SIZES)
    base = load_llama(write_hf(tmp_path / "a", SIZES, parts, rope_theta=5e5))[0].config
    rope = {"rope_theta": 5e5, "rope_type": "default"}
    assert load_llama(write_hf(tmp_path / "b", SIZES, parts, rope_parameters=rope))[0].config == base
    assert base.rotary_base == 5e5
    assert load_llama(write_hf(tmp_path / "c", SIZES, parts, rope_scaling=None, head_dim=6))[0].config.head_dim == 6
    extra = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(3)}
    folder, tensors = write_hf(tmp_path / "d", SIZES, parts), hf_tensors(SIZES, parts)
    save_file(
        tensors | extra | {"lm_head.weight": tensors["model.embed_tokens.weight"] + 0}, folder / "model.safetensors"
    )
    torch.testing.assert_close(of(load_llama(folder)[0]), wanted(parts), **CLOSE)
    save_file(tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"] + 1}, folder / "model.safetensors")
    with pytest.raises(
        ValueError, match=r"tie_word_embeddings is true, but 'lm_head.weight' is not the embedding; acc"
    ):
        load_llama(folder)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"model_type": "gpt2"}, "model_type is 'gpt2'; accepted: .*'llama'"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "rotary_scaling lacks 'low_freq_factor'; accepted"),
        ({"rope_scaling": {"type": "linear", "factor": -2.0}}, "has factor -2.0; accepted: a finite number above 0"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "'dynamic', whose frequencies depend on the length of"),
        ({"rope_parameters": {"rope_type": "longrope"}}, "'longrope', whose frequencies depend on the length of"),
        ({"rope_scaling": "linear"}, "rope_scaling is 'linear'; accepted: null, or an object with a rope_type"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0, "partial_rotary_factor": 0.5}}, "has 'partial_rotary_fac"),
        ({"attention_bias": True}, "lacks 'model.layers.0.self_attn.q_proj.bias'"),
        ({"mlp_bias": True}, "lacks 'model.layers.0.mlp.gate_proj.bias'"),
        ({"mlp_bias": "yes"}, "mlp_bias is 'yes'; accepted: False or True"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; accepted: 'silu' or 'swish'"),
        ({"quantization_config": {"bits": 4}}, "quantization_config is {'bits': 4}; accepted: None"),
        ({"num_key_value_heads": 3}, r"config\.json: n_kv_heads \(3\) must divide n_heads \(4\)"),
        ({"hidden_size": "24"}, "hidden_size is '24'; accepted: a whole number"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps is 'small'; accepted: a number above 0"),
        ({"head_dim": 5}, "heads are 5 wide; accepted: an even width"),
        ({"hidden_size": 32}, r"'model.embed_tokens.weight' has shape \[300, 24\] where the configuration says"),
    ],
)
def test_another_architecture_is_refused(change: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    folder = write_hf(tmp_path / "m", SIZES, random_parts(SIZES), **change)
    with pytest.raises(ValueError, match=sentence):
        load_llama(folder)


def change(file: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    """Edit the tensors of a .npz or .safetensors in place."""
    if file.suffix == ".npz":
        with np.load(file) as archive:
            arrays = dict(archive)
        edit(arrays)
        np.savez(file, **arrays)
    else:
        tensors = load_file(file)
        edit(tensors)
        save_file(tensors, file)


@pytest.mark.parametrize(
    ("kind", "name"), [("npz", "wo"), ("hf", "model.layers.1.self_attn.o_proj.weight"), ("npz", "norm")]
)
def test_a_missing_extra_or_misshapen_tensor_is_named(kind: str, name: str, tmp_path: Path) -> None:
    path = write(kind, tmp_path, random_parts(SIZES))
    file = path / "model.safetensors" if path.is_dir() else path
    kept = file.read_bytes()
    change(file, lambda tensors: tensors.pop(name))
    with pytest.raises(ValueError, match=rf"lacks '{name}' \[.*\]; it belongs to another configuration"):
        load_llama(path)
    file.write_bytes(kept)
    change(file, lambda tensors: tensors.update({f"{name}.bias": tensors[name] + 0}))
    with pytest.raises(ValueError, match=rf"has '{name}.bias', unknown to this model"):
        load_llama(path)
    file.write_bytes(kept)
    change(file, lambda tensors: tensors.update({name: tensors[name][:-1] + 0}))
    with pytest.raises(ValueError, match=rf"'{name}' has shape \[.*\] where the configuration says \[.*\]"):
        load_llama(path)


@pytest.mark.parametrize("kind", ["bin", "npz", "hf", "gguf"])
@pytest.mark.parametrize("cut", [5, 40, -1000, -1])
def test_a_file_that_is_cut_off_is_refused(kind: str, cut: int, tmp_path: Path) -> None:
    path = write(kind, tmp_path, random_parts(SIZES))
    file = path / "model.safetensors" if path.is_dir() else path
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(ValueError, match=r"(has .* bytes|not a whole|not a complete).*; (accepted|copy)"):
        load_llama(path)


def test_shards_and_json_that_are_missing_or_damaged(tmp_path: Path) -> None:
    folder = write_hf(tmp_path / "m", SIZES, random_parts(SIZES), shards=3)
    index = folder / "model.safetensors.index.json"
    kept = index.read_text()
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(ValueError, match=r"00002-of-00003.safetensors does not exist, but the index names it"):
        load_llama(folder)
    for text, sentence in (
        (json.dumps({"weight_map": {"x": "../../etc/passwd"}}), "weight_map does not name files of its folder"),
        ("{", "index.json is not JSON"),
        ("[]", "index.json holds a JSON array; accepted: an object"),
    ):
        index.write_text(text)
        with pytest.raises(ValueError, match=sentence):
            load_llama(folder)
    index.unlink()
    (folder / "pytorch_model.bin").write_bytes(b"pickled")
    with pytest.raises(ValueError, match=r"neither model\.safetensors nor .*; accepted: weights as safetensors, never"):
        load_llama(folder)
    assert "weight_map" in kept
    (folder / "config.json").write_text(json.dumps({"d_model": 3}))
    with pytest.raises(ValueError, match=r"has no model_type; accepted: a Hugging Face folder of model_type .*'llama'"):
        load_llama(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    with pytest.raises(ValueError, match=r"has no hidden_size; accepted: the config.json that belongs to the weights"):
        load_llama(folder)
    (folder / "config.json").unlink()
    with pytest.raises(ValueError, match=r"config\.json does not exist; accepted: a Hugging Face folder with"):
        load_llama(folder)


def test_files_that_are_something_else(tmp_path: Path) -> None:
    with pytest.raises(
        FileNotFoundError, match=r"there is no file .*none; accepted: a Hugging Face folder, a llama2.c .bin"
    ):
        load_llama(tmp_path / "none")
    file = tmp_path / "m.bin"
    for header, sentence in (
        ([0x616B3432, 1, 0, 0, 0, 0, 0], "is llama2.c's version 1; accepted: the legacy format"),
        ([24, 40, 0, 4, 2, 300, 32], "n_layers is 0; accepted: 1 to 16777216; it is damaged or not a llama2.c file"),
        ([24, 40, 2, 5, 2, 300, 32], r"m\.bin: d_model \(24\) must be a multiple of n_heads \(5\)"),
        ([20, 40, 2, 4, 2, 300, 32], "heads are 5 wide; accepted: an even width"),
    ):
        file.write_bytes(np.array(header, "<i4").tobytes() + bytes(100))
        with pytest.raises(ValueError, match=sentence):
            load_llama(file)
    (tmp_path / "m.safetensors").write_bytes(bytes(100))
    with pytest.raises(ValueError, match=r"has only weights; accepted: the folder that also has its config.json"):
        load_llama(tmp_path / "m.safetensors")


def test_arrays_that_are_no_numbers(tmp_path: Path) -> None:
    parts, file = random_parts(SIZES), tmp_path / "m.npz"
    np.savez(file, **parts)
    with pytest.raises(ValueError, match="lacks the array 'config'; accepted: 7 integers, dim, hidden_dim"):
        load_llama(file)
    np.savez(file, config=np.zeros(7), **parts)
    with pytest.raises(ValueError, match=r"'config' is float64 \[7\]; accepted: 7 integers"):
        load_llama(file)
    write_npz(file, SIZES, parts, norm=np.ones(24, np.int64))
    with pytest.raises(ValueError, match="'norm' has dtype int64; accepted: float16 or float32"):
        load_llama(file)
    write_npz(file, SIZES, parts, norm=np.array([object()] * 24))
    with pytest.raises(ValueError, match=r"is not an array of plain numbers"):
        load_llama(file)


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"arch": "gpt2"}, "general.architecture is 'gpt2'; accepted: 'llama'"),
        ({"scaling": "longrope"}, "llama.rope.scaling.type is 'longrope'; accepted: 'none', 'linear' or 'yarn'"),
        ({"turned": 4}, "llama.rope.dimension_count is 4; accepted: 6, the head width"),
    ],
)
def test_another_gguf_is_refused(how: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    with pytest.raises(ValueError, match=sentence):
        load_llama(write_gguf(tmp_path / "m.gguf", SIZES, random_parts(SIZES), **how))


def test_a_tokenizer_of_another_size_is_refused(tmp_path: Path) -> None:
    from linnet.data import ByteTokenizer

    ByteTokenizer().save(tmp_path / "tokenizer.json")
    with pytest.raises(ValueError, match=r"tokenizer\.json has 256 tokens, but .*m\.bin is a model of 300; pass the"):
        load_llama(write_bin(tmp_path / "m.bin", SIZES, random_parts(SIZES)), tmp_path / "tokenizer.json")


@pytest.mark.slow
@pytest.mark.parametrize("tied", [True, False])
def test_logits_are_those_of_transformers(tied: bool, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4}
    more = {"num_key_value_heads": 2, "vocab_size": 300, "max_position_embeddings": 32, "initializer_range": 0.4}
    config = transformers.LlamaConfig(**sizes, **more, tie_word_embeddings=tied, rms_norm_eps=1e-5, head_dim=8)
    theirs = transformers.LlamaForCausalLM(config).eval()
    theirs.save_pretrained(tmp_path)
    model, _ = load_llama(tmp_path)
    with torch.inference_mode():
        want = theirs(torch.tensor([TOKENS])).logits
        torch.testing.assert_close(model(torch.tensor([TOKENS]))[0], want, **SINGLE)
