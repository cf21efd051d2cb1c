"""Small models of every kind that can be stepped, and the engines that can run them here."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from linnet.errors import BackendError
from linnet.generate import Engine, TorchEngine, open_engine
from linnet.models import LanguageModel, ModelConfig, build

VOCAB, LENGTH = 29, 200  # LENGTH: of learned positions
TOLERANCE = {torch.float64: {"rtol": 1e-10, "atol": 1e-10}, torch.float32: {"rtol": 2e-5, "atol": 3e-5}}
# Measured in float32: 1e-6 of the largest logit; 3e-4 with squares, where one near zero is a difference of features.
SQUARES = {"rtol": 2e-3, "atol": 2e-3}

WINDOW = {"window": {"window": 3}}
KINDS: dict[str, dict[str, Any]] = {
    "elu": {"mixer": "elu", "positions": "rotary"},
    "rebased": {"mixer": "rebased", "key_dim": 4, "positions": "learned"},
    "taylor": {"mixer": "taylor", "key_dim": 4, "mlp": "swiglu", "norm": "rms"},
    "softmax": {"mixer": "softmax", "positions": "rotary"},
    "window": {"mixer": "window", "mixer_options": WINDOW, "positions": "sinusoidal"},
    "conv": {"mixer": "conv", "d_model": 24, "tie_embeddings": False},
    "gated conv and elu": {"mixer": ("gated_conv", "elu"), "norm_place": "post", "positions": "sinusoidal"},
    "conv, window and rebased": {
        "mixer": ("conv", "window", "rebased"), "n_layers": 3, "key_dim": 4, "mixer_options": WINDOW,
        "positions": "rotary",
    },
    "grouped elu and softmax": {
        "mixer": ("elu", "softmax"), "d_model": 32, "n_heads": 4, "n_kv_heads": 2, "positions": "rotary",
    },
    "retnet, gla and mamba2": {"mixer": ("retnet", "gla", "mamba2"), "n_layers": 3, "mlp": "swiglu"},
    "delta rules": {"mixer": ("delta", "gated_delta", "kda"), "n_layers": 3, "key_dim": 4, "positions": "rotary"},
    "mamba and rwkv": {
        "mixer": ("mamba", "rwkv4", "rwkv7"), "n_layers": 3, "norm_place": "post",
        "mixer_options": {"mamba": {"dt_rank": 5}},
    },
    "grouped rebased": {"mixer": "rebased", "d_model": 32, "n_heads": 4, "n_kv_heads": 1, "bias": False},
}  # fmt: skip


@cache
def language(kind: str, dtype: torch.dtype = torch.float64) -> LanguageModel:
    """Return a model of that kind, with weights large enough that a mistake shows."""
    torch.manual_seed(0)
    shape = {"d_model": 16, "n_layers": 2, "n_heads": 2, "init_std": 0.2, "vocab_size": VOCAB, "max_length": LENGTH}
    model = build(ModelConfig(**{**shape, **KINDS[kind]})).to(dtype).eval()
    assert isinstance(model, LanguageModel)
    return model.requires_grad_(False)


def close(kind: str, dtype: torch.dtype) -> dict[str, float]:
    """Return the tolerance for outputs of that model."""
    return SQUARES if "rebased" in kind and dtype == torch.float32 else TOLERANCE[dtype]


def opened(model: Any, backend: str) -> Engine:
    """Open an engine on that backend, or skip with the reason."""
    try:
        engine = open_engine(model, backend=backend)
    except BackendError as error:
        pytest.skip(str(error))
    if backend == "native" and isinstance(engine, TorchEngine):
        pytest.skip("there is no native engine here")
    return engine


ENGINES = [("torch", torch.float64), ("torch", torch.float32), ("native", torch.float32)]
everywhere = pytest.mark.parametrize(("backend", "dtype"), ENGINES, ids=lambda x: str(x).removeprefix("torch."))


def tokens(count: int, seed: int = 0) -> Tensor:
    """Return [count] tokens of the vocabulary."""
    return torch.randint(VOCAB, (count,), generator=torch.Generator().manual_seed(seed))


def unsplit(model: LanguageModel, sequence: Tensor | list[int]) -> Tensor:
    """Return the logits after every token, [T,N], by one call of the model."""
    return model(torch.as_tensor(sequence)[None])[0][0]
