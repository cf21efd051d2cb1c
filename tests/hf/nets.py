"""Small language models for the tests of linnet.hf, and the expected tokens by the models' own step."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from linnet.layers import MIXERS
from linnet.models import LanguageModel, ModelConfig, ModelState

N = 31
HYBRID: dict[str, Any] = {"mixer": ("conv", "rebased", "window"), "n_layers": 3, "positions": "rotary"}
VARIANTS: list[dict[str, Any]] = [
    *({"mixer": name} for name in MIXERS),
    *({"positions": kind} for kind in ("learned", "sinusoidal", "rotary")),
    *({"mlp": kind} for kind in ("relu", "swiglu", "identity", "none")),
    {"mixer": ("gated_conv", "softmax", "taylor"), "n_layers": 3, "n_kv_heads": 2, "tie_embeddings": False},
    {"mixer": "rebased", "n_kv_heads": 2, "key_dim": 4, "norm": "rms", "norm_place": "post", "bias": False},
    {"mixer": "favor", "mixer_options": {"favor": {"num_features": 10, "antithetic": True, "seed": 5}}},
    HYBRID,
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
