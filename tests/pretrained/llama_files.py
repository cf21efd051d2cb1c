"""Write the same random Llama model in every file format, for the tests of the readers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from tests.pretrained.llama_numpy import Array, Sizes, half_split

ORDER = ("tok_embeddings", "attention_norm", "wq", "wk", "wv", "wo", "ffn_norm", "w1", "w2", "w3", "norm")
HF = {
    "attention_norm": "input_layernorm",
    "wq": "self_attn.q_proj",
    "wk": "self_attn.k_proj",
    "wv": "self_attn.v_proj",
    "wo": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "w1": "mlp.gate_proj",
    "w2": "mlp.down_proj",
    "w3": "mlp.up_proj",
}
GGUF = {
    "attention_norm": "attn_norm",
    "wq": "attn_q",
    "wk": "attn_k",
    "wv": "attn_v",
    "wo": "attn_output",
    "ffn_norm": "ffn_norm",
    "w1": "ffn_gate",
    "w2": "ffn_down",
    "w3": "ffn_up",
}


def write_bin(path: Path, sizes: Sizes, parts: dict[str, Array]) -> Path:
    tied = "output" not in parts
    header = np.array([*sizes[:5], sizes.vocab if tied else -sizes.vocab, sizes.longest], "<i4")
    tables = np.full(sizes.longest * (sizes.dim // sizes.heads), np.nan, "<f4")  # never read
    arrays = [parts[name] for name in ORDER] + [tables] + ([] if tied else [parts["output"]])
    path.write_bytes(header.tobytes() + b"".join(array.astype("<f4").tobytes() for array in arrays))
    return path


def write_npz(path: Path, sizes: Sizes, parts: dict[str, Array], **more: Array) -> Path:
    np.savez(path, config=np.array(sizes, np.int32), **(parts | more))
    return path


def hf_tensors(sizes: Sizes, parts: dict[str, Array]) -> dict[str, torch.Tensor]:
    tensors = {"model.embed_tokens.weight": parts["tok_embeddings"], "model.norm.weight": parts["norm"]}
    tensors |= {"lm_head.weight": parts["output"]} if "output" in parts else {}
    heads = {"wq": sizes.heads, "wk": sizes.kv_heads}
    for part, name in HF.items():
        for i, rows in enumerate(parts[part]):
            tensors[f"model.layers.{i}.{name}.weight"] = half_split(rows, heads[part]) if part in heads else rows
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in tensors.items()}


def hf_config(sizes: Sizes, tied: bool) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "hidden_size": sizes.dim,
        "intermediate_size": sizes.hidden,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "vocab_size": sizes.vocab,
        "max_position_embeddings": sizes.longest,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "tie_word_embeddings": tied,
    }


def write_hf(folder: Path, sizes: Sizes, parts: dict[str, Array], shards: int = 1, **config: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(hf_config(sizes, "output" not in parts) | config))
    tensors = hf_tensors(sizes, parts)
    if shards == 1:
        save_file(tensors, folder / "model.safetensors")
        return folder
    index = {name: f"model-{i % shards + 1:05}-of-{shards:05}.safetensors" for i, name in enumerate(tensors)}
    for file in set(index.values()):
        save_file({name: tensors[name] for name in tensors if index[name] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    return folder


def write_gguf(
    path: Path,
    sizes: Sizes,
    parts: dict[str, Array],
    kind: str = "F32",
    arch: str = "llama",
    extra: dict[str, Array] | None = None,
    **fields: Any,
) -> Path:
    """`kind`: F32, F16, BF16 or Q8_0 for the matrices; norms are F32. `extra`: tensors by their names in the file.

    `fields`: further keywords of `_describe`.
    """
    import gguf

    writer = gguf.GGUFWriter(path, arch)
    _describe(writer, sizes, **fields)
    named = {"token_embd.weight": parts["tok_embeddings"], "output_norm.weight": parts["norm"]}
    named |= {"output.weight": parts["output"]} if "output" in parts else {}
    for part, name in GGUF.items():
        named |= {f"blk.{i}.{name}.weight": rows for i, rows in enumerate(parts[part])}
    for name, array in (named | (extra or {})).items():
        wanted = gguf.GGMLQuantizationType[kind if array.ndim == 2 else "F32"]
        writer.add_tensor(name, gguf.quantize(array, wanted), raw_dtype=wanted)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _describe(
    writer: Any,
    sizes: Sizes,
    pieces: Any = None,
    scaling: str | None = None,
    turned: int = 0,
    eps: float = 1e-5,
    base: float | None = None,
    numbers: dict[str, float] | None = None,
) -> None:
    for name, value in (numbers or {}).items():
        writer.add_uint32(name, value) if isinstance(value, int) else writer.add_float32(name, value)
    writer.add_context_length(sizes.longest)
    writer.add_embedding_length(sizes.dim)
    writer.add_block_count(sizes.layers)
    writer.add_feed_forward_length(sizes.hidden)
    writer.add_head_count(sizes.heads)
    writer.add_head_count_kv(sizes.kv_heads)
    writer.add_layer_norm_rms_eps(eps)
    if base is not None:
        writer.add_rope_freq_base(base)
    if turned:
        writer.add_rope_dimension_count(turned)
    if scaling is not None:
        writer.add_string("llama.rope.scaling.type", scaling)
    if pieces is not None:
        tokens, scores = pieces
        writer.add_tokenizer_model("llama")
        writer.add_token_list([token.replace(" ", "\u2581") for token in tokens])
        writer.add_token_scores(scores)
        writer.add_token_types([2, 3, 3, *[6] * 256, *[1] * (len(tokens) - 259)])
        writer.add_bos_token_id(1)
