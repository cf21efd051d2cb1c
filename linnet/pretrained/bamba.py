"""Hybrids of Mamba-2 and attention: model_type bamba, and granitemoehybrid without experts.

    model.layers.{i}.mamba.*  as in mamba2.py, or  model.layers.{i}.self_attn.q_proj.weight [H D, E] ...
    and an MLP in every layer: bamba feed_forward.gate_proj, up_proj, down_proj;  Granite shared_mlp.input_linear
    (gate, then up) and output_linear

Bamba turns the first half of every head by rotary positions; linnet pairs other rows of q and k (rotary.py). Granite
scales embeddings, attention scores, residuals and logits by constants, which are folded into the weights, so that its
embedding and head are two matrices here.
E model width, H heads, D head width, F hidden width.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..layers import Mamba2
from ..models.config import ModelConfig
from .architecture import EMBED, HEAD, Architecture, Outer, Part, Sizes
from .fields import Fields
from .llama import has_bias, head_width
from .mamba import first_mixer
from .mamba2 import check_widths, mixer_shapes, step_limit, written_limit
from .rope import FRACTION, ROTARY, read_rotary, write_rotary
from .rotary import spread

HALF = 0.5  # of a head turns, in bamba
KINDS = {"mamba2": ("linear_attention", "mamba"), "softmax": ("full_attention", "attention")}  # in layer_types
MULTIPLIERS = ("embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling")
IGNORED = frozenset(
    {"attention_dropout", "mamba_chunk_size", "num_logits_to_keep", "z_loss_coefficient", "router_aux_loss_coef"}
    | {"output_router_logits", "num_experts_per_tok", "init_method", "pad_token_idx"}
)


class Names(NamedTuple):
    """What the two model types call the same things."""

    outer: Outer
    norm2: str
    up: dict[str, int]  # name -> widths F
    down: str


BAMBA_NAMES = Names(
    Outer("model.embed_tokens.weight", "model.final_layernorm.weight"),
    "pre_ff_layernorm.weight",
    {"feed_forward.gate_proj": 1, "feed_forward.up_proj": 1},
    "feed_forward.down_proj",
)
GRANITE_NAMES = Names(
    Outer("model.embed_tokens.weight", "model.norm.weight"),
    "post_attention_layernorm.weight",
    {"shared_mlp.input_linear": 2},
    "shared_mlp.output_linear",
)


def read_bamba(fields: Fields) -> ModelConfig:
    """Return the configuration of a model_type bamba."""
    layers = fields.layers(32)
    chosen = fields.raw("attn_layer_indices", [])
    if not isinstance(chosen, list) or not all(type(i) is int and 0 <= i < layers for i in chosen):
        raise fields.error("attn_layer_indices", chosen, f"null, or a list of layers from 0 to {layers - 1}")
    mixers = ["softmax" if i in chosen else "mamba2" for i in range(layers)]
    listed = fields.raw("layers_block_type", fields.raw("layer_types"))
    if listed is not None and _mixers(fields, listed) != mixers:
        raise fields.error("layers_block_type", listed, "what follows from attn_layer_indices")
    longest = fields.whole("max_position_embeddings", 262_144)
    fields.only(FRACTION, HALF)  # outside rope_parameters, transformers puts a half in its place
    rotary = {"positions": "rotary", **read_rotary(fields, longest, partial=HALF)}
    config = _config(fields, mixers, rotary, longest, fields.whole("intermediate_size", 14336), mlp_bias=True)
    turned = head_width(config) * (config.rotary_fraction or 1)
    if "softmax" in mixers:
        if turned % 2:
            raise fields.error("partial_rotary_factor", config.rotary_fraction, "an even number of turned numbers")
        fields.derived("attn_rotary_emb", int(turned))
    return config


def read_granite(fields: Fields) -> ModelConfig:
    """Return the configuration of a model_type granitemoehybrid."""
    layers = fields.layers(32)
    experts = fields.raw("num_local_experts", 8)
    if experts != 0:
        raise fields.error("num_local_experts", experts, "0; linnet has no experts")
    names = fields.raw("layers_block_type", fields.raw("layer_types", [KINDS["mamba2"][0]] * layers))
    mixers = _mixers(fields, names)
    if mixers != _mixers(fields, fields.raw("layer_types", names)):
        raise fields.error("layers_block_type", names, "the same as layer_types")
    if len(mixers) != layers:
        raise fields.error("layer_types", names, f"a list of {layers} layers")
    longest = fields.whole("max_position_embeddings", 2048)
    turns = fields.only("position_embedding_type", "nope", "rope") == "rope"
    rotary = {"positions": "rotary", **read_rotary(fields, longest)} if turns else {}
    for name in ROTARY if not turns else ():
        fields.raw(name)
    fields.only("normalization_function", "rmsnorm")
    fields.raw("intermediate_size")  # of the experts
    scales = [fields.number(name, 1.0) for name in MULTIPLIERS]
    config = _config(fields, mixers, rotary, longest, fields.whole("shared_intermediate_size", 1024), mlp_bias=False)
    scaled = scales[0] != 1 or scales[3] != 1
    return config.replace(tie_embeddings=False) if scaled else config


def _mixers(fields: Fields, names: Any) -> list[str]:
    known = {name: ours for ours, theirs in KINDS.items() for name in theirs}
    if not isinstance(names, list) or not all(isinstance(name, str) and name in known for name in names):
        raise fields.error("layer_types", names, f"a list of {', '.join(map(repr, sorted(known)))}")
    return [known[name] for name in names]


def _config(
    fields: Fields, mixers: list[str], rotary: dict[str, Any], longest: int, hidden: int, *, mlp_bias: bool
) -> ModelConfig:
    fields.only("hidden_act", "silu", "swish")
    width, expand = fields.whole("hidden_size", 4096), fields.whole("mamba_expand", 2)
    heads = fields.whole("mamba_n_heads", 128)
    given = fields.raw("mamba_d_head", "auto")
    head = expand * width // heads if given == "auto" else fields.whole("mamba_d_head")
    check_widths(fields, "mamba_n_heads * mamba_d_head", heads * head, "mamba_expand * hidden_size", expand * width)
    eps = fields.number("rms_norm_eps", 1e-5 if mlp_bias else 1e-6)
    mamba2: dict[str, Any] = {
        "n_heads": heads,
        "n_kv_heads": None,
        "head_dim": head,
        "key_dim": fields.whole("mamba_d_state", 256),
        "bias": fields.flag("mamba_proj_bias", False),
        "kernel_size": fields.whole("mamba_d_conv", 4),
        "n_groups": fields.whole("mamba_n_groups", 1),
        "conv_bias": fields.flag("mamba_conv_bias", True),
        "norm_eps": eps,
        "dt_limit": step_limit(fields),
    }
    fields.divides("mamba_n_groups", mamba2["n_groups"], "mamba_n_heads", heads)
    attention: dict[str, Any] = {"n_heads": fields.whole("num_attention_heads", 32)}
    few = 8 if mlp_bias and "num_key_value_heads" not in fields.nulls else attention["n_heads"]
    attention["n_kv_heads"] = fields.whole("num_key_value_heads", few, null=True)
    if "head_dim" in fields.values:
        attention["head_dim"] = fields.whole("head_dim")
    return ModelConfig(
        d_model=width,
        d_ff=hidden,
        n_layers=len(mixers),
        vocab_size=fields.whole("vocab_size"),
        max_length=longest,
        mixer=tuple(mixers),
        mixer_options={"mamba2": mamba2} if "mamba2" in mixers else {},
        mlp="swiglu",
        norm="rms",
        norm_eps=eps,
        bias=False,
        attention_bias=fields.flag("attention_bias", False),
        mlp_bias=fields.flag("mlp_bias", False) if mlp_bias else fields.only("mlp_bias", False),
        tie_embeddings=fields.flag("tie_word_embeddings", False),
        **attention,
        **rotary,
    )


def parts(names: Names, config: ModelConfig) -> Iterator[Part]:
    """Yield every tensor of the model."""
    E, F = config.d_model, config.hidden
    yield from names.outer.parts(config)
    for i, mixer in enumerate(config.mixers):
        block, layer = f"backbone.blocks.{i}.", f"model.layers.{i}."
        yield Part(block + "norm1.weight", {layer + "input_layernorm.weight": (E,)})
        yield Part(block + "norm2.weight", {layer + names.norm2: (E,)})
        yield from (_mamba2 if mixer == "mamba2" else _attention)(config, block + "mixer.", layer)
        for kind, ends in (("weight", (E,)), ("bias", ())) if has_bias(config, "w1") else (("weight", (E,)),):
            up = {f"{layer}{name}.{kind}": (count * F, *ends) for name, count in names.up.items()}
            yield Part(f"{block}mlp.up.{kind}", up)
            yield Part(f"{block}mlp.down.{kind}", {f"{layer}{names.down}.{kind}": (E, F) if ends else (E,)})


def _mamba2(config: ModelConfig, ours: str, layer: str) -> Iterator[Part]:
    mixer, inner, outer = mixer_shapes(config)
    E, theirs = config.d_model, layer + "mamba."
    mixer |= {"proj.weight": ("in_proj.weight", (inner, E)), "out.weight": ("out_proj.weight", (E, outer))}
    if config.options_of("mamba2")["bias"]:
        mixer |= {"proj.bias": ("in_proj.bias", (inner,)), "out.bias": ("out_proj.bias", (E,))}
    for name, (other, shape) in mixer.items():
        yield Part(ours + name, {theirs + other: shape})


def _attention(config: ModelConfig, ours: str, layer: str) -> Iterator[Part]:
    E, D, theirs = config.d_model, head_width(config), layer + "self_attn."
    rows = {"q": config.n_heads * D, "k": (config.n_kv_heads or config.n_heads) * D}
    rows |= {"v": rows["k"]}
    order = None if config.rotary_fraction is None else partial(_order, rows, D, int(D * config.rotary_fraction))
    for kind, ends in (("weight", (E,)), ("bias", ())) if has_bias(config, "wq") else (("weight", (E,)),):
        yield Part(f"{ours}qkv.{kind}", {f"{theirs}{x}_proj.{kind}": (n, *ends) for x, n in rows.items()}, order)
        out: Sizes = (E, rows["q"]) if ends else (E,)
        yield Part(f"{ours}out.{kind}", {f"{theirs}o_proj.{kind}": out})


def _order(rows: dict[str, int], width: int, part: int) -> Tensor:
    """Return the order of the rows of q, k and v where `part` of the `width` numbers of a head turn."""
    turned = rows["q"] + rows["k"]
    where = torch.arange(turned + rows["v"])
    return torch.cat((spread(where[:turned], width, part), where[turned:]))


def folded(fields: Fields, parts: Iterable[Part]) -> Iterator[Part]:
    """Yield the parts of a Granite model with its multipliers in the weights."""
    embed, scores, residual, logits = (fields.number(name, 1.0) for name in MULTIPLIERS)
    tied = fields.flag("tie_word_embeddings", False)
    for part in parts:
        if part.ours == EMBED:
            yield part._replace(factor=embed)
        elif part.ours == HEAD:
            table = next(iter(part.theirs.values()))
            yield part._replace(theirs={GRANITE_NAMES.outer.embed: table} if tied else part.theirs, factor=1 / logits)
        elif ".mixer.out." in part.ours or ".mlp.down." in part.ours:
            yield part._replace(factor=residual)
        elif ".mixer.qkv." in part.ours:
            q, k, v = (shape[0] for shape in part.theirs.values())
            width = fields.whole("head_dim", q // fields.whole("num_attention_heads", 32))
            yield part._replace(factor=partial(_first, q, q + k + v, scores * width**0.5))
        else:
            yield part


def _first(few: int, count: int, factor: float) -> Tensor:
    return torch.ones(count).index_fill(0, torch.arange(few), factor)


def write(granite: bool, config: ModelConfig) -> dict[str, Any]:
    """Return the fields of config.json."""
    layer: Any = first_mixer(config, Mamba2, "granitemoehybrid" if granite else "bamba")
    heads, keys, values = layer.matrix
    attends = [i for i, mixer in enumerate(config.mixers) if mixer == "softmax"]
    fields: dict[str, Any] = {
        "hidden_act": "silu",
        "hidden_size": config.d_model,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": config.n_heads,
        "num_key_value_heads": config.n_kv_heads or config.n_heads,
        "head_dim": head_width(config),
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.max_length,
        "rms_norm_eps": config.norm_eps,
        "attention_bias": has_bias(config, "wq"),
        "tie_word_embeddings": config.tie_embeddings,
        "mamba_n_heads": heads,
        "mamba_d_head": values,
        "mamba_d_state": keys,
        "mamba_expand": heads * values // config.d_model,
        "mamba_d_conv": layer.inputs[0] + 1,
        "mamba_n_groups": layer.n_groups,
        "mamba_conv_bias": layer.filter_bias is not None,
        "mamba_proj_bias": layer.proj.bias is not None,
        "time_step_limit": written_limit(layer),
    }
    if not granite:
        turns = write_rotary(config.replace(rotary_fraction=config.rotary_fraction or 1.0))
        sizes = {"intermediate_size": config.hidden, "mlp_bias": has_bias(config, "w1")}
        return fields | turns | sizes | {"attn_layer_indices": attends}
    scores = {"attention_multiplier": head_width(config) ** -0.5, "num_local_experts": 0}
    rotary = {"position_embedding_type": "rope"} | write_rotary(config) if config.positions == "rotary" else {}
    kinds = {"layer_types": [KINDS[mixer][0] for mixer in config.mixers]}
    sizes = {"shared_intermediate_size": config.hidden, "intermediate_size": config.hidden}
    return fields | scores | rotary | kinds | sizes


def _architecture(name: str, model_class: str, granite: bool) -> Architecture:
    names = GRANITE_NAMES if granite else BAMBA_NAMES
    return Architecture(
        name,
        model_class,
        tuple(KINDS),
        names.outer,
        read_granite if granite else read_bamba,
        lambda config: parts(names, config),
        lambda config: write(granite, config),
        IGNORED,
        scaled=folded if granite else None,
    )


BAMBA = _architecture("bamba", "BambaForCausalLM", False)
GRANITE = _architecture("granitemoehybrid", "GraniteMoeHybridForCausalLM", True)
