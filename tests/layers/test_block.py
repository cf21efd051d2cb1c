"""Block: the residual equations as written, before and after; MLPs and norms by name."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import gelu, silu

from linnet.layers import Block, CrossAttention, build_mixer, build_mlp, build_norm

CLOSE = {"atol": 1e-10, "rtol": 1e-10}  # float64
E = 8


def block(place: str, mlp: str = "gelu", cross: bool = False) -> Block:
    torch.manual_seed(0)
    reader = CrossAttention(E, 2) if cross else None
    made = Block(build_mixer("elu", d_model=E, n_heads=2), build_mlp(mlp, E, 12), d_model=E, cross=reader,
                 norm_place=place)  # fmt: skip
    for parameter in made.parameters():
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    return made.double()


def inputs(length: int = 6) -> torch.Tensor:
    return torch.randn(2, length, E, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("place", ["pre", "post"])
@pytest.mark.parametrize("cross", [False, True])
def test_the_equations(place: str, cross: bool) -> None:
    b, x = block(place, cross=cross), inputs()
    source = b.cross.source_state(inputs(4)) if cross else None
    branches = [(b.norm1, lambda y: b.mixer(y)[0])]
    branches += [(b.norm_cross, lambda y: b.cross(y, source))] if cross else []
    wanted = x
    for norm, branch in [*branches, (b.norm2, b.mlp)]:
        wanted = wanted + branch(norm(wanted)) if place == "pre" else norm(wanted + branch(wanted))
    out, _ = b(x, source=source)
    torch.testing.assert_close(out, wanted, **CLOSE)
    state = None
    for t in range(x.shape[1]):
        token, state = b.step(x[:, t], state, source)
        torch.testing.assert_close(token, wanted[:, t], **CLOSE)


def test_no_mlp_and_the_identity() -> None:
    x = inputs()
    assert block("pre", "none").norm2 is None
    b = block("pre", "identity")
    y = x + b.mixer(b.norm1(x))[0]
    torch.testing.assert_close(b(x)[0], y + b.norm2(y), **CLOSE)


@pytest.mark.parametrize("kind", ["relu", "gelu", "swiglu"])
def test_mlps_are_their_formulas(kind: str) -> None:
    mlp, x = build_mlp(kind, E, 12).double(), inputs()
    hidden = x @ mlp.up.weight.T + mlp.up.bias
    acts = {"relu": lambda h: h.clamp(min=0), "gelu": gelu, "swiglu": lambda h: silu(h[..., :12]) * h[..., 12:]}
    torch.testing.assert_close(mlp(x), acts[kind](hidden) @ mlp.down.weight.T + mlp.down.bias, **CLOSE)


def test_norms_are_their_formulas() -> None:
    x = inputs() + 3
    layer, rms = build_norm("layer", E, 1e-5).double(), build_norm("rms", E, 1e-5).double()
    centred = x - x.mean(-1, keepdim=True)
    torch.testing.assert_close(layer(x), centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt(), **CLOSE)
    torch.testing.assert_close(rms(x), x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt(), **CLOSE)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown norm 'laier'; did you mean 'layer'"):
        build_norm("laier", E)
    with pytest.raises(ValueError, match="unknown mlp 'gelo'; did you mean 'gelu'"):
        build_mlp("gelo", E, 12)
    with pytest.raises(ValueError, match="unknown norm_place 'per'"):
        block("per")
