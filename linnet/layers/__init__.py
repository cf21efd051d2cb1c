"""Layers: modules with parameters around the ops, built from keyword arguments, never from a ModelConfig.

    mixer = build_mixer("rebased", d_model=256, n_heads=8)         any name in MIXERS
    y, state = mixer(x, state);   y, state = mixer.step(x, state)  the interface of every mixer

The name of a mixer is that of a feature map (for linear attention with it), or one of those below.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..errors import unknown, whole
from ..feature_maps import FEATURE_MAPS
from .attention import Attention as Attention
from .attention import LinearAttention as LinearAttention
from .attention import SoftmaxAttention as SoftmaxAttention
from .attention import WindowAttention as WindowAttention
from .block import Block as Block
from .channel_mix import ChannelMix as ChannelMix
from .cross_attention import CrossAttention as CrossAttention
from .decay import GLA as GLA
from .decay import RetNet as RetNet
from .delta import KDA as KDA
from .delta import Delta as Delta
from .delta import GatedDelta as GatedDelta
from .lsh import LSHAttention as LSHAttention
from .mamba import Mamba as Mamba
from .mamba2 import Mamba2 as Mamba2
from .matrix import MatrixMixer as MatrixMixer
from .mixer import Mixer as Mixer
from .mixer import attention_map as attention_map
from .mlp import MLPS as MLPS
from .mlp import build_mlp as build_mlp
from .norm import NORMS as NORMS
from .norm import build_norm as build_norm
from .positions import LearnedPositions as LearnedPositions
from .positions import SinusoidalPositions as SinusoidalPositions
from .rwkv import RWKV4 as RWKV4
from .rwkv import RWKV7 as RWKV7
from .short_conv import BaseConv as BaseConv
from .short_conv import GatedConv as GatedConv
from .short_conv import Shift as Shift

CONVOLUTIONS: dict[str, type[Mixer]] = {
    "conv": BaseConv,
    "gated_conv": GatedConv,
    "shift": Shift,
    "channel_mix": ChannelMix,
}
RECURRENT_MIXERS: dict[str, Callable[..., MatrixMixer]] = {
    "retnet": RetNet,
    "gla": GLA,
    "mamba2": Mamba2,
    "delta": Delta,
    "gated_delta": GatedDelta,
    "kda": KDA,
    "mamba": Mamba,
    "rwkv4": RWKV4,
    "rwkv7": RWKV7,
}
MIXERS = (*FEATURE_MAPS, "softmax", "window", "lsh", *RECURRENT_MIXERS, *CONVOLUTIONS)
SIZES = ("n_kv_heads", "head_dim", "key_dim")
OF_ATTENTION = ("gate", "qk_norm", "qk_norm_eps")  # options of all attention layers; the others of a feature map
CAUSAL_ONLY = ("window", *RECURRENT_MIXERS)  # not for bidirectional models


def build_mixer(
    name: str,
    *,
    d_model: int,
    n_heads: int,
    options: Mapping[str, Any] | None = None,
    first: bool = True,
    **attention: Any,
) -> Mixer:
    """Build a mixer by name; `options` are its own, `attention` those of every attention layer (see Attention).

    Options named as a size (SIZES) replace that size for this mixer, where layers of one model differ in theirs, and so
    does `bias`, which is also an option of feature maps. `first`: no earlier layer of the model has this
    mixer.
    """
    options = dict(options or {})
    if name not in MIXERS:
        raise unknown("mixer", name, MIXERS)
    if name in CONVOLUTIONS:
        return CONVOLUTIONS[name](d_model, **options)
    n_heads = options.pop("n_heads", n_heads)
    attention |= {size: options.pop(size) for size in SIZES if size in options}
    for size, value in (("n_heads", n_heads), *((size, attention.get(size)) for size in SIZES)):
        if value is not None:
            whole(size, value, 1)
    if name not in FEATURE_MAPS and "bias" in options:
        attention["bias"] = options.pop("bias")
    if name in RECURRENT_MIXERS:
        turned = options.get("rotary")  # the others have the order of tokens in their rule
        sizes = {key: value for key, value in attention.items() if not key.startswith("rotary_") or turned}
        sizes.pop("rotary", None)
        if name == "rwkv7":
            sizes["first"] = first
        return RECURRENT_MIXERS[name](d_model, n_heads, **sizes, **options)
    if name == "softmax":
        return SoftmaxAttention(d_model, n_heads, **attention, **options)
    if name == "window":
        return WindowAttention(d_model, n_heads, **attention, **{"window": 64, **options})
    if name == "lsh":
        return LSHAttention(d_model, n_heads, **attention, **options)
    attention |= {option: options.pop(option) for option in OF_ATTENTION if option in options}
    return LinearAttention(d_model, n_heads, feature_map=name, options=options, **attention)
