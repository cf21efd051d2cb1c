"""Presets: configurations by name, for the papers' networks and for small ones that train on two CPU cores.

    preset("char-small", mixer="softmax")      a preset with fields changed

[1] Katharopoulos et al. 2020, arXiv:2006.16236, sections 4.2 and 4.3    [2] Aksenov et al. 2024, arXiv:2402.10644
[3] Arora et al. 2023, arXiv:2312.04927 (the network of the recall benchmark)
"""

from __future__ import annotations

from typing import Any

from ..errors import unknown
from .config import ModelConfig

# [1] "8 attention layers with 8 heads each", heads of width 32, feed-forward 1024; the CIFAR-10 model has 16 layers.
_IMAGE = ModelConfig(
    task="image", d_model=256, n_layers=8, n_heads=8, d_ff=1024, mlp="relu", norm_place="post", positions="sinusoidal",
    head="mixture", dropout=0.1,
)  # fmt: skip
# [1] 9 layers, 6 heads; the paper gives no width; heads of width 32, as in its image models, make 192.
_SPEECH = ModelConfig(
    task="speech", d_model=192, n_layers=9, n_heads=6, d_ff=768, mlp="relu", norm_place="post", positions="sinusoidal",
    causal=False, dropout=0.1, input_dim=40, vocab_size=42,
)  # fmt: skip
# [2], [3] a convolution, then the mixer under test, no MLP; 12 heads, width 16 for q and k, d_model // 12 for v.
_MQAR = ModelConfig(
    d_model=64, n_layers=2, n_heads=12, head_dim=5, key_dim=16, mixer=("conv", "rebased"), mlp="identity",
    vocab_size=8192, positions="learned", max_length=256, dropout=0.1, bias=False,
)  # fmt: skip
# [2] section 5.3: width 768, 12 heads, 18 layers, every odd one a short convolution; key width 16.
_REBASED_150M = ModelConfig(
    d_model=768, n_layers=18, n_heads=12, key_dim=16, mixer=("gated_conv", "rebased"), mlp="swiglu", d_ff=1536,
    norm="rms", vocab_size=50_257, bias=False, mixer_options={"gated_conv": {"expand": 4}},
)  # fmt: skip
# The convolution before each linear attention sees the last few letters, which attention alone learns slowly.
_CHAR = ModelConfig(d_model=128, n_layers=4, n_heads=4, mixer=("conv", "elu"), positions="rotary")
# The convolution sees two days of hourly values: forecasts depend on single lags, which a sum over the past blurs.
_STREAM = ModelConfig(
    task="forecast", d_model=64, n_layers=2, n_heads=4, mixer=("conv", "elu"), input_dim=1, output_dim=1,
    mixer_options={"conv": {"kernel_size": 48}},
)  # fmt: skip

PRESETS: dict[str, ModelConfig] = {
    "char-small": _CHAR,
    "char-6x256": _CHAR.replace(d_model=256, n_layers=6, n_heads=8, mixer="elu"),
    "mnist": _IMAGE,
    "cifar10": _IMAGE.replace(n_layers=16),
    "digits": _IMAGE.replace(
        d_model=64, n_layers=3, n_heads=4, d_ff=None, vocab_size=17, head="categorical", dropout=0.0
    ),
    "speech": _SPEECH,
    "speech-small": _SPEECH.replace(d_model=96, n_layers=3, n_heads=6, d_ff=384, norm_place="pre"),
    "speech-bilstm": _SPEECH.replace(mixer="bilstm", d_model=320, n_layers=3),
    "mqar": _MQAR,
    "rebased-150m": _REBASED_150M,
    "stream-small": _STREAM,
}


def preset(name: str, **changes: Any) -> ModelConfig:
    """Return the configuration of that name, with `changes` to its fields."""
    if name not in PRESETS:
        raise unknown("preset", name, PRESETS)
    return PRESETS[name].replace(**changes)
