"""Folders next to published models: another computation, size or tensor is refused by name, before memory is taken."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from linnet.pretrained import load_pretrained
from linnet.pretrained.huggingface import ARCHITECTURES
from tests.pretrained.published import make

ROPE = "rope_parameters"
ATTENTION: list[tuple[dict[str, Any], str]] = [
    ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
    ({"num_key_value_heads": 3}, r"num_key_value_heads is 3|n_kv_heads \(3\) must divide"),
    ({"attention_bias": True}, "q_proj.bias"),
    ({ROPE: {"rope_type": "dynamic", "factor": 2.0}}, "dynamic"),
    ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "rope_scaling is .* next to rope_parameters"),
    ({ROPE: {"rope_type": "default", "partial_rotary_factor": 2}}, "partial_rotary_factor"),
]
MAMBA: list[tuple[dict[str, Any], str]] = [
    ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
    ({"use_bias": True}, "in_proj.bias"),
    ({"use_conv_bias": False}, "conv1d.bias"),
    ({"use_conv_bias": "yes"}, "use_conv_bias is 'yes'"),
    ({"use_conv_bias": None}, "use_conv_bias is None"),
    ({"state_size": None}, "state_size is None"),
    ({"conv_kernel": 3}, "conv1d.weight"),
    ({"state_size": 4.0}, "state_size is 4.0; accepted: a whole number"),
    ({"layer_norm_epsilon": 0}, "layer_norm_epsilon is 0; accepted: a number above 0"),
    ({"rms_norm": False}, "rms_norm is False"),
    ({"ssm_cfg": {"layer": "Mamba1"}}, "ssm_cfg is"),
    ({"tie_word_embeddings": 1}, "tie_word_embeddings is 1"),
    ({"quantization_config": {"bits": 4}}, "quantization_config is"),
    ({"attention_layers": [1]}, "attention_layers is"),
]
SCAN = [*MAMBA, ({"intermediate_size": 50}, "intermediate_size is 50; accepted: a multiple"), ({"expand": 3}, "")]
HYBRID: list[tuple[dict[str, Any], str]] = [
    *ATTENTION,
    ({"mamba_n_groups": 4}, "n_groups"),
    ({"mamba_d_head": 4}, "mamba_n_heads \\* mamba_d_head is 24"),
    ({"mamba_proj_bias": True}, "in_proj.bias"),
    ({"time_step_limit": [0.3, 0.1]}, "time_step_limit is"),
    ({"time_step_limit": [0.0]}, "time_step_limit is"),
]
MISSES: dict[str, list[tuple[dict[str, Any], str]]] = {  # case -> changes, and the sentence; "" is no miss
    "mamba": [*SCAN, ({"time_step_rank": 3}, "x_proj.weight")],
    "falcon_mamba": [*SCAN, ({"mixer_rms_eps": -1.0}, "mixer_rms_eps is -1.0")],
    "mamba2": [
        *MAMBA,
        ({"num_heads": 12}, "num_heads \\* head_dim is 96, and expand \\* hidden_size is 48"),
        ({"n_groups": 4}, "n_groups"),
        ({"norm_before_gate": True}, ""),
    ],
    "bamba": [
        *HYBRID,
        ({"attn_layer_indices": [3]}, "attn_layer_indices is"),
        ({"num_key_value_heads": None}, "k_proj.weight"),  # as many as heads
        ({"attn_layer_indices": [0]}, "self_attn.q_proj"),
        ({"layers_block_type": ["mamba"] * 3}, "layers_block_type is"),
        ({"partial_rotary_factor": 0.25}, "partial_rotary_factor is 0.25; accepted: 0.5"),
        ({"attn_rotary_emb": 4}, "attn_rotary_emb is 4; accepted: 8"),
        ({"mlp_bias": True}, "feed_forward.gate_proj.bias"),
    ],
    "granite": [
        *HYBRID[:3],
        *HYBRID[6:],
        ({"attention_multiplier": None}, "attention_multiplier is None"),
        ({"layers_block_type": ["mamba"] * 3}, "layers_block_type is"),
        ({"num_local_experts": 4}, "num_local_experts is 4"),
        ({"num_local_experts": None}, "num_local_experts is 8"),
        ({"layer_types": ["mamba"] * 2}, "layer_types is"),
        ({"layer_types": ["mamba", "attention", "window"]}, "layer_types is"),
        ({"position_embedding_type": "alibi"}, "position_embedding_type is 'alibi'"),
        ({"position_embedding_type": "rope", ROPE: {"partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({ROPE: {"partial_rotary_factor": 0.5}}, ""),
        ({"residual_multiplier": 0}, "residual_multiplier is 0"),
        ({"normalization_function": "layernorm"}, "normalization_function is 'layernorm'"),
    ],
    "qwen3_next": [
        *ATTENTION,
        ({"num_experts": 4}, "num_experts is 4"),
        ({"num_experts": 4, "mlp_only_layers": [0, 1]}, "num_experts is 4"),
        ({"mlp_only_layers": 3}, "mlp_only_layers is 3"),
        ({"layer_types": ["linear_attention"] * 3}, "layer_types is"),
        ({"layer_types": ["linear_attention"] * 3 + ["sliding_attention"]}, "layer_types is"),
        ({"linear_num_key_heads": 3}, "linear_num_key_heads is 3"),
        ({"linear_conv_kernel_dim": 3}, "conv1d.weight"),
        ({ROPE: {"rope_type": "default", "partial_rotary_factor": 0.2}}, "rotary_fraction is 0.2"),
        ({"linear_use_bias": True}, "linear_use_bias is True"),
    ],
    "qwen3_5_text": [*ATTENTION, ({"num_experts": 4}, "num_experts is 4")],
    "rwkv": [
        ({"attention_hidden_size": 48}, "attention_hidden_size is 48"),
        ({"layer_norm_epsilon": 1e-6}, "layer_norm_epsilon is 1e-06"),
        ({"rescale_every": 2.5}, "rescale_every is 2.5"),
        ({"intermediate_size": 95}, "feed_forward"),
        ({"head_size": 8}, "head_size is 8"),
    ],
}
DENSE = {"qwen3_next": {"num_experts": 0}, "granitemoehybrid": {"num_local_experts": 0}}
HUGE = 2**31 - 1


@pytest.fixture(scope="module", params=MISSES)
def near(request: pytest.FixtureRequest, transformers: ModuleType, tmp_path_factory: Any) -> tuple[str, Path, Any]:
    """A case, its folder and the content of config.json there."""
    folder = tmp_path_factory.mktemp("near") / "m"
    make(transformers, request.param).save_pretrained(folder)
    return request.param, folder, json.loads((folder / "config.json").read_text())


def changed(folder: Path, values: dict[str, Any], **changes: Any) -> Path:
    (folder / "config.json").write_text(json.dumps(values | changes))
    return folder


def test_another_computation_is_refused_by_the_name_of_the_field(near: tuple[str, Path, Any]) -> None:
    case, folder, values = near
    for changes, sentence in MISSES[case]:
        if not sentence:
            load_pretrained(changed(folder, values, **changes))
            continue
        with pytest.raises(ValueError, match=sentence) as caught:
            load_pretrained(changed(folder, values, **changes))
        assert str(folder) in str(caught.value)


def test_a_size_that_is_not_in_the_file_is_refused_before_memory_is_taken(near: tuple[str, Path, Any]) -> None:
    _, folder, values = near
    kind = values["model_type"]
    unused = {"mamba": "expand", "falcon_mamba": "expand", "granitemoehybrid": "intermediate_size"}  # where they stand
    free = {*ARCHITECTURES[kind].ignored, "rescale_every", "max_position_embeddings", "decoder_sparse_step"}
    sizes = [name for name, value in values.items() if type(value) is int and value > 0 and not name.endswith("_id")]
    sizes = [name for name in sizes if name not in free and name != unused.get(kind)]
    assert len(sizes) > 4
    for name in sizes:
        with pytest.raises(ValueError, match=str(folder)):
            load_pretrained(changed(folder, values, **{name: HUGE}))


def test_a_missing_a_surplus_and_a_misshapen_tensor_are_named(near: tuple[str, Path, Any]) -> None:
    _, folder, values = near
    changed(folder, values)
    weights = folder / "model.safetensors"
    tensors = load_file(weights)
    last = sorted(tensors)[-1]
    wrong = {
        f"lacks '{last}'": {name: value for name, value in tensors.items() if name != last},
        "has 'surplus', unknown": {**tensors, "surplus": torch.ones(2)},
        f"'{last}' has shape": {**tensors, last: tensors[last][..., None].clone()},
        f"'{last}' has dtype torch.int8": {**tensors, last: tensors[last].to(torch.int8)},
    }
    for sentence, content in wrong.items():
        save_file(content, weights)
        with pytest.raises(ValueError, match=sentence):
            load_pretrained(folder)
    save_file(tensors, weights)


@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if name != "rwkv7"])
def test_a_missing_field_has_the_default_of_transformers(name: str, transformers: ModuleType) -> None:
    dense = DENSE.get(name, {})
    theirs = transformers.AutoConfig.for_model(name, **dense)
    values = json.loads(theirs.to_json_string(use_diff=False))
    whole = ARCHITECTURES[name].config("here", values)
    left_out = set(values) - {"model_type"} - set(dense)
    if name == "llama":
        left_out -= {"head_dim", "num_key_value_heads"}  # they are None for us, which means the same
    refusals = []
    for field in left_out:
        try:
            config = ARCHITECTURES[name].config("here", {k: v for k, v in values.items() if k != field})
        except ValueError as error:
            refusals.append(str(error))
        else:
            assert config == whole, field
    assert all(sentence.startswith("here has no ") for sentence in refusals)
