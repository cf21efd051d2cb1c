"""Read a GGUF file of a Llama model: configuration, weights (plain or quantised) and tokenizer in one.

    blk.{i}.attn_q.weight [H D, E], rows of interleaved rotary pairs   ...   output.weight [N,E] unless tied

Weights become float32. Biases are read if present, and the rope scalings linear and yarn; the
llama3 scaling, which these files store as a table of factors, is refused. Quantised weights need the package `gguf`
(extra `gguf`); gguf_header.py finds everything in the file, F32, F16 and BF16 weights are read without the package.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data.llama_tokenizer import BOS, EOS, SPACE, UNKNOWN, LlamaTokenizer
from ..layers.rope_scaling import WINDOW, attention_factor, check_scaling
from ..models.config import ModelConfig
from ..schema import Each, Number, Record, Text, Whole, check
from .gguf_header import KINDS, Place, damaged, read_header
from .llama import BIASED, Weights, head_width, llama_config

BLOCK = "blk.{i}."
NAMES = {
    "tok_embeddings": "token_embd.weight",
    "attention_norm": BLOCK + "attn_norm.weight",
    "wq": BLOCK + "attn_q.weight",
    "wk": BLOCK + "attn_k.weight",
    "wv": BLOCK + "attn_v.weight",
    "wo": BLOCK + "attn_output.weight",
    "ffn_norm": BLOCK + "ffn_norm.weight",
    "w1": BLOCK + "ffn_gate.weight",
    "w2": BLOCK + "ffn_down.weight",
    "w3": BLOCK + "ffn_up.weight",
    "norm": "output_norm.weight",
    "output": "output.weight",
}
NAMES |= {part + "_bias": NAMES[part].replace(".weight", ".bias") for part in BIASED}
FACTORS = "rope_freqs.weight"
SIZES = {  # field of ModelConfig -> of the file
    "d_model": "llama.embedding_length",
    "d_ff": "llama.feed_forward_length",
    "n_layers": "llama.block_count",
    "n_heads": "llama.attention.head_count",
    "max_length": "llama.context_length",
}
TABLE, TOKENIZER = "tokenizer.ggml.", ("model", "tokens", "scores", "token_type", "bos_token_id")
VOCABULARY = Record({"tokens": Each(Text())}, {"scores": Each(Number()), "token_type": Each(Whole())}, open=True)
PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}  # read without the package
CONTROLS = (2, 3)  # token types: unknown, control


def read(path: Path) -> Weights:
    """Read the header; tensors are read and dequantised one by one."""
    values, tensors = read_header(path)
    config = _config(str(path), values, tensors)
    shapes = {name: place.shape for name, place in tensors.items()}
    return Weights(
        str(path), config, NAMES, shapes, lambda name: _fetch(path, name, tensors[name]), interleaved=True,
        tokenizer=lambda: _tokenizer(path, values),
    )  # fmt: skip


def _fetch(path: Path, name: str, place: Place) -> Tensor:
    """Return one tensor in float32."""
    data = np.fromfile(path, np.uint8, place.size, offset=place.start)
    if data.size < place.size:
        raise damaged(path, "it became shorter while it was read")
    kind = KINDS[place.kind].name
    if kind in PLAIN:
        return torch.from_numpy(data).view(PLAIN[kind]).reshape(place.shape).float()
    library = _library(kind)
    rows = data.reshape(*place.shape[:-1], -1)
    try:
        numbers = library.dequantize(rows, library.GGMLQuantizationType(place.kind))
    except (NotImplementedError, ValueError):  # ValueError: a kind that this version of the package does not know
        raise ValueError(
            f"{path}: {name!r} is {kind}, which gguf cannot dequantise; accepted: F32, Q8_0 and the like"
        ) from None
    return torch.from_numpy(np.array(numbers, dtype=np.float32).reshape(place.shape))


def _config(where: str, values: dict[str, Any], tensors: dict[str, Place]) -> ModelConfig:
    kind = values.get("general.architecture")
    if kind != "llama":
        raise ValueError(f"{where}: general.architecture is {kind!r}; accepted: 'llama'")
    for key in (*SIZES.values(), "llama.attention.layer_norm_rms_epsilon"):
        if key not in values:
            raise ValueError(f"{where} has no {key}; accepted: a GGUF file of a complete llama model")
    embedding = tensors.get(NAMES["tok_embeddings"])
    if embedding is None:
        raise ValueError(f"{where} lacks {NAMES['tok_embeddings']!r}; accepted: a GGUF file of a complete llama model")
    config = llama_config(
        where,
        **{ours: values[key] for ours, key in SIZES.items()},
        n_kv_heads=values.get("llama.attention.head_count_kv"),
        head_dim=values.get("llama.attention.key_length"),
        norm_eps=values["llama.attention.layer_norm_rms_epsilon"],
        rotary_base=values.get("llama.rope.freq_base", 10_000.0),
        rotary_scaling=_scaling(where, values, tensors),
        attention_bias=NAMES["wq_bias"].format(i=0) in tensors or None,
        mlp_bias=NAMES["w1_bias"].format(i=0) in tensors or None,
        tie_embeddings=NAMES["output"] not in tensors,
        vocab_size=embedding.shape[0],
    )
    rotated = values.get("llama.rope.dimension_count", head_width(config))
    if rotated != head_width(config):
        raise ValueError(
            f"{where}: llama.rope.dimension_count is {rotated}; accepted: {head_width(config)}, the head width"
        )
    return config


def _scaling(where: str, values: dict[str, Any], tensors: dict[str, Place]) -> dict[str, Any] | None:
    """Return rotary_scaling as llama.cpp derives it from llama.rope.scaling.*."""
    if FACTORS in tensors:
        way_out = "import the Hugging Face folder of this model instead"
        raise ValueError(f"{where} has {FACTORS!r}, rope scaling as a table; accepted: none, linear or yarn; {way_out}")
    kind = values.get("llama.rope.scaling.type", "none")
    if kind == "none":
        return None
    if kind not in ("linear", "yarn"):
        raise ValueError(f"{where}: llama.rope.scaling.type is {kind!r}; accepted: 'none', 'linear' or 'yarn'")
    scaling = {"rope_type": kind, "factor": values.get("llama.rope.scaling.factor", 1.0)}
    if kind == "yarn":
        scaling[WINDOW] = values.get("llama.rope.scaling.original_context_length", values.get("llama.context_length"))
    times = values.get("llama.rope.scaling.attn_factor", 1.0)
    try:
        check_scaling(scaling | {"factor": times}, 2.0)
        check_scaling(scaling, values.get("llama.rope.freq_base", 10_000.0))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    return scaling | ({"attention_factor": times * attention_factor(scaling)} if kind == "yarn" and times != 1 else {})


def _tokenizer(path: Path, values: dict[str, Any]) -> LlamaTokenizer | None:
    """Return the tokenizer in the file, or None."""
    table = {name: values[TABLE + name] for name in TOKENIZER if TABLE + name in values}
    if "tokens" not in table:
        return None
    if table.get("model") != "llama" or table.get("bos_token_id", BOS) != BOS:
        raise ValueError(
            f"{path}: its tokenizer is {table.get('model')!r} with begin token {table.get('bos_token_id')}; accepted: "
            "'llama' with 1; pass another tokenizer with the file"
        )
    kinds = table.get("token_type", [])
    check(table, VOCABULARY, path, "copy it again")
    special = {UNKNOWN, BOS, EOS} | {i for i, kind in enumerate(kinds) if kind in CONTROLS}
    try:
        return LlamaTokenizer(
            [token.replace(SPACE, " ") for token in table["tokens"]], table.get("scores", []), special
        )
    except ValueError as error:
        raise ValueError(f"{path}: its tokenizer is damaged: {error}") from error


def _library(kind: str) -> Any:
    try:
        import gguf
    except ImportError as error:
        raise ImportError(
            f"reading {kind} tensors of a GGUF file needs the package gguf, which is not installed; "
            "pip install linnet[gguf]"
        ) from error
    return gguf
