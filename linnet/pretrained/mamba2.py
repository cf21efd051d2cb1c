"""Mamba-2 as transformers has it: model_type mamba2. bamba.py combines the same layer with attention.

    backbone.layers.{i}.mixer.in_proj.weight [2 H V + 2 G N + H, E]   conv1d.weight [C, 1, K]   out_proj.weight [E, H V]
    A_log, D, dt_bias [H]   norm.weight [H V]

The norm is over each group apart; `chunk_size` changes only how it is computed.
E model width, H heads, V head width, G groups, N state size, C = H V + 2 G N channels, K taps
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any

from ..layers import Mamba2
from ..models.config import ModelConfig
from .architecture import Architecture, Part
from .fields import Fields
from .mamba import IGNORED, OUTER, first_mixer, mamba_config, mamba_fields, mamba_layers


def read(fields: Fields) -> ModelConfig:
    """Return the configuration of a mamba2 model."""
    fields.only("hidden_act", "silu", "swish")
    fields.only("rms_norm", True)
    width, expand = fields.whole("hidden_size", 4096), fields.whole("expand", 2)
    heads, head = fields.whole("num_heads", 128), fields.whole("head_dim", 64)
    check_widths(fields, "num_heads * head_dim", heads * head, "expand * hidden_size", expand * width)
    fields.derived("intermediate_size", expand * width)
    options: dict[str, Any] = {
        "kernel_size": fields.whole("conv_kernel", 4),
        "n_groups": fields.whole("n_groups", 8),
        "conv_bias": fields.flag("use_conv_bias", True),
        "norm_eps": fields.number("layer_norm_epsilon", 1e-5),
        "dt_limit": step_limit(fields),
    }
    fields.divides("n_groups", options["n_groups"], "num_heads", heads)
    sizes = {"n_heads": heads, "head_dim": head, "key_dim": fields.whole("state_size", 128)}
    return mamba_config(fields, width, "mamba2", options, tied=False, layers=64, **sizes)


def check_widths(fields: Fields, name: str, heads: int, other: str, width: int) -> None:
    if heads != width:
        raise ValueError(f"{fields.where}: {name} is {heads}, and {other} is {width}; accepted: the same")


def step_limit(fields: Fields) -> list[float | None] | None:
    """Return the option dt_limit; JSON has no infinity, so None stands for it."""
    least, most = fields.limits("time_step_limit")
    if (least, most) == (0.0, inf):
        return None
    return [least, None if most == inf else most]


def parts(config: ModelConfig) -> Iterator[Part]:
    """Yield every tensor of a mamba2 model."""
    yield from OUTER.parts(config)
    mixer, inner, outer = mixer_shapes(config)
    yield from mamba_layers(config, mixer, inner, outer)


def mixer_shapes(config: ModelConfig) -> tuple[dict[str, tuple[str, tuple[int, ...]]], int, int]:
    """Return our names -> theirs and their shapes, except the projections, and the widths of these."""
    o = config.options_of("mamba2")
    heads, values, keys = (int(o.get(name) or getattr(config, name)) for name in ("n_heads", "head_dim", "key_dim"))
    width, groups = heads * values, 2 * o["n_groups"] * keys
    mixer: dict[str, tuple[str, tuple[int, ...]]] = {
        "filter": ("conv1d.weight", (width + groups, 1, o["kernel_size"])),
        "dt_bias": ("dt_bias", (heads,)),
        "a_log": ("A_log", (heads,)),
        "skip": ("D", (heads,)),
        "norm.weight": ("norm.weight", (width,)),
    }
    mixer |= {"filter_bias": ("conv1d.bias", (width + groups,))} if o["conv_bias"] else {}
    return mixer, 2 * width + groups + heads, width


def write(config: ModelConfig) -> dict[str, Any]:
    """Return the fields of config.json, from the first layer as it is built."""
    layer: Any = first_mixer(config, Mamba2, "mamba2")
    heads, keys, values = layer.matrix
    return mamba_fields(config, layer) | {
        "num_heads": heads,
        "head_dim": values,
        "state_size": keys,
        "expand": heads * values // config.d_model,
        "conv_kernel": layer.inputs[0] + 1,
        "n_groups": layer.n_groups,
        "time_step_limit": written_limit(layer),
    }


def written_limit(layer: Any) -> list[Any]:
    """Return time_step_limit as transformers writes it."""
    least, most = layer.dt_limit or (0.0, inf)
    return [least, {"__float__": "Infinity"} if most == inf else most]


UNUSED = frozenset({"chunk_size", "norm_before_gate", "time_step_rank"})  # transformers computes the same for any
MAMBA2 = Architecture("mamba2", "Mamba2ForCausalLM", ("mamba2",), OUTER, read, parts, write, IGNORED | UNUSED)
