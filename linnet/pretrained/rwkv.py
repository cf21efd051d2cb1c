"""RWKV-4 as transformers has it: model_type rwkv.

    rwkv.embeddings.weight [N,E]   rwkv.blocks.0.pre_ln   rwkv.ln_out   head.weight
    rwkv.blocks.{i}.ln1, ln2   attention.{time_decay, time_first} [E]   {attention, feed_forward}.time_mix_* [1,1,E]

A block is two layers here, time mixing and channel mixing. Their time_mix is the share of the token itself, ours that
of the token before it. transformers divides the residual path, and what is added to it, by two every `rescale_every`
blocks at inference, which is ModelConfig.rescale_every.
E model width, N vocabulary
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..errors import brief
from ..models.config import ModelConfig
from .architecture import Architecture, Outer, Part
from .fields import Fields

OUTER = Outer("rwkv.embeddings.weight", "rwkv.ln_out.weight", "head.weight")
EPS = 1e-5  # of ln_out, which has no field
BLOCK = "rwkv.blocks.{i}."
IGNORED = frozenset({"context_length", "max_position_embeddings", "use_cache"})  # a recurrence has no longest context


def read(fields: Fields) -> ModelConfig:
    """Return the configuration of an rwkv model."""
    width, layers = fields.whole("hidden_size", 4096), fields.layers(32)
    fields.derived("attention_hidden_size", width)
    if fields.number("layer_norm_epsilon", EPS) != EPS:
        raise fields.error("layer_norm_epsilon", fields.raw("layer_norm_epsilon"), f"{EPS}, as ln_out has it")
    every = fields.raw("rescale_every", 6)
    if isinstance(every, bool) or not isinstance(every, int):
        raise fields.error("rescale_every", every, "a whole number, 0 for never")
    return ModelConfig(
        d_model=width,
        n_layers=2 * layers,
        n_heads=1,
        vocab_size=fields.whole("vocab_size", 50_277),
        mixer=("rwkv4", "channel_mix"),
        mixer_options={
            "channel_mix": {"hidden": fields.whole("intermediate_size", 4 * width, null=True), "gate": True}
        },
        mlp="none",
        norm="layer",
        norm_eps=EPS,
        embed_norm=True,
        rescale_every=2 * every if every > 0 else None,
        bias=False,
        tie_embeddings=fields.flag("tie_word_embeddings", False),
    )


def parts(config: ModelConfig) -> Iterator[Part]:
    """Yield every tensor of the model."""
    E, F = config.d_model, config.options_of("channel_mix")["hidden"]
    yield from OUTER.parts(config)
    yield Part("backbone.norm.bias", {"rwkv.ln_out.bias": (E,)})
    yield from layer_norm("backbone.first_norm", BLOCK.format(i=0) + "pre_ln", E)
    for i in range(config.n_layers // 2):
        block, time, channel = BLOCK.format(i=i), f"backbone.blocks.{2 * i}.", f"backbone.blocks.{2 * i + 1}."
        yield from layer_norm(time + "norm1", block + "ln1", E)
        yield from layer_norm(channel + "norm1", block + "ln2", E)
        yield Part(time + "mixer.decay", {block + "attention.time_decay": (E,)})
        yield Part(time + "mixer.bonus", {block + "attention.time_first": (E,)})
        yield from _half(time, block + "attention.", {"k": "key", "v": "value", "r": "receptance"}, "output", (E, E, E))
        yield from _half(channel, block + "feed_forward.", {"k": "key", "r": "receptance"}, "value", (E, F, E))


def layer_norm(ours: str, theirs: str, width: int) -> Iterator[Part]:
    """Yield weight and bias of a norm."""
    for name in ("weight", "bias"):
        yield Part(f"{ours}.{name}", {f"{theirs}.{name}": (width,)})


def _half(ours: str, theirs: str, inputs: dict[str, str], out: str, sizes: tuple[int, int, int]) -> Iterator[Part]:
    """Yield mixtures and matrices of half a block; sizes: the model, the input of the last matrix, and r."""
    E, F, R = sizes
    for name, full in inputs.items():
        rows = R if name == "r" else F
        yield Part(f"{ours}mixer.shift_{name}", {f"{theirs}time_mix_{full}": (1, 1, E)}, factor=-1.0, shift=1.0)
        yield Part(f"{ours}mixer.{name}.weight", {f"{theirs}{full}.weight": (rows, E)})
    yield Part(f"{ours}mixer.out.weight", {f"{theirs}{out}.weight": (E, F)})


def write(config: ModelConfig) -> dict[str, Any]:
    """Return the fields of config.json."""
    check_pairs("rwkv", "rwkv4", config)
    if (config.rescale_every or 0) % 2:
        raise ValueError(f"rescale_every is {config.rescale_every}; accepted: an even number; a block is two layers")
    return {
        "hidden_size": config.d_model,
        "attention_hidden_size": config.d_model,
        "intermediate_size": config.options_of("channel_mix").get("hidden", 4 * config.d_model),
        "num_hidden_layers": config.n_layers // 2,
        "vocab_size": config.vocab_size,
        "layer_norm_epsilon": EPS,
        "rescale_every": (config.rescale_every or 0) // 2,
        "tie_word_embeddings": config.tie_embeddings,
    }


def check_pairs(name: str, time: str, config: ModelConfig) -> None:
    """Raise ValueError unless the layers are time mixing and channel mixing in turn."""
    if config.mixers != (time, "channel_mix") * (config.n_layers // 2):
        accepted = f"({time!r}, 'channel_mix') in turn"
        raise ValueError(f"mixer is {brief(config.mixer)} in {config.n_layers} layers; accepted: {accepted}")


RWKV = Architecture("rwkv", "RwkvForCausalLM", ("rwkv4", "channel_mix"), OUTER, read, parts, write, IGNORED)
