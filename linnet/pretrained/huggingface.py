"""Read a Hugging Face folder of a Llama model: config.json, and model.safetensors or its shards with their index.

    model.layers.{i}.self_attn.q_proj.weight  [H D, E]   ...   lm_head.weight [N,E] unless tie_word_embeddings

Rows need no reordering. Biases (attention_bias, mlp_bias) and the rope_type linear, llama3 and yarn are read as
transformers reads them. A configuration that means another computation (another rope_type or activation, quantised
weights) is refused by name, and so is a folder that has pickled weights only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..data.tokenizer import FILE, Tokenizer, load_tokenizer
from ..errors import is_number
from ..json_file import read_object
from ..layers.rope_scaling import WINDOW
from ..models.config import ModelConfig
from .llama import BIASED, Weights, llama_config

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
LAYER = "model.layers.{i}."
NAMES = {
    "tok_embeddings": "model.embed_tokens.weight",
    "attention_norm": LAYER + "input_layernorm.weight",
    "wq": LAYER + "self_attn.q_proj.weight",
    "wk": LAYER + "self_attn.k_proj.weight",
    "wv": LAYER + "self_attn.v_proj.weight",
    "wo": LAYER + "self_attn.o_proj.weight",
    "ffn_norm": LAYER + "post_attention_layernorm.weight",
    "w1": LAYER + "mlp.gate_proj.weight",
    "w2": LAYER + "mlp.down_proj.weight",
    "w3": LAYER + "mlp.up_proj.weight",
    "norm": "model.norm.weight",
    "output": "lm_head.weight",
}
NAMES |= {part + "_bias": NAMES[part].replace(".weight", ".bias") for part in BIASED}
# field of config.json -> what it must be if it is there
ONLY: dict[str, tuple[Any, ...]] = {
    "model_type": ("llama",),
    "hidden_act": ("silu", "swish"),
    "attention_bias": (False, True),
    "mlp_bias": (False, True),
    "quantization_config": (None,),
}
SIZES = {  # field of ModelConfig -> of config.json
    "d_model": "hidden_size",
    "d_ff": "intermediate_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "vocab_size": "vocab_size",
}
IGNORE = ("rope_theta", "type", "finetuned")  # in rope_scaling: read elsewhere, or a note
DERIVED = ".rotary_emb.inv_freq"  # in files of old versions: a table, not a weight


def read(folder: Path) -> Weights:
    """Return the folder's weights, opened but not yet read."""
    values = _json(folder / CONFIG)
    config = _config(str(folder / CONFIG), values)
    files = _files(folder)
    where = {name: file for file in files for name in _names(file)}
    if config.tie_embeddings and NAMES["output"] in where:
        _check_tied(folder, where)
        del where[NAMES["output"]]
    shapes = {name: _get(file, name, shape=True) for name, file in where.items()}

    def fetch(name: str) -> Tensor:
        tensor: Tensor = _get(where[name], name)
        if not tensor.is_floating_point():
            raise ValueError(f"{where[name]}: {name!r} has dtype {tensor.dtype}; accepted: floating point")
        return tensor

    def tokenizer() -> Tokenizer | None:
        return load_tokenizer(folder) if (folder / FILE).is_file() else None

    return Weights(str(folder), config, NAMES, shapes, fetch, interleaved=False, tokenizer=tokenizer)


def _config(where: str, values: dict[str, Any]) -> ModelConfig:
    if "model_type" not in values:
        raise ValueError(f"{where} has no model_type; accepted: a Hugging Face folder of model_type 'llama'")
    for name, accepted in ONLY.items():
        if name in values and values[name] not in accepted:
            some = " or ".join(repr(value) for value in accepted)
            raise ValueError(f"{where}: {name} is {values[name]!r}; accepted: {some}; this is another architecture")
    for ours, theirs in SIZES.items():
        if theirs not in values:
            raise ValueError(f"{where} has no {theirs}; accepted: the config.json that belongs to the weights ({ours})")
    fields = {ours: values[theirs] for ours, theirs in SIZES.items()}
    fields |= {"n_kv_heads": values.get("num_key_value_heads"), "head_dim": values.get("head_dim")}
    fields |= {"norm_eps": _number(where, values, "rms_norm_eps", 1e-6)} | _rotary(where, values)
    fields |= {name: True for name in ("attention_bias", "mlp_bias") if values.get(name)}
    fields |= {"tie_embeddings": bool(values.get("tie_word_embeddings", False))}
    return llama_config(where, **fields, max_length=values.get("max_position_embeddings", 2048))


def _rotary(where: str, values: dict[str, Any]) -> dict[str, Any]:
    """Return rotary_base and, if frequencies are scaled, rotary_scaling; newer versions write rope_parameters."""
    fields: dict[str, Any] = {"rotary_base": _number(where, values, "rope_theta", 10_000.0)}
    for name in ("rope_scaling", "rope_parameters"):
        rope = values.get(name)
        if rope is None:
            continue
        if not isinstance(rope, dict):
            raise ValueError(f"{where}: {name} is {rope!r}; accepted: null, or an object with a rope_type")
        fields["rotary_base"] = _number(where, rope, "rope_theta", fields["rotary_base"])
        scaling = _scaling(values, rope)
        fields |= {} if scaling["rope_type"] == "default" else {"rotary_scaling": scaling}
    return fields


def _scaling(values: dict[str, Any], rope: dict[str, Any]) -> dict[str, Any]:
    """Return the object for ModelConfig, with missing or null fields filled in as transformers does."""
    scaling = {name: value for name, value in rope.items() if name not in IGNORE and value is not None}
    scaling["rope_type"] = rope.get("rope_type", rope.get("type", "default"))
    if scaling.get("partial_rotary_factor") == 1:
        del scaling["partial_rotary_factor"]
    longest = values.get("max_position_embeddings", 2048)
    if scaling["rope_type"] in ("llama3", "yarn"):
        scaling[WINDOW] = values.get(WINDOW, scaling.get(WINDOW, longest))
        trained = scaling[WINDOW]
        if "factor" not in scaling and isinstance(longest, int) and isinstance(trained, int) and trained > 0:
            scaling["factor"] = longest / trained
    return scaling


def _number(where: str, values: dict[str, Any], name: str, default: float) -> float:
    value = values.get(name, default)
    if not is_number(value) or value <= 0:
        raise ValueError(f"{where}: {name} is {value!r}; accepted: a number above 0")
    return float(value)


def _files(folder: Path) -> list[Path]:
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if not (folder / INDEX).is_file():
        raise ValueError(f"{folder} has neither {WEIGHTS} nor {INDEX}; accepted: weights as safetensors, never pickled")
    shards = _json(folder / INDEX).get("weight_map")
    files: list[Any] = list(shards.values()) if isinstance(shards, dict) else [None]
    if not all(isinstance(name, str) and Path(name).name == name and 0 < len(name) < 256 for name in files):
        raise ValueError(f"{folder / INDEX}: weight_map does not name files of its folder; fetch it again")
    return [folder / name for name in sorted(set(files))]


def _get(file: Path, name: str, shape: bool = False) -> Any:
    with _opened(file) as opened:
        return tuple(opened.get_slice(name).get_shape()) if shape else opened.get_tensor(name)


def _names(file: Path) -> list[str]:
    with _opened(file) as opened:
        return [name for name in opened.keys() if not name.endswith(DERIVED)]  # noqa: SIM118  # not a dict


def _opened(file: Path) -> Any:
    if not file.is_file():
        raise ValueError(f"{file} does not exist, but the index names it; fetch it as well")
    try:
        return safe_open(file, "pt")
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{file} is not a whole safetensors file ({error}); copy it again") from None


def _check_tied(folder: Path, where: dict[str, Path]) -> None:
    """Raise ValueError if a tied model has a head that differs from the embedding."""
    names = NAMES["output"], NAMES["tok_embeddings"]
    if all(name in where for name in names) and not torch.equal(*(_get(where[name], name) for name in names)):
        raise ValueError(
            f"{folder}: tie_word_embeddings is true, but {NAMES['output']!r} is not the embedding; accepted: the same "
            "numbers, or tie_word_embeddings false"
        )


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ValueError(f"{path} does not exist; accepted: a Hugging Face folder with {CONFIG} and {WEIGHTS}")
    return read_object(path, "fetch it again")
