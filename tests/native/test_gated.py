"""The gated family on every instruction set and at the edges of its tiles: outputs, states and all gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

import linnet
from linnet.native import gate, library
from linnet.ops.gated import naive
from linnet.ops.state import MatrixState
from tests.ops.rows import needs_library
from tests.ops.rules import leaves, slopes

pytestmark = needs_library
TOLERANCE = 5e-5  # float32 against float64, of the largest number
# B, T, H, D, V: single numbers, whole tiles, one more than a tile, more tokens than lie between two kept states
SIZES = [(2, 5, 2, 1, 1), (3, 18, 1, 1, 5), (1, 32, 2, 16, 16), (2, 17, 1, 17, 33), (1, 131, 1, 3, 2)]
Draw = Callable[..., Tensor]


@pytest.fixture(autouse=True)
def checking() -> Iterator[None]:
    before, isa = gate.set_check(True), library.info()["isa"]
    yield
    gate.set_check(before)
    library.use_isa(isa)


def decayed(draw: Draw, D: int, V: int, by: str, strength: float) -> dict[str, Tensor]:
    inputs = {"q": draw(D), "k": draw(D), "v": draw(V)}
    return inputs | {"decay": -strength * (draw(D) if by == "channel" else draw(1)[..., 0]).abs()}


def delta(draw: Draw, D: int, V: int, by: str, strength: float) -> dict[str, Tensor]:
    *qkv, (_, decay) = decayed(draw, D, V, by, strength).items()
    inputs = dict(qkv) | {"beta": draw(1)[..., 0].sigmoid() * 2}
    inputs["k"] = normalize(inputs["k"], dim=-1)
    return inputs if by == "none" else inputs | {"decay": decay}


def removal(draw: Draw, D: int, V: int, _: str, strength: float) -> dict[str, Tensor]:
    inputs = {"r": draw(D), "decay": -strength * draw(D).abs(), "k": draw(D), "v": draw(V)}
    return inputs | {"remove": normalize(draw(D), dim=-1), "rate": draw(D).sigmoid()}


RULES: dict[str, tuple[str, Callable[..., dict[str, Tensor]], str]] = {
    "decay by head": ("decayed_attention", decayed, "head"),
    "decay by channel": ("decayed_attention", decayed, "channel"),
    "delta": ("delta_rule", delta, "none"),
    "delta by head": ("delta_rule", delta, "head"),
    "delta by channel": ("delta_rule", delta, "channel"),
    "wkv7": ("wkv7", removal, "channel"),
}


@pytest.mark.parametrize("strength", [0.1, 20.0])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("rule", RULES)
def test_the_equation(rule: str, sizes: tuple[int, ...], strength: float) -> None:
    """On every instruction set, with padding and a first state."""
    (op, draw, by), (B, T, H, D, V) = RULES[rule], sizes
    g = torch.Generator().manual_seed(D)
    inputs = draw(lambda width: torch.randn(B, T, H, width, generator=g), D, V, by, strength)
    inputs["s"] = torch.randn(B, H, D, V, generator=g)
    mask = torch.rand(B, T, generator=g) < 0.8
    exact = leaves(list(inputs.values()), torch.float64)
    want = _results(lambda: getattr(naive, op)(**dict(zip(inputs, exact, strict=True)), mask=mask), exact)
    products = max(float((x.detach() * dx).abs().max()) for x, dx in zip(exact, want[2:], strict=True))
    for isa in library.info()["isas"]:
        library.use_isa(isa)
        given = leaves(list(inputs.values()))
        how: dict[str, Any] = {"mask": mask, "backend": "native", "output_final_state": True}
        found = _results(lambda: _call(op, given, how), given)  # noqa: B023  called at once
        for name, a, b in zip(("out", "state", *inputs), found, want, strict=True):
            size = products if name == "decay" else float(b.abs().max())  # its gradient is a difference of products
            off = float((a.double() - b).abs().max())
            assert off <= TOLERANCE * max(size, 1e-3), f"{name} is off by {off:.1e} of {size:.1e} on {isa}"


def _call(op: str, given: list[Tensor], how: dict[str, Any]) -> tuple[Tensor, Tensor]:
    out, end = getattr(linnet, op)(*given[:-1], initial_state=MatrixState(given[-1]), **how)
    return out, end.s


def _results(run: Callable[[], tuple[Tensor, Tensor]], inputs: list[Tensor]) -> list[Tensor]:
    outs = run()
    return [*(x.detach() for x in outs), *slopes(outs, inputs)]
