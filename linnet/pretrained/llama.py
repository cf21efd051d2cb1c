"""The Llama family, softmax attention: model_type llama, llama2.c files and GGUF files.

    x = x + wo softmax(rot(wq n) rot(wk n)^T) wv n,  n = rms(x);   x = x + w2 (silu(w1 n) * w3 n),  n = rms(x)

    model.layers.{i}.self_attn.q_proj.weight  [H D, E]   ...   lm_head.weight [N,E] unless tie_word_embeddings

Touvron et al. 2023, arXiv:2302.13971. linnet stores wq, wk, wv as one matrix and w1, w3 as one. Its rotary encoding
rotates the pairs (i, i + D/2) of a head, as Hugging Face does; llama2.c and GGUF rotate (2i, 2i + 1), so their rows are
reordered. Biases (attention_bias, mlp_bias) and the rope_type linear, llama3 and yarn are read as transformers reads
them.
E model width, H heads, K key-value heads, D head width, F hidden width, N vocabulary; matrices are [out,in].
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..models.config import ModelConfig
from .architecture import EMBED, HEAD, NORM, Architecture, Outer, Part
from .fields import Fields
from .rope import read_rotary, write_rotary

BIASED = ("wq", "wk", "wv", "wo", "w1", "w2", "w3")  # parts that may have a bias: the part's name with "_bias"
OUTSIDE = {"tok_embeddings": EMBED, "norm": NORM, "output": HEAD}  # parts outside the layers; the last unless tied
OUTER = Outer("model.embed_tokens.weight", "model.norm.weight")
LAYER = "model.layers.{i}."
NAMES = {
    "tok_embeddings": OUTER.embed,
    "attention_norm": LAYER + "input_layernorm.weight",
    "wq": LAYER + "self_attn.q_proj.weight",
    "wk": LAYER + "self_attn.k_proj.weight",
    "wv": LAYER + "self_attn.v_proj.weight",
    "wo": LAYER + "self_attn.o_proj.weight",
    "ffn_norm": LAYER + "post_attention_layernorm.weight",
    "w1": LAYER + "mlp.gate_proj.weight",
    "w2": LAYER + "mlp.down_proj.weight",
    "w3": LAYER + "mlp.up_proj.weight",
    "norm": OUTER.norm,
    "output": OUTER.head,
}
NAMES |= {part + "_bias": NAMES[part].replace(".weight", ".bias") for part in BIASED}
STACKED = {  # ours, within a block -> the parts stacked in it; w1 is the gate
    "mixer.qkv": ("wq", "wk", "wv"),
    "mixer.out": ("wo",),
    "mlp.up": ("w1", "w3"),
    "mlp.down": ("w2",),
}


def read(fields: Fields) -> ModelConfig:
    """Return the configuration of a model_type llama."""
    fields.only("hidden_act", "silu", "swish")
    bias = {name: True for name in ("attention_bias", "mlp_bias") if fields.flag(name, False)}
    sizes = {
        "d_model": fields.whole("hidden_size"),
        "d_ff": fields.whole("intermediate_size"),
        "n_layers": fields.whole("num_hidden_layers"),
        "n_heads": fields.whole("num_attention_heads"),
        "vocab_size": fields.whole("vocab_size"),
        "max_length": fields.whole("max_position_embeddings", 2048),
    }
    for ours, theirs in (("n_kv_heads", "num_key_value_heads"), ("head_dim", "head_dim")):
        sizes |= {ours: fields.whole(theirs)} if theirs in fields.values else {}
    return llama_config(
        fields.where,
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        tie_embeddings=fields.flag("tie_word_embeddings", False),
        **read_rotary(fields, sizes["max_length"]),
        **sizes,
        **bias,
    )


def write(config: ModelConfig) -> dict[str, Any]:
    """Return the fields of config.json."""
    return {
        "hidden_act": "silu",
        "hidden_size": config.d_model,
        "intermediate_size": config.hidden,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": config.n_heads,
        "num_key_value_heads": config.n_kv_heads or config.n_heads,
        "head_dim": head_width(config),
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.max_length,
        "rms_norm_eps": config.norm_eps,
        "attention_bias": has_bias(config, "wq"),
        "mlp_bias": has_bias(config, "w1"),
        "tie_word_embeddings": config.tie_embeddings,
        **write_rotary(config),
    }


def llama_config(where: str, **fields: Any) -> ModelConfig:
    """Return the configuration of a Llama model; errors name the file."""
    fixed: dict[str, Any] = {"task": "language", "mixer": "softmax", "mlp": "swiglu", "norm": "rms", "bias": False}
    try:
        config = ModelConfig(**fixed, positions="rotary", **fields)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    if head_width(config) % 2:
        raise ValueError(f"{where}: heads are {head_width(config)} wide; accepted: an even width, for rotary")
    return config


def head_width(config: ModelConfig) -> int:
    return config.head_dim or config.d_model // config.n_heads


def has_bias(config: ModelConfig, part: str) -> bool:
    own = config.mlp_bias if part in ("w1", "w2", "w3") else config.attention_bias
    return config.bias if own is None else own


def part_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Return part -> shape; parts not in OUTSIDE belong to each layer."""
    E, F, N, D = config.d_model, config.hidden, config.vocab_size, head_width(config)
    heads, shared = config.n_heads * D, (config.n_kv_heads or config.n_heads) * D
    shapes: dict[str, tuple[int, ...]] = {"tok_embeddings": (N, E), "attention_norm": (E,)}
    shapes |= {"wq": (heads, E), "wk": (shared, E), "wv": (shared, E), "wo": (E, heads)}
    shapes |= {"ffn_norm": (E,), "w1": (F, E), "w2": (E, F), "w3": (F, E), "norm": (E,)}
    shapes |= {f"{part}_bias": shapes[part][:1] for part in BIASED if has_bias(config, part)}
    return shapes if config.tie_embeddings else shapes | {"output": (N, E)}


def parts(config: ModelConfig, names: Mapping[str, str] = NAMES, *, interleaved: bool = False) -> Iterator[Part]:
    """Yield every tensor of the model; `names`: part -> its name in the file; `interleaved`: pairs are (2i, 2i + 1)."""
    shapes = part_shapes(config)
    for part, ours in OUTSIDE.items():
        if part in shapes:
            yield Part(ours, {names[part]: shapes[part]})
    order = partial(_halves, config) if interleaved else None
    for i in range(config.n_layers):
        for ours, part in (("norm1", "attention_norm"), ("norm2", "ffn_norm")):
            yield Part(f"backbone.blocks.{i}.{ours}.weight", {names[part].format(i=i): shapes[part]})
        for ours, stacked in STACKED.items():
            for kind, end in (("weight", ""), ("bias", "_bias")):
                rows = {names[part + end].format(i=i): shapes[part + end] for part in stacked if part + end in shapes}
                if rows:
                    yield Part(f"backbone.blocks.{i}.{ours}.{kind}", rows, order if ours == "mixer.qkv" else None)


def _halves(config: ModelConfig) -> Tensor:
    """Reorder the rows 0 1 2 3 ... of each head of q and k to 0 2 4 ... 1 3 5 ...: pairs (2i, 2i+1) -> (i, i+D/2)."""
    D, shared = head_width(config), config.n_kv_heads or config.n_heads
    rows = torch.arange((config.n_heads + 2 * shared) * D)
    turned = rows[: -shared * D].unflatten(0, (-1, D // 2, 2)).transpose(1, 2).reshape(-1)
    return torch.cat((turned, rows[-shared * D :]))


LLAMA = Architecture(
    "llama",
    "LlamaForCausalLM",
    ("softmax",),
    OUTER,
    read,
    parts,
    write,
    ignored=frozenset({"attention_dropout", "pretraining_tp", "max_sequence_length"}),
    dropped=(".rotary_emb.inv_freq",),  # in files of old versions: a table, not a weight
)
