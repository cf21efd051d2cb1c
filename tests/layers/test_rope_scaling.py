"""Scaled rotary frequencies: the numbers of transformers, what yarn's attention factor does, and refusals."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from linnet.layers import build_mixer
from linnet.layers.positions import angles, rotation
from linnet.layers.rope_scaling import attention_factor, check_scaling
from linnet.models import ModelConfig

SINGLE = {"atol": 0.0, "rtol": 1e-6}  # the literals are float32
D, BASE, WINDOW = 16, 100.0, "original_max_position_embeddings"
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, WINDOW: 64}
YARN = {"rope_type": "yarn", "factor": 4.0, WINDOW: 32}
UNCUT = {"beta_fast": 16, "beta_slow": 2, "truncate": False, "mscale": 0.7, "mscale_all_dim": 1.3}
# inv_freq and attention_scaling of LlamaRotaryEmbedding in transformers 5.23 for D and BASE
KNOWN: list[tuple[dict[str, Any], list[float], float]] = [
    (
        {"rope_type": "linear", "factor": 4.0},
        [0.25, 0.14058533, 0.07905694, 0.04445698, 0.025, 0.014058532, 0.0079056947, 0.0044456986],
        1.0,
    ),
    (LLAMA3, [1.0, 0.56234133, 0.24438459, 0.064309873, 0.013042256, 0.0070292661, 0.0039528473, 0.0022228493], 1.0),
    (
        YARN,
        [1.0, 0.42175597, 0.15811388, 0.04445698, 0.025, 0.014058532, 0.0079056947, 0.0044456986],
        1.138629436111989,
    ),
    (
        {"rope_type": "yarn", "factor": 8.0, WINDOW: 64, **UNCUT},
        [1.0, 0.38834223, 0.12053399, 0.02222849, 0.0125, 0.0070292661, 0.0039528473, 0.0022228493],
        0.9017839869787123,
    ),
    (
        {"rope_type": "yarn", "factor": 2.0, WINDOW: 4096, "attention_factor": 0.5},
        [1.0, 0.56234133, 0.31622776, 0.17782794, 0.1, 0.056234129, 0.029364008, 0.015242396],
        0.5,
    ),
]


@pytest.mark.parametrize(("scaling", "frequencies", "factor"), KNOWN)
def test_frequencies_are_those_of_transformers(scaling: Any, frequencies: list[float], factor: float) -> None:
    check_scaling(scaling, BASE)
    found = angles(torch.ones(()), D, BASE, scaling)
    torch.testing.assert_close(found, torch.tensor(frequencies, dtype=torch.float64), **SINGLE)
    assert attention_factor(scaling) == pytest.approx(factor, rel=1e-12)


def test_yarn_makes_q_and_k_longer_by_its_factor() -> None:
    turn = rotation(torch.arange(70), D, torch.float64, BASE, YARN)
    torch.testing.assert_close(
        turn.cos.square() + turn.sin.square(), torch.full_like(turn.cos, attention_factor(YARN) ** 2)
    )


def test_layers_turn_as_the_model_does() -> None:
    """A layer alone makes its turns from positions; the backbone hands them over ready."""
    torch.manual_seed(0)
    how = {"d_model": 32, "n_heads": 2, "rotary": True, "rotary_base": BASE}
    layer, plain = (build_mixer("softmax", **how, rotary_scaling=s) for s in (YARN, None))
    plain.load_state_dict(layer.state_dict())
    x, where = torch.randn(1, 90, 32), torch.arange(90)
    ready = rotation(where, D, x.dtype, BASE, YARN)
    torch.testing.assert_close(layer(x, positions=where)[0], layer(x, positions=ready)[0])
    assert not torch.allclose(layer(x, positions=where)[0], plain(x, positions=where)[0])


@pytest.mark.parametrize(
    ("scaling", "sentence"),
    [
        ("linear", "rotary_scaling is 'linear'; accepted: None, or a mapping"),
        ({"factor": 2.0}, "has rope_type None; accepted: linear, llama3, yarn"),
        ({"rope_type": ["linear"], "factor": 2.0}, "has rope_type .'linear'.; accepted: linear, llama3, yarn"),
        ({"rope_type": "dynamic", "factor": 2.0}, "'dynamic', whose frequencies depend on the length"),
        ({"rope_type": "longrope"}, "'longrope', whose frequencies depend on the length"),
        ({"rope_type": "linear"}, "lacks 'factor'; accepted for 'linear': factor"),
        ({"rope_type": "linear", "factor": 2.0, "beta_fast": 3}, "has 'beta_fast'; accepted for 'linear': factor"),
        ({"rope_type": "linear", "factor": True}, "factor True; accepted: a finite number above 0"),
        (LLAMA3 | {"low_freq_factor": 4.0}, "low_freq_factor 4.0 and high_freq_factor 4.0; accepted: low < high"),
        (YARN | {"truncate": 1}, "truncate 1; accepted: true or false"),
    ],
)
def test_other_scalings_are_refused(scaling: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        ModelConfig(positions="rotary", rotary_scaling=scaling)
    with pytest.raises(ValueError, match=sentence):
        build_mixer("softmax", d_model=32, n_heads=2, rotary=True, rotary_scaling=scaling)


def test_a_scaling_needs_rotary_positions_and_a_base_above_one() -> None:
    with pytest.raises(ValueError, match="rotary_scaling is given, but positions is 'none'; accepted: 'rotary'"):
        ModelConfig(rotary_scaling=YARN)
    with pytest.raises(ValueError, match=r"rotary_base is 1\.0; accepted with a rotary_scaling: a number above 1"):
        ModelConfig(positions="rotary", rotary_scaling=YARN, rotary_base=1.0)
