"""Map the Llama architecture to a linnet backbone, and its weights from any file to linnet's names.

    x = x + wo softmax(rot(wq n) rot(wk n)^T) wv n,  n = rms(x);   x = x + w2 (silu(w1 n) * w3 n),  n = rms(x)

Touvron et al. 2023, arXiv:2302.13971. linnet stores wq, wk, wv as one matrix and w1, w3 as one. Its rotary encoding
rotates the pairs (i, i + D/2) of a head, as Hugging Face does; llama2.c and GGUF rotate (2i, 2i + 1), so
their rows are reordered. A reader describes its file (`Weights`); names and shapes are checked before
anything is built.
E model width, H heads, K key-value heads, D head width, F hidden width, N vocabulary; matrices are [out,in].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..data.tokenizer import Tokenizer
from ..models.config import ModelConfig
from ..models.language import LanguageModel
from ..models.weights_file import Shape, check_layers, check_weights

BIASED = ("wq", "wk", "wv", "wo", "w1", "w2", "w3")  # parts that may have a bias: the part's name with "_bias"
OUTER = ("tok_embeddings", "norm", "output")  # parts outside the layers; the last one unless tied


class Weights(NamedTuple):
    """The contents of a file: names and shapes are known, tensors are read by `fetch`."""

    where: str  # the file, for errors
    config: ModelConfig
    names: Mapping[str, str]  # part -> its name in the file; {i} is the layer
    shapes: Mapping[str, tuple[int, ...]]  # every tensor of the file by its name there
    fetch: Callable[[str], Tensor]  # reads one of them
    interleaved: bool  # rotary pairs are (2i, 2i + 1)
    tokenizer: Callable[[], Tokenizer | None] = lambda: None  # reads the one stored with the weights


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
    return bool(config.mlp_bias if part in ("w1", "w2", "w3") else config.attention_bias)


def part_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Return part -> shape; parts other than OUTER belong to each layer."""
    E, F, N, D = config.d_model, config.hidden, config.vocab_size, head_width(config)
    heads, shared = config.n_heads * D, (config.n_kv_heads or config.n_heads) * D
    shapes: dict[str, tuple[int, ...]] = {"tok_embeddings": (N, E), "attention_norm": (E,)}
    shapes |= {"wq": (heads, E), "wk": (shared, E), "wv": (shared, E), "wo": (E, heads)}
    shapes |= {"ffn_norm": (E,), "w1": (F, E), "w2": (E, F), "w3": (F, E), "norm": (E,)}
    shapes |= {f"{part}_bias": shapes[part][:1] for part in BIASED if has_bias(config, part)}
    return shapes if config.tie_embeddings else shapes | {"output": (N, E)}


def assemble(weights: Weights) -> LanguageModel:
    """Build the model; the error names a missing, unexpected or misshapen tensor."""
    config, names = weights.config, weights.names
    check_layers(config, len(weights.shapes), weights.where)
    wanted = {}
    for part, shape in part_shapes(config).items():
        for i in range(1 if part in OUTER else config.n_layers):
            wanted[names[part].format(i=i)] = Shape(shape)
    check_weights({name: Shape(tuple(shape)) for name, shape in weights.shapes.items()}, wanted, weights.where)
    with torch.device("meta"):  # shapes only, until all weights are read
        model = LanguageModel(config)
    state = _outer(weights)
    for i in range(config.n_layers):
        state |= {f"backbone.blocks.{i}.{name}": value for name, value in _layer(weights, i).items()}
    model.load_state_dict(state, assign=True)
    return model.eval()


def _outer(weights: Weights) -> dict[str, Tensor]:
    ours = {"tok_embeddings": "embed.weight", "norm": "backbone.norm.weight", "output": "head.weight"}
    present = OUTER[:2] if weights.config.tie_embeddings else OUTER
    return {ours[part]: weights.fetch(weights.names[part]).float() for part in present}


def _layer(weights: Weights, i: int) -> dict[str, Tensor]:
    """Return the weights of one block under linnet's names."""

    def part(name: str) -> Tensor:
        return weights.fetch(weights.names[name].format(i=i)).float()

    def reordered(name: str) -> Tensor:
        return halves(part(name), head_width(weights.config)) if weights.interleaved else part(name)

    block = {"norm1.weight": part("attention_norm"), "norm2.weight": part("ffn_norm")}
    for kind, end in (("weight", ""), ("bias", "_bias")):
        if not end or has_bias(weights.config, "wq"):
            both = reordered("wq" + end), reordered("wk" + end)
            block |= {f"mixer.qkv.{kind}": torch.cat((*both, part("wv" + end)))}  # [(H + 2K) D, E]
            block |= {f"mixer.out.{kind}": part("wo" + end)}
        if not end or has_bias(weights.config, "w1"):
            block |= {f"mlp.up.{kind}": torch.cat((part("w1" + end), part("w3" + end)))}  # [2F, E]: the gate first
            block |= {f"mlp.down.{kind}": part("w2" + end)}
    return block


def halves(rows: Tensor, width: int) -> Tensor:
    """Reorder rows 0 1 2 3 ... of each head [H D, E] to 0 2 4 ... 1 3 5 ...: pairs (2i, 2i+1) -> (i, i+D/2)."""
    return rows.unflatten(0, (-1, width // 2, 2)).transpose(1, 2).reshape(rows.shape)
