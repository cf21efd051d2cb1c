"""Mamba as transformers has it: model_type mamba, and falcon_mamba, which also normalises dt, b and c.

    backbone.layers.{i}.mixer.in_proj.weight [2 E', E]   conv1d.weight [E', 1, K]   x_proj.weight [R + 2 N, E']
    dt_proj.weight [E', R]   dt_proj.bias, D [E']   A_log [E', N]   out_proj.weight [E, E']

E model width, E' = expand * E channels, K taps, R rank of dt, N numbers per channel
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import ceil
from typing import Any

from torch import nn

from ..layers import Mamba
from ..models.config import ModelConfig
from ..models.weights_file import blueprint
from .architecture import Architecture, Outer, Part
from .fields import Fields

OUTER = Outer("backbone.embeddings.weight", "backbone.norm_f.weight")
LAYER, BLOCK = "backbone.layers.{i}.", "backbone.blocks.{i}."
IGNORED = frozenset(  # they choose a kernel, or matter only before training
    {
        "rescale_prenorm_residual", "residual_in_fp32", "time_step_floor", "time_step_init_scheme", "time_step_max",
        "time_step_min", "time_step_scale", "use_associative_scan", "use_falcon_mambapy", "use_mambapy",
    }
    | {"d_inner", "d_model", "fused_add_norm", "n_layer", "pad_vocab_size_multiple"}  # notes of converted checkpoints
)  # fmt: skip


def read(name: str, fields: Fields) -> ModelConfig:
    """Return the configuration of a mamba or a falcon_mamba model."""
    fields.only("hidden_act", "silu", "swish")
    fields.only("rms_norm", True)
    fields.only("ssm_cfg", {})
    width, expand = fields.whole("hidden_size", 768), fields.whole("expand", 2)
    inner = fields.whole("intermediate_size", expand * width)  # the one that counts where both are given
    if inner % width:
        raise fields.error("intermediate_size", inner, f"a multiple of hidden_size, {width}")
    rank = fields.raw("time_step_rank", "auto")
    options: dict[str, Any] = {
        "d_state": fields.whole("state_size", 16),
        "expand": inner // width,
        "kernel_size": fields.whole("conv_kernel", 4),
        "conv_bias": fields.flag("use_conv_bias", True),
        "dt_rank": ceil(width / 16) if rank == "auto" else fields.whole("time_step_rank"),
    }
    if name == "falcon_mamba":
        options["select_norm_eps"] = fields.number("mixer_rms_eps", 1e-6)
    return mamba_config(fields, width, "mamba", options, tied=True, n_heads=1)


def mamba_config(
    fields: Fields, width: int, mixer: str, options: dict[str, Any], *, tied: bool, layers: int = 32, **more: Any
) -> ModelConfig:
    """Return the configuration of a stack of one mixer without MLPs, as mamba and mamba2 have it."""
    return ModelConfig(
        d_model=width,
        n_layers=fields.layers(layers),
        vocab_size=fields.whole("vocab_size"),
        mixer=mixer,
        mixer_options={mixer: options},
        mlp="none",
        norm="rms",
        norm_eps=fields.number("layer_norm_epsilon", 1e-5),
        bias=fields.flag("use_bias", False),
        tie_embeddings=fields.flag("tie_word_embeddings", tied),
        **more,
    )


def parts(config: ModelConfig) -> Iterator[Part]:
    """Yield every tensor of a mamba model."""
    o, E = config.options_of("mamba"), config.d_model
    channels, taps, rank, numbers = o["expand"] * E, o["kernel_size"], o["dt_rank"], o["d_state"]
    mixer: dict[str, tuple[str, tuple[int, ...]]] = {
        "filter": ("conv1d.weight", (channels, 1, taps)),
        "select.weight": ("x_proj.weight", (rank + 2 * numbers, channels)),
        "dt.weight": ("dt_proj.weight", (channels, rank)),
        "dt_bias": ("dt_proj.bias", (channels,)),
        "a_log": ("A_log", (channels, numbers)),
        "skip": ("D", (channels,)),
    }
    mixer |= {"filter_bias": ("conv1d.bias", (channels,))} if o["conv_bias"] else {}
    yield from OUTER.parts(config)
    yield from mamba_layers(config, mixer, 2 * channels, channels)


def mamba_layers(
    config: ModelConfig, mixer: dict[str, tuple[str, tuple[int, ...]]], inner: int, outer: int
) -> Iterator[Part]:
    """Yield the tensors of the layers: `mixer`, the projections in and out, and the norm before them."""
    E = config.d_model
    mixer = mixer | {"proj.weight": ("in_proj.weight", (inner, E)), "out.weight": ("out_proj.weight", (E, outer))}
    if config.bias:
        mixer = mixer | {"proj.bias": ("in_proj.bias", (inner,)), "out.bias": ("out_proj.bias", (E,))}
    for i in range(config.n_layers):
        layer, block = LAYER.format(i=i), BLOCK.format(i=i)
        yield Part(block + "norm1.weight", {layer + "norm.weight": (E,)})
        for ours, (theirs, shape) in mixer.items():
            yield Part(f"{block}mixer.{ours}", {f"{layer}mixer.{theirs}": shape})


def write(name: str, config: ModelConfig) -> dict[str, Any]:
    """Return the fields of config.json, from the first layer as it is built."""
    layer: Any = first_mixer(config, Mamba, name)
    taps, channels = layer.inputs[0] + 1, layer.inputs[1]
    fields = mamba_fields(config, layer) | {
        "state_size": layer.matrix[1],
        "conv_kernel": taps,
        "expand": channels // config.d_model,
        "intermediate_size": channels,
        "time_step_rank": layer.rank,
    }
    return fields | ({"mixer_rms_eps": layer.select_norm_eps} if layer.select_norm_eps is not None else {})


def mamba_fields(config: ModelConfig, layer: Any) -> dict[str, Any]:
    """Return the fields of config.json that mamba and mamba2 have in common."""
    return {
        "hidden_size": config.d_model,
        "num_hidden_layers": config.n_layers,
        "vocab_size": config.vocab_size,
        "hidden_act": "silu",
        "layer_norm_epsilon": config.norm_eps,
        "use_bias": layer.proj.bias is not None,
        "use_conv_bias": layer.filter_bias is not None,
        "tie_word_embeddings": config.tie_embeddings,
    }


def first_mixer(config: ModelConfig, kind: type[nn.Module], name: str) -> nn.Module:
    """Return the first mixer of that class, on the meta device."""
    model: Any = blueprint(config, name)
    for block in model.backbone.layers:
        if isinstance(block.mixer, kind):
            return block.mixer
    raise ValueError(f"mixer is {config.mixer!r}; accepted: {kind.__name__.lower()!r} in one layer or more")


MAMBA, FALCON_MAMBA = (
    Architecture(name, model_class, ("mamba",), OUTER, partial(read, name), parts, partial(write, name), IGNORED)
    for name, model_class in (("mamba", "MambaForCausalLM"), ("falcon_mamba", "FalconMambaForCausalLM"))
)
