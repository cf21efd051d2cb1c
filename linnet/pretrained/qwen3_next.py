"""Qwen3-Next and Qwen3.5: gated DeltaNet layers and, every fourth, softmax attention: qwen3_next and qwen3_5_text.

    model.layers.{i}.linear_attn.in_proj_qkvz.weight   for each key head: q [D], k [D], v [R V], z [R V]   (qwen3_next)
                                 in_proj_ba.weight     for each key head: b [R], a [R]
    model.layers.{i}.linear_attn.in_proj_{qkv,z,b,a}.weight                                              (qwen3_5_text)
    model.layers.{i}.self_attn.q_proj.weight           for each head: q [D], output gate [D]

The norms of a layer, of q and of k multiply by 1 + weight, the gated norm of the DeltaNet by its weight. Rotary
positions turn the first quarter of a head. Models with experts are refused: linnet has dense MLPs.
G key heads, H = R G value heads; D key width, V value width
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..layers.positions import turned_width
from ..models.config import ModelConfig
from .architecture import EMBED, HEAD, NORM, Architecture, Outer, Part
from .fields import Fields
from .rope import read_rotary, write_rotary
from .rotary import spread

OUTER = Outer("model.embed_tokens.weight", "model.norm.weight")
LINEAR, FULL = "linear_attention", "full_attention"
KINDS = {LINEAR: "gated_delta", FULL: "softmax"}  # their name of a layer -> ours
MROPE = ("mrope_section", "mrope_interleaved")  # how positions of images are laid out; those of text are equal
OVER = {"num_attention_heads": "n_heads", "head_dim": "head_dim"}  # sizes that options of softmax may replace
QUARTER = 0.25
IGNORED = frozenset(
    {
        "attention_dropout", "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings",
        "moe_intermediate_size", "norm_topk_prob", "num_experts_per_tok", "output_router_logits",
        "router_aux_loss_coef", "shared_expert_intermediate_size",
    }
)  # fmt: skip


def read(name: str, fields: Fields) -> ModelConfig:
    """Return the configuration of a model without experts."""
    fields.only("hidden_act", "silu", "swish")
    layers, longest = fields.layers(48 if name == "qwen3_next" else 32), fields.whole("max_position_embeddings", 32_768)
    mixers = _mixers(fields, layers)
    if name == "qwen3_next":
        _check_dense(fields, layers)
    eps = fields.number("rms_norm_eps", 1e-6)
    delta: dict[str, Any] = {
        "n_heads": fields.whole("linear_num_value_heads", 32),
        "head_dim": fields.whole("linear_value_head_dim", 128),
        "key_dim": fields.whole("linear_key_head_dim", 128),
        "key_heads": fields.whole("linear_num_key_heads", 16),
        "conv": fields.whole("linear_conv_kernel_dim", 4),
        "norm_eps": eps,
    }
    attention: dict[str, Any] = {
        "n_kv_heads": fields.whole("num_key_value_heads", 2 if name == "qwen3_next" else 4),
        "gate": True,
        "qk_norm": True,
        "qk_norm_eps": eps,
        "bias": fields.flag("attention_bias", False),
    }
    options = {"gated_delta": delta, "softmax": attention}
    heads, width = fields.whole("num_attention_heads", 16), fields.whole("head_dim", 256)
    fields.divides("linear_num_key_heads", delta["key_heads"], "linear_num_value_heads", delta["n_heads"])
    fields.divides("num_key_value_heads", attention["n_kv_heads"], "num_attention_heads", heads)
    rotary = read_rotary(fields, longest, partial=QUARTER, notes=MROPE)
    turned_width(width, rotary.get("rotary_fraction"))
    return ModelConfig(
        d_model=fields.whole("hidden_size"),
        d_ff=fields.whole("intermediate_size"),
        n_layers=layers,
        n_heads=heads,
        head_dim=width,
        vocab_size=fields.whole("vocab_size"),
        max_length=longest,
        mixer=_period(mixers),
        mixer_options={kind: options[kind] for kind in dict.fromkeys(mixers)},
        mlp="swiglu",
        norm="rms",
        norm_eps=eps,
        bias=False,
        positions="rotary",
        tie_embeddings=fields.flag("tie_word_embeddings", False),
        **rotary,
    )


def _mixers(fields: Fields, layers: int) -> tuple[str, ...]:
    """Return the mixer of every layer."""
    each = fields.whole("full_attention_interval", 4)
    kinds = fields.raw("layer_types")
    if kinds is None:
        kinds = [LINEAR if (i + 1) % each else FULL for i in range(layers)]
    if not isinstance(kinds, list) or len(kinds) != layers or not all(x in (LINEAR, FULL) for x in kinds):
        raise fields.error("layer_types", kinds, f"{LINEAR!r} or {FULL!r} for each of the {layers} layers")
    return tuple(KINDS[kind] for kind in kinds)


def _period(mixers: tuple[str, ...]) -> tuple[str, ...]:
    """Return the shortest list of mixers that repeats over the layers."""
    lengths = range(1, len(mixers))
    repeats = (n for n in lengths if all(mixers[i] == mixers[i % n] for i in range(len(mixers))))
    return mixers[: next(repeats, len(mixers))]


def _check_dense(fields: Fields, layers: int) -> None:
    """Raise ValueError for a model that has experts in some layer."""
    experts, step = fields.whole("num_experts", 512, 0), fields.whole("decoder_sparse_step", 1)
    dense = fields.raw("mlp_only_layers", [])
    if not isinstance(dense, list):
        raise fields.error("mlp_only_layers", dense, "a list of layers")
    if experts and any(i not in dense and (i + 1) % step == 0 for i in range(layers)):
        raise fields.error("num_experts", experts, "0, or mlp_only_layers for all layers; linnet has no experts")


def parts(name: str, config: ModelConfig) -> Iterator[Part]:
    """Yield every tensor of the model."""
    E, F = config.d_model, config.hidden
    table = (config.vocab_size, E)
    yield Part(EMBED, {OUTER.embed: table})
    yield Part(NORM, {OUTER.norm: (E,)}, shift=1.0)
    if not config.tie_embeddings:
        yield Part(HEAD, {OUTER.head: table})
    for i, mixer in enumerate(config.mixers):
        block, layer = f"backbone.blocks.{i}.", f"model.layers.{i}."
        yield Part(block + "norm1.weight", {layer + "input_layernorm.weight": (E,)}, shift=1.0)
        yield Part(block + "norm2.weight", {layer + "post_attention_layernorm.weight": (E,)}, shift=1.0)
        up = {f"{layer}mlp.{part}_proj.weight": (F, E) for part in ("gate", "up")}
        yield Part(block + "mlp.up.weight", up)
        yield Part(block + "mlp.down.weight", {layer + "mlp.down_proj.weight": (E, F)})
        if mixer == "softmax":
            yield from _attention(config, block + "mixer.", layer + "self_attn.")
        else:
            yield from _delta(name, config, block + "mixer.", layer + "linear_attn.")


def _attention(config: ModelConfig, ours: str, theirs: str) -> Iterator[Part]:
    E, H, D, options = config.d_model, config.n_heads, config.head_dim or 0, config.options_of("softmax")
    K = options["n_kv_heads"]
    turn = partial(_turned, D, turned_width(D, config.rotary_fraction))
    order = partial(_gated_order, H, K, D, turn)
    rows = {"q_proj": 2 * H * D, "k_proj": K * D, "v_proj": K * D}
    yield Part(ours + "qkv.weight", {f"{theirs}{name}.weight": (n, E) for name, n in rows.items()}, order)
    yield Part(ours + "out.weight", {theirs + "o_proj.weight": (E, H * D)})
    for name in ("q_norm.weight", "k_norm.weight"):
        yield Part(ours + name, {theirs + name: (D,)}, turn, shift=1.0)
    if options["bias"]:
        yield Part(ours + "qkv.bias", {f"{theirs}{name}.bias": (n,) for name, n in rows.items()}, order)
        yield Part(ours + "out.bias", {theirs + "o_proj.bias": (E,)})


def _turned(D: int, width: int) -> Tensor:
    return spread(torch.arange(D), D, width)


def _gated_order(H: int, K: int, D: int, turn: Callable[[], Tensor]) -> Tensor:
    """Return the order q, k, v, gate of the rows of q_proj, which has q and gate of each head, k_proj and v_proj."""
    both, k, v = torch.arange(2 * (H + K) * D).split([2 * H * D, K * D, K * D])
    q, gate = both.view(H, 2, D).unbind(1)
    return torch.cat([x.flatten() for x in (q[:, turn()], k.view(K, D)[:, turn()], v, gate)])


def _delta(name: str, config: ModelConfig, ours: str, theirs: str) -> Iterator[Part]:
    E, o = config.d_model, config.options_of("gated_delta")
    H, G, V, D = (o[size] for size in ("n_heads", "key_heads", "head_dim", "key_dim"))
    channels = 2 * G * D + H * V
    rows = {"qkvz": channels + H * V, "ba": 2 * H}
    order: Callable[[], Tensor] | None = partial(_by_key_head, H, G, V, D)
    if name != "qwen3_next":
        rows, order = {"qkv": channels, "b": H, "a": H, "z": H * V}, None
    yield Part(ours + "proj.weight", {f"{theirs}in_proj_{part}.weight": (n, E) for part, n in rows.items()}, order)
    yield Part(ours + "filter", {theirs + "conv1d.weight": (channels, 1, o["conv"])})
    yield Part(ours + "dt_bias", {theirs + "dt_bias": (H,)})
    yield Part(ours + "a_log", {theirs + "A_log": (H,)})
    yield Part(ours + "norm.weight", {theirs + "norm.weight": (V,)})
    yield Part(ours + "out.weight", {theirs + "out_proj.weight": (E, H * V)})


def _by_key_head(H: int, G: int, V: int, D: int) -> Tensor:
    """Return the order q, k, v, b, a, z of the rows of in_proj_qkvz and in_proj_ba, which go key head by key head."""
    R = H // G
    first, second = torch.arange(2 * G * D + 2 * H * V + 2 * H).split([2 * G * D + 2 * H * V, 2 * H])
    q, k, v, z = first.view(G, -1).split([D, D, R * V, R * V], dim=1)
    b, a = second.view(G, -1).split([R, R], dim=1)
    return torch.cat([x.flatten() for x in (q, k, v, b, a, z)])


def write(name: str, config: ModelConfig) -> dict[str, Any]:
    """Return the fields of config.json."""
    theirs = {ours: kind for kind, ours in KINDS.items()}
    heads, width = config.n_heads, config.head_dim or config.d_model // config.n_heads
    fields = {
        "hidden_act": "silu",
        "hidden_size": config.d_model,
        "intermediate_size": config.hidden,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": heads,
        "head_dim": width,
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.max_length,
        "rms_norm_eps": config.norm_eps,
        "tie_word_embeddings": config.tie_embeddings,
        "layer_types": [theirs[mixer] for mixer in config.mixers],
        **write_rotary(config),
    }
    if config.rotary_fraction is None:
        fields["rope_parameters"]["partial_rotary_factor"] = 1.0  # missing, it would be a quarter
    if "softmax" in config.mixers:
        options = config.options_of("softmax")
        bias = config.bias if config.attention_bias is None else config.attention_bias
        fields["num_key_value_heads"] = options.get("n_kv_heads", config.n_kv_heads or heads)
        fields |= {"attention_bias": options.get("bias", bias)}
        fields |= {size: options[key] for size, key in OVER.items() if key in options}
    if "gated_delta" in config.mixers:
        o = config.options_of("gated_delta")
        own, values = o.get("n_heads", heads), o.get("head_dim", width)
        fields |= {"linear_num_value_heads": own, "linear_num_key_heads": o.get("key_heads", own)}
        fields |= {"linear_value_head_dim": values, "linear_key_head_dim": o.get("key_dim", config.key_dim or values)}
        fields |= {"linear_conv_kernel_dim": o.get("conv", 4)}
    return fields | ({"num_experts": 0} if name == "qwen3_next" else {})


def _architecture(name: str, model_class: str) -> Architecture:
    mixers = tuple(KINDS.values())
    return Architecture(
        name, model_class, mixers, OUTER, partial(read, name), partial(parts, name), partial(write, name), IGNORED
    )


QWEN3_NEXT = _architecture("qwen3_next", "Qwen3NextForCausalLM")
QWEN3_5_TEXT = _architecture("qwen3_5_text", "Qwen3_5ForCausalLM")
