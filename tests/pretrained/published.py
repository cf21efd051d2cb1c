"""Tiny random models of published architectures, as transformers writes them, for the tests of their converters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from safetensors.torch import load_file

VOCAB = 50
HYBRID = {
    "mamba_n_heads": 6, "mamba_d_head": 8, "mamba_d_state": 5, "mamba_chunk_size": 8, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "num_hidden_layers": 3,
}  # fmt: skip
BAMBA = {**HYBRID, "intermediate_size": 40}
GRANITE = {**HYBRID, "shared_intermediate_size": 40, "num_local_experts": 0}
GRANITE |= {"layer_types": ["mamba", "attention", "mamba"]}
SCALES = {"embedding_multiplier": 0.5, "attention_multiplier": 0.5, "residual_multiplier": 2.0, "logits_scaling": 4.0}
COMMON: dict[str, Any] = {"vocab_size": VOCAB, "hidden_size": 24, "num_hidden_layers": 2}
TWO = {"num_heads": 6, "head_dim": 8, "state_size": 5, "chunk_size": 8}
QWEN = {
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 40,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 12,
}  # fmt: skip
BIASED = {"use_bias": True, "use_conv_bias": False}

# name of the case -> model_type, class of transformers, fields of its config besides COMMON
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "mamba": ("mamba", {}),
    "mamba, biases and rank": ("mamba", {**BIASED, "time_step_rank": 3, "state_size": 5, "conv_kernel": 3}),
    "mamba, untied and wider": ("mamba", {"tie_word_embeddings": False, "expand": 3, "layer_norm_epsilon": 1e-2}),
    "falcon_mamba": ("falcon_mamba", {"mixer_rms_eps": 1e-2}),
    "falcon_mamba, biases and rank": ("falcon_mamba", {**BIASED, "time_step_rank": 3, "state_size": 5}),
    "mamba2": ("mamba2", {**TWO, "n_groups": 1}),
    "mamba2, groups": ("mamba2", {**TWO, **BIASED, "n_groups": 2, "layer_norm_epsilon": 1e-2}),
    "mamba2, limits, tied": (
        "mamba2", {**TWO, "n_groups": 3, "time_step_limit": (0.05, 0.4), "tie_word_embeddings": True},
    ),
    "qwen3_next": ("qwen3_next", {**QWEN, "num_experts": 0}),
    "qwen3_next, biases, layers, wide": (
        "qwen3_next",
        {
            **QWEN, "layer_types": ["full_attention", "linear_attention", "linear_attention"], "attention_bias": True,
            "mlp_only_layers": [0, 1, 2], "partial_rotary_factor": 0.5,
            "linear_conv_kernel_dim": 3, "linear_num_key_heads": 1, "rms_norm_eps": 1e-2, "num_hidden_layers": 3,
        },
    ),
    "qwen3_next, yarn": (
        "qwen3_next",
        {
            **QWEN, "num_experts": 0,
            "rope_parameters": {
                "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 100.0,
                "partial_rotary_factor": 0.5,
            },
        },
    ),
    "qwen3_5_text": ("qwen3_5_text", {**QWEN, "rope_parameters": {"rope_type": "default", "rope_theta": 100.0}}),
    "rwkv": ("rwkv", {"num_hidden_layers": 5, "rescale_every": 2, "attention_hidden_size": 24}),
    "rwkv, not rescaled": ("rwkv", {"rescale_every": 0, "intermediate_size": 37}),
    "bamba": ("bamba", {**BAMBA, "attn_layer_indices": [1]}),
    "bamba, groups, biases, another fraction": (
        "bamba",
        {
            **BAMBA, "attn_layer_indices": [0, 2], "mamba_n_groups": 2, "mamba_proj_bias": True, "mlp_bias": True,
            "attention_bias": True, "mamba_conv_bias": False, "tie_word_embeddings": True,
            "rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.25},
        },
    ),
    "bamba, without attention": ("bamba", {**BAMBA, "use_cache": False}),  # transformers has no cache for it
    "granite": ("granitemoehybrid", GRANITE),
    "granite, multipliers, tied": ("granitemoehybrid", {**GRANITE, **SCALES, "tie_word_embeddings": True}),
    "granite, rotary, groups": (
        "granitemoehybrid", {**GRANITE, **SCALES, "position_embedding_type": "rope", "mamba_n_groups": 3},
    ),
}  # fmt: skip


def make(transformers: ModuleType, case: str) -> Any:
    """Return the model of transformers, its weights large and away from zeros and ones, where a mistake could hide.

    They are multiples of 2^-10, as the fields that scale them are powers of two, so that what a converter does to them
    is exact: the results in float64 agree to rounding, and the way back gives the same bits.
    """
    model_type, fields = CASES[case]
    config = transformers.AutoConfig.for_model(model_type, **COMMON | fields)
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    for name, parameter in model.named_parameters():
        matrix = name.endswith(("proj.weight", "linear.weight"))
        drawn = (4 if matrix else 1) * parameter.data.nan_to_num() + 0.1 * torch.randn_like(parameter)
        parameter.data = (drawn * 2**10).round() / 2**10
    return model


@contextmanager
def wide() -> Iterator[None]:
    """Let code that asks for float32 by name, as that of transformers does for norms and states, have float64."""
    kept = torch.Tensor.float, torch.float32, torch.float
    torch.Tensor.float, torch.float32, torch.float = torch.Tensor.double, torch.float64, torch.float64
    try:
        yield
    finally:
        torch.Tensor.float, torch.float32, torch.float = kept


def logits_in_float64(model: Any, folder: Path, tokens: torch.Tensor) -> torch.Tensor:
    """Return the logits of a model of transformers with the weights of a folder, in float64 from the embedding on."""
    weights = load_file(folder / "model.safetensors")  # without a tied head
    with wide(), torch.no_grad():
        twin = type(model)(model.config).double().eval()
        twin.load_state_dict(weights, strict=False)
        logits: torch.Tensor = twin(tokens, use_cache=False).logits
        return logits


def write(model: Any, folder: Path, **changes: Any) -> Path:
    """Save a model of transformers, with changed fields in its config.json; None removes a field."""
    model.save_pretrained(folder)
    values = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps({k: v for k, v in values.items() if v is not None}))
    return folder
