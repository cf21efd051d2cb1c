"""Configurations next to those of qwen3_next and rwkv that mean another computation: refused by the field's name."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from linnet.pretrained import load_pretrained
from tests.pretrained.published import make, write

MISSES: dict[str, list[tuple[dict[str, Any], str]]] = {
    "qwen3_next": [
        ({"num_experts": 4}, "num_experts is 4"),
        ({"num_experts": 4, "mlp_only_layers": [0, 1]}, "num_experts is 4"),
        ({"mlp_only_layers": 3}, "mlp_only_layers is 3"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"layer_types": ["linear_attention"] * 3}, "layer_types is"),
        ({"layer_types": ["linear_attention"] * 3 + ["sliding_attention"]}, "layer_types is"),
        ({"linear_num_key_heads": 3}, "linear_num_key_heads is 3"),
        ({"num_key_value_heads": 3}, "num_key_value_heads is 3"),
        ({"linear_conv_kernel_dim": 3}, "conv1d.weight"),
        ({"attention_bias": True}, "q_proj.bias"),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "dynamic"),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.2}}, "rotary_fraction is 0.2"),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 2}}, "partial_rotary_factor"),
        ({"linear_use_bias": True}, "linear_use_bias is True"),
    ],
    "rwkv": [
        ({"attention_hidden_size": 48}, "attention_hidden_size is 48"),
        ({"layer_norm_epsilon": 1e-6}, "layer_norm_epsilon is 1e-06"),
        ({"rescale_every": 2.5}, "rescale_every is 2.5"),
        ({"intermediate_size": 95}, "feed_forward"),
        ({"head_size": 8}, "head_size is 8"),
    ],
}


@pytest.mark.parametrize("case", MISSES)
def test_a_near_miss_is_refused_by_the_name_of_the_field(case: str, transformers: ModuleType, tmp_path: Path) -> None:
    theirs = make(transformers, case)
    for i, (changes, sentence) in enumerate(MISSES[case]):
        folder = write(theirs, tmp_path / str(i), **changes)
        with pytest.raises(ValueError, match=sentence):
            load_pretrained(folder)
