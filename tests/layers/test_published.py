"""The recurrent mixers with the weights of transformers' own layers: the same numbers, whole and by steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from linnet.layers import RWKV4, GatedDelta, Mamba, Mamba2, Mixer

CLOSE = 1e-5  # of the largest output; transformers computes these layers in float32
B, T, E = 2, 70, 24
Pair = tuple[nn.Module, Mixer, dict[str, Tensor]]  # theirs, ours, and their weights by our names


def shaken(layer: Any) -> Any:
    """Away from zeros and ones, where a mistake could hide."""
    torch.manual_seed(1)
    for parameter in layer.parameters():
        parameter.data = parameter.data.nan_to_num() + 0.1 * torch.randn_like(parameter)
    return layer.eval().requires_grad_(False)


def biases(layer: nn.Module) -> dict[str, Tensor]:
    """Those of the projections in and out, if they have any."""
    named = {"proj.bias": layer.in_proj.bias, "out.bias": layer.out_proj.bias, "filter_bias": layer.conv1d.bias}
    return {name: value for name, value in named.items() if value is not None}


def qwen3_next(key_heads: int, value_heads: int, eps: float) -> Pair:
    """Their rows go by key head: q, k, then v and z of the value heads it serves; b and a likewise."""
    from transformers import Qwen3NextConfig
    from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet

    D, V, each = 8, 6, value_heads // key_heads
    heads = {"linear_num_key_heads": key_heads, "linear_num_value_heads": value_heads}
    widths = {"linear_key_head_dim": D, "linear_value_head_dim": V, "hidden_size": E, "rms_norm_eps": eps}
    config = Qwen3NextConfig(**heads, **widths, num_hidden_layers=1, layer_types=["linear_attention"])
    theirs = shaken(Qwen3NextGatedDeltaNet(config, 0))
    rows = theirs.in_proj_qkvz.weight.unflatten(0, (key_heads, -1)).split([D, D, each * V, each * V], dim=1)
    q, k, v, z = (part.flatten(0, 1) for part in rows)
    b, a = (part.flatten(0, 1) for part in theirs.in_proj_ba.weight.unflatten(0, (key_heads, 2, each)).unbind(1))
    ours = GatedDelta(E, value_heads, key_dim=D, head_dim=V, key_heads=key_heads, bias=False, norm_eps=eps)
    return theirs, ours, {
        "proj.weight": torch.cat([q, k, v, b, a, z]), "filter": theirs.conv1d.weight[:, 0], "a_log": theirs.A_log,
        "dt_bias": theirs.dt_bias, "norm.weight": theirs.norm.weight, "out.weight": theirs.out_proj.weight,
    }  # fmt: skip


def mamba(**change: Any) -> Pair:
    from transformers import MambaConfig
    from transformers.models.mamba.modeling_mamba import MambaMixer

    config = MambaConfig(hidden_size=E, num_hidden_layers=1, state_size=5, **change)
    theirs = shaken(MambaMixer(config, 0))
    how = {"bias": config.use_bias, "conv_bias": config.use_conv_bias, "dt_rank": config.time_step_rank}
    return theirs, Mamba(E, d_state=5, kernel_size=config.conv_kernel, **how), biases(theirs) | {
        "proj.weight": theirs.in_proj.weight, "filter": theirs.conv1d.weight[:, 0],
        "select.weight": theirs.x_proj.weight, "dt.weight": theirs.dt_proj.weight, "dt_bias": theirs.dt_proj.bias,
        "a_log": theirs.A_log.flatten(), "skip": theirs.D, "out.weight": theirs.out_proj.weight,
    }  # fmt: skip


def mamba2(**change: Any) -> Pair:
    from transformers import Mamba2Config
    from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

    sizes = {"hidden_size": E, "num_hidden_layers": 1, "num_heads": 6, "head_dim": 8, "state_size": 5}
    config = Mamba2Config(**sizes, **change)
    theirs = shaken(Mamba2Mixer(config, 0))
    how = {"bias": config.use_bias, "conv_bias": config.use_conv_bias, "dt_limit": config.time_step_limit}
    how |= {"n_groups": config.n_groups, "norm_eps": config.layer_norm_epsilon}
    return theirs, Mamba2(E, 6, key_dim=5, head_dim=8, **how), biases(theirs) | {
        "proj.weight": theirs.in_proj.weight, "filter": theirs.conv1d.weight[:, 0], "dt_bias": theirs.dt_bias,
        "a_log": theirs.A_log, "skip": theirs.D, "norm.weight": theirs.norm.weight,
        "out.weight": theirs.out_proj.weight,
    }  # fmt: skip


def rwkv4() -> Pair:
    from transformers import RwkvConfig
    from transformers.models.rwkv.modeling_rwkv import RwkvSelfAttention

    theirs = RwkvSelfAttention(RwkvConfig(hidden_size=E, num_hidden_layers=1))
    for parameter in theirs.parameters():  # they leave them unwritten
        parameter.data.uniform_(0, 1) if parameter.ndim != 2 else None
    theirs = shaken(theirs)
    return theirs, RWKV4(E, bias=False), {
        "shift_r": 1 - theirs.time_mix_receptance.flatten(), "shift_k": 1 - theirs.time_mix_key.flatten(),
        "shift_v": 1 - theirs.time_mix_value.flatten(), "decay": theirs.time_decay, "bonus": theirs.time_first,
        "r.weight": theirs.receptance.weight, "k.weight": theirs.key.weight, "v.weight": theirs.value.weight,
        "out.weight": theirs.output.weight,
    }  # fmt: skip


CASES: dict[str, Any] = {
    "qwen3-next": lambda: qwen3_next(2, 4, 1e-6),
    "qwen3-next, a head for each": lambda: qwen3_next(3, 3, 1e-2),
    "mamba": lambda: mamba(),
    "mamba with other biases and rank": lambda: mamba(use_bias=True, use_conv_bias=False, time_step_rank=3),
    "mamba-2": lambda: mamba2(n_groups=1),
    "mamba-2 with groups and limits": lambda: mamba2(
        n_groups=2, use_bias=True, use_conv_bias=False, time_step_limit=(0.05, 0.9), layer_norm_epsilon=1e-2
    ),
    "rwkv-4": rwkv4,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_outputs_are_those_of_transformers(name: str) -> None:
    pytest.importorskip("transformers")
    theirs, ours, weights = CASES[name]()
    ours.load_state_dict(weights)
    x = torch.randn(B, T, E, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        want = theirs(x)
        want = want[0] if isinstance(want, tuple) else want
        whole, _ = ours(x)
        outs, state = [], None
        for token in x.unbind(1):
            out, state = ours.step(token, state)
            outs.append(out)
    for found in (whole, torch.stack(outs, dim=1)):
        assert (found - want).abs().max() < CLOSE * want.abs().max()
