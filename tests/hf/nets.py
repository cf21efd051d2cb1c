"""Small language models for the tests of linnet.hf, and the expected tokens by the models' own step."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from linnet.layers import MIXERS
from linnet.models import LanguageModel, ModelConfig, ModelState

N = 31
HYBRID: dict[str, Any] = {"mixer": ("conv", "rebased", "window"), "n_layers": 3, "positions": "rotary"}
PUBLISHED: list[dict[str, Any]] = [  # the options that layers have for the sake of published models
    {
        "mixer": ("gated_delta", "softmax"), "positions": "rotary", "rotary_fraction": 0.5, "head_dim": 8,
        "norm": "rms",
        "mixer_options": {
            "softmax": {"gate": True, "qk_norm": True, "n_kv_heads": 2, "bias": True},
            "gated_delta": {"n_heads": 6, "head_dim": 4, "key_dim": 6, "key_heads": 3, "conv_bias": True},
        },
    },
    {
        "mixer": ("mamba2", "mamba"), "mlp": "none",
        "mixer_options": {
            "mamba2": {"n_groups": 2, "dt_limit": [0.01, None], "conv_bias": False, "key_dim": 5},
            "mamba": {"select_norm_eps": 1e-3, "dt_rank": 3, "expand": 3},
        },
    },
    {
        "mixer": ("rwkv7", "channel_mix"), "mlp": "none", "n_layers": 4, "embed_norm": True,
        "mixer_options": {"rwkv7": {"value_residual": True, "gate_rank": 3}, "channel_mix": {"hidden": 20}},
    },
    {
        "mixer": ("rwkv4", "channel_mix"), "mlp": "none", "n_layers": 4, "rescale_every": 2,
        "mixer_options": {"channel_mix": {"gate": True}},
    },
    {
        "mixer": ("retnet", "gla", "kda"), "n_layers": 3, "rotary_base": 100.0,
        "mixer_options": {"retnet": {"rotary": True, "norm": "rms"}, "gla": {"rank": 3}, "kda": {"rank": 5}},
    },
]  # fmt: skip
VARIANTS: list[dict[str, Any]] = [
    *({"mixer": name} for name in MIXERS),
    *({"positions": kind} for kind in ("learned", "sinusoidal", "rotary")),
    *({"mlp": kind} for kind in ("relu", "swiglu", "identity", "none")),
    {"mixer": ("gated_conv", "softmax", "taylor"), "n_layers": 3, "n_kv_heads": 2, "tie_embeddings": False},
    {"mixer": "rebased", "n_kv_heads": 2, "key_dim": 4, "norm": "rms", "norm_place": "post", "bias": False},
    {"mixer": "favor", "mixer_options": {"favor": {"num_features": 10, "antithetic": True, "seed": 5}}},
    HYBRID,
    *PUBLISHED,
]


def net(dtype: torch.dtype = torch.float64, **fields: Any) -> LanguageModel:
    torch.manual_seed(0)
    given = {"d_model": 24, "n_layers": 2, "n_heads": 4, "vocab_size": N, "init_std": 0.3, "max_length": 300, **fields}
    if "window" in given.get("mixer", ()):
        given["mixer_options"] = {"window": {"window": 4}}
    return LanguageModel(ModelConfig(**given)).to(dtype).eval()


def tokens(rows: int = 2, length: int = 9, seed: int = 1) -> Tensor:
    return torch.randint(N, (rows, length), generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def greedy(model: LanguageModel, prompt: Tensor, new: int) -> tuple[Tensor, ModelState]:
    """Return the prompt with `new` most likely tokens, and the state before the last of them is read."""
    logits, state = model.read(prompt)
    out = prompt
    for i in range(new):
        token = logits.argmax(-1)
        out = torch.cat([out, token[:, None]], dim=1)
        if i < new - 1:
            logits, state = model.step(token, state)
    return out, state


def left_padded(rows: list[Tensor], pad: int) -> tuple[Tensor, Tensor]:
    """Pad rows [T_i] on the left: tokens [B,T] and attention_mask [B,T]."""
    T = max(len(row) for row in rows)
    ids = torch.stack([torch.cat([row.new_full((T - len(row),), pad), row]) for row in rows])
    mask = torch.stack([torch.cat([row.new_zeros(T - len(row)), torch.ones_like(row)]) for row in rows])
    return ids, mask
