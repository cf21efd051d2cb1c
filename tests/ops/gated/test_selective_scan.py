"""The selective scan against its equation in float64: outputs, states, gradients, splits, padding, strong decays."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from linnet.errors import StateError
from linnet.ops.gated import naive
from linnet.ops.gated.selective_scan import selective_scan
from linnet.ops.state import MatrixState
from tests.ops import rules
from tests.ops.rows import needs_library

B, E, N = 2, 3, 4
every_run = pytest.mark.parametrize(
    ("form", "backend"),
    [*((form, "torch") for form in rules.FORMS), pytest.param("chunked", "native", marks=needs_library)],
)


def draw(length: int, strength: float = 2.0) -> list[Tensor]:
    """x, dt, a, b, c, s."""
    g = torch.Generator().manual_seed(length)
    x, b, c, s = (
        torch.randn(*shape, generator=g, dtype=torch.float64)
        for shape in ((B, length, E), (B, length, N), (B, length, N), (B, E, N, 1))
    )
    dt, a = (torch.rand(*shape, generator=g, dtype=torch.float64) for shape in ((B, length, E), (E, N)))
    return [x, dt, -strength * (a + 0.1), b, c, s]


RULE = rules.Rule(selective_scan, naive.selective_scan, draw, (True, True, False, True, True))


@every_run
@pytest.mark.parametrize("strength", [0.1, 100.0])
def test_float32(form: str, backend: str, strength: float) -> None:
    """The usual chunks, with hardly any forgetting, and with factors down to e^-100."""
    rules.check_equation(RULE._replace(draw=lambda n: draw(n, strength)), form, 37, torch.float32, backend=backend)


@every_run
def test_splits_padding_and_causality(form: str, backend: str) -> None:
    rule = rules.single(RULE) if backend == "native" else RULE
    for check in (rules.check_splits, rules.check_padding, rules.check_only_padding, rules.check_causality):
        check(rule, form, backend=backend)


@pytest.mark.parametrize("backend", ["torch", pytest.param("native", marks=needs_library)])
def test_second_derivatives(backend: str) -> None:
    rules.check_second_derivatives(rules.single(RULE) if backend == "native" else RULE, backend=backend)


def test_forward_mode_sees_the_same_slope() -> None:
    *inputs, s = draw(7)
    way = torch.ones_like(inputs[1])

    def along(step: Any) -> Tensor:
        return selective_scan(
            inputs[0], inputs[1] + step * way, *inputs[2:], initial_state=MatrixState(s), chunk_size=3
        )[0]

    zero = torch.zeros((), dtype=torch.float64)
    _, tangent = torch.func.jvp(along, (zero,), (torch.ones_like(zero),))
    rules.assert_close([tangent], [(along(1e-5) - along(-1e-5)) / 2e-5], 1e-8)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"b": torch.zeros(B, 5, N + 1)}, r"b \[2, 5, 5\].* accepted: x, dt \[batch, time, channels\]"),
        ({"dt": torch.zeros(B, 5, E, dtype=torch.int64)}, r"use dt.float\(\)"),
        ({"form": "fast"}, "unknown form 'fast'"),
        ({"chunk_size": 0}, "chunk_size is 0"),
        ({"mask": torch.ones(B, 4, dtype=torch.bool)}, r"mask has shape \[2, 4\]"),
        ({"initial_state": MatrixState(torch.zeros(B, N, E, 1))}, r"s has shape \[2, 4, 3, 1\].*= \[2, 3, 4, 1\]"),
    ],
)
def test_bad_input_is_named(change: dict[str, Any], sentence: str) -> None:
    given = dict(zip(("x", "dt", "a", "b", "c"), draw(5), strict=False)) | change
    with pytest.raises(StateError if "initial_state" in change else ValueError, match=sentence):
        selective_scan(**given)
