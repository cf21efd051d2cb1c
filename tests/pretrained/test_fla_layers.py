"""GLA and RetNet by the tensor names of flash-linear-attention: our layers compute them, as plain loops in float64 do.

That library needs Triton, so the reference is the papers' equations (arXiv:2312.06635, arXiv:2307.08621) with the
options that its layers have: low-rank gates, an RMS norm of each head times silu of a gate, rotary positions.
MAPPING is the table of docs/guide/pretrained.md.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, silu

from linnet.layers import build_mixer

E, H, D, V, RANK, T = 24, 3, 4, 8, 5, 29
NORMALIZER, EPS = 16, 1e-5
MAPPING = {  # our parameter -> the tensors of theirs that are stacked in it
    "proj.weight": ("q_proj.weight", "k_proj.weight", "v_proj.weight", "g_proj.weight"),
    "narrow.weight": ("gk_proj.0.weight",),  # of GLA
    "widen.weight": ("gk_proj.1.weight",),
    "widen.bias": ("gk_proj.1.bias",),
    "norm.weight": ("g_norm_swish_gate.weight",),
    "out.weight": ("o_proj.weight",),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "gla": {"rank": RANK, "gate_normalizer": NORMALIZER, "norm_eps": EPS},
    "retnet": {"rotary": True, "norm": "rms", "norm_eps": EPS},
}


def tensors(name: str) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(0)
    shapes: dict[str, tuple[int, ...]] = {f"{x}_proj.weight": (H * D, E) for x in "qk"}
    shapes |= {f"{x}_proj.weight": (H * V, E) for x in "vg"} | {"o_proj.weight": (E, H * V)}
    shapes |= {"g_norm_swish_gate.weight": (V,)}
    if name == "gla":
        shapes |= {"gk_proj.0.weight": (RANK, E), "gk_proj.1.weight": (H * D, RANK), "gk_proj.1.bias": (H * D,)}
    return {key: torch.randn(shape, generator=draw, dtype=torch.float64) for key, shape in shapes.items()}


def turned(x: Tensor, t: int) -> Tensor:  # [H,D], the pairs (i, i + D/2)
    angles = t / 10_000.0 ** (torch.arange(0, D, 2, dtype=torch.float64) / D)
    first, second = x.chunk(2, dim=-1)
    sin, cos = angles.sin(), angles.cos()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def reference(name: str, w: dict[str, Tensor], x: Tensor) -> Tensor:  # [T,E] -> [T,E]
    S, outs = torch.zeros(H, D, V, dtype=torch.float64), []
    for t, token in enumerate(x):
        q, k = ((w[f"{part}_proj.weight"] @ token).view(H, D) for part in "qk")
        v, g = ((w[f"{part}_proj.weight"] @ token).view(H, V) for part in "vg")
        if name == "gla":
            gates = w["gk_proj.1.weight"] @ (w["gk_proj.0.weight"] @ token) + w["gk_proj.1.bias"]
            decay = (logsigmoid(gates) / NORMALIZER).exp().view(H, D)
        else:
            q, k = turned(q, t), turned(k, t)
            decay = (1 - 2.0 ** (-5 - torch.arange(H, dtype=torch.float64)))[:, None].expand(H, D)
        S = decay[..., None] * S + k[..., None] * v[:, None]
        out = torch.einsum("hdv,hd->hv", S, q) * D**-0.5
        out = out / (out.square().mean(-1, keepdim=True) + EPS).sqrt() * w["g_norm_swish_gate.weight"]
        outs.append(w["o_proj.weight"] @ (out * silu(g)).flatten())
    return torch.stack(outs)


@pytest.mark.parametrize("name", OPTIONS)
def test_our_layer_computes_theirs(name: str) -> None:
    theirs = tensors(name)
    sizes = {"d_model": E, "n_heads": H, "head_dim": V, "key_dim": D, "bias": False}
    layer = build_mixer(name, options=OPTIONS[name], **sizes).double()
    ours = {
        mine: torch.cat([theirs.pop(part) for part in parts]) for mine, parts in MAPPING.items() if parts[0] in theirs
    }
    assert not theirs
    layer.load_state_dict(ours)
    x = torch.randn(T, E, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    with torch.no_grad():
        whole, _ = layer(x[None])
        state, steps = None, []
        for t, token in enumerate(x):
            out, state = layer.step(token[None], state, positions=torch.tensor([t]))
            steps.append(out)
    want = reference(name, tensors(name), x)
    torch.testing.assert_close(whole[0], want, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(torch.cat(steps), want, rtol=1e-12, atol=1e-12)
