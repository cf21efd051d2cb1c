"""RWKV-7 in the layout of flash-linear-attention, as its weights are published for transformers: model_type rwkv7.

    model.embeddings.weight [N,E]   model.layers.0.pre_norm   model.norm   lm_head.weight
    model.layers.{i}.attn_norm, ffn_norm   attn.x_{r,w,k,v,a,g} [1,1,E]   attn.{r,k,v,o}_proj.weight [E,E]
                     attn.{w,a,g,v}_lora.lora.{0,2}.weight [rank,E], [E,rank]   attn.k_k, k_a [E]   attn.r_k [H,D]
                     attn.g_norm [E]   ffn.x_k [E]   ffn.key.weight [F,E]   ffn.value.weight [E,F]

A block is two layers here, time mixing and channel mixing. The first layer has no v_lora: its values are those that the
others mix in. The equations are checked against a second implementation in the tests, not against that library.
E model width, H heads, D head width, F hidden width, N vocabulary
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..models.config import MOST, ModelConfig
from .architecture import Architecture, Outer, Part
from .fields import Fields
from .rwkv import check_pairs, layer_norm

OUTER = Outer("model.embeddings.weight", "model.norm.weight")
RANKS = {"decay": "w", "rate": "a", "gate": "g", "value": "v"}  # our name of a small network -> theirs
IGNORED = frozenset(
    {
        "attn_mode", "fuse_cross_entropy", "fuse_linear_cross_entropy", "fuse_norm", "max_position_embeddings",
        "num_heads",  # follows from head_dim, which counts
        "use_l2warp",
    }
)  # fmt: skip


def read(fields: Fields) -> ModelConfig:
    """Return the configuration of an rwkv7 model without attention layers."""
    fields.only("hidden_act", "sqrelu")
    fields.only("norm_bias", True)
    if (attention := fields.raw("attn")) is not None:
        raise fields.error("attn", attention, "null; linnet has no attention layers in this kind of model")
    E, D, layers = fields.whole("hidden_size"), fields.whole("head_dim"), fields.layers()
    fields.divides("head_dim", D, "hidden_size", E)
    if (values := fields.raw("value_dim", E)) not in (E, [E] * layers):
        raise fields.error("value_dim", values, f"{E}, that of hidden_size, for every layer")
    ratio, eps = fields.number("hidden_ratio", 4.0, null=True), fields.number("norm_eps", 1e-5)
    usual = 32 * ((int(min(E * ratio, MOST)) + 31) // 32)
    hidden = fields.whole("intermediate_size", usual, null=True)
    names = {"decay": "decay", "gate": "gate", "rate": "a", "value": "v"}
    time: dict[str, Any] = {f"{ours}_rank": fields.whole(f"{theirs}_low_rank_dim") for ours, theirs in names.items()}
    time |= {"value_residual": True, "norm_eps": D * eps}
    return ModelConfig(
        d_model=E,
        n_layers=2 * layers,
        n_heads=E // D,
        vocab_size=fields.whole("vocab_size"),
        mixer=("rwkv7", "channel_mix"),
        mixer_options={"rwkv7": time, "channel_mix": {"hidden": hidden}},
        mlp="none",
        norm="layer",
        norm_eps=eps,
        embed_norm=True if fields.flag("norm_first", True) else None,
        bias=False,
        tie_embeddings=fields.flag("tie_word_embeddings", False),
    )


def parts(config: ModelConfig) -> Iterator[Part]:
    """Yield every tensor of the model."""
    yield from OUTER.parts(config)
    yield Part("backbone.norm.bias", {"model.norm.bias": (config.d_model,)})
    if config.embed_norm:
        yield from layer_norm("backbone.first_norm", "model.layers.0.pre_norm", config.d_model)
    for i in range(config.n_layers // 2):
        theirs, time, channel = f"model.layers.{i}.", f"backbone.blocks.{2 * i}.", f"backbone.blocks.{2 * i + 1}."
        yield from layer_norm(time + "norm1", theirs + "attn_norm", config.d_model)
        yield from layer_norm(channel + "norm1", theirs + "ffn_norm", config.d_model)
        yield from _time(config, time + "mixer.", theirs + "attn.", first=i == 0)
        yield from _channel(config, channel + "mixer.", theirs + "ffn.")


def _time(config: ModelConfig, ours: str, theirs: str, *, first: bool) -> Iterator[Part]:
    E, options = config.d_model, config.options_of("rwkv7")
    yield Part(ours + "shift", {f"{theirs}x_{name}": (1, 1, E) for name in "rkvwag"})
    for mine, name in (("r", "r"), ("k", "k"), ("v", "v"), ("out", "o")):
        yield Part(f"{ours}{mine}.weight", {f"{theirs}{name}_proj.weight": (E, E)})
    for mine, name in RANKS.items():
        if mine == "value" and first:
            continue
        rank, lora = options[f"{mine}_rank"], f"{theirs}{name}_lora.lora."
        yield Part(f"{ours}{mine}_in.weight", {lora + "0.weight": (rank, E)})
        yield Part(f"{ours}{mine}_out.weight", {lora + "2.weight": (E, rank)})
        if mine != "gate":
            yield Part(f"{ours}{mine}_bias", {lora + "2.bias": (E,)})
    for mine, name in (("remove", "k_k"), ("replace", "k_a")):
        yield Part(ours + mine, {theirs + name: (E,)})
    yield Part(ours + "bonus", {theirs + "r_k": (config.n_heads, E // config.n_heads)})
    for name in ("weight", "bias"):
        yield Part(f"{ours}norm_{name}", {f"{theirs}g_norm.{name}": (E,)})


def _channel(config: ModelConfig, ours: str, theirs: str) -> Iterator[Part]:
    E, F = config.d_model, config.options_of("channel_mix")["hidden"]
    yield Part(ours + "shift_k", {theirs + "x_k": (E,)})
    yield Part(ours + "k.weight", {theirs + "key.weight": (F, E)})
    yield Part(ours + "out.weight", {theirs + "value.weight": (E, F)})


def write(config: ModelConfig) -> dict[str, Any]:
    """Return the fields of config.json."""
    check_pairs("rwkv7", "rwkv7", config)
    options, E = config.options_of("rwkv7"), config.d_model
    rank = options.get("rank", 32)
    return {
        "hidden_act": "sqrelu",
        "hidden_size": E,
        "head_dim": E // config.n_heads,
        "num_hidden_layers": config.n_layers // 2,
        "intermediate_size": config.options_of("channel_mix").get("hidden", 4 * E),
        "decay_low_rank_dim": options.get("decay_rank", rank),
        "a_low_rank_dim": options.get("rate_rank", rank),
        "gate_low_rank_dim": options.get("gate_rank", rank),
        "v_low_rank_dim": options.get("value_rank", rank),
        "norm_first": bool(config.embed_norm),
        "norm_bias": True,
        "norm_eps": config.norm_eps,
        "vocab_size": config.vocab_size,
        "tie_word_embeddings": config.tie_embeddings,
    }


RWKV7 = Architecture("rwkv7", "RWKV7ForCausalLM", ("rwkv7", "channel_mix"), OUTER, read, parts, write, IGNORED)
