"""The average of RWKV-4 against its equation in float64: outputs, states, gradients, splits, padding, huge keys."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from linnet.errors import StateError
from linnet.ops.gated import naive
from linnet.ops.gated.wkv import wkv, wkv_weights
from linnet.ops.state import MatrixState
from tests.ops import rules
from tests.ops.rows import needs_library

B, E = 2, 5
every_run = pytest.mark.parametrize(
    ("form", "backend"),
    [*((form, "torch") for form in rules.FORMS), pytest.param("chunked", "native", marks=needs_library)],
)


def draw(length: int, rate: float = 2.0, size: float = 2.0) -> list[Tensor]:
    """k, v, decay, bonus, s."""
    g = torch.Generator().manual_seed(length)
    k, v = (torch.randn(B, length, E, generator=g, dtype=torch.float64) for _ in range(2))
    bonus, n, p = (torch.randn(*shape, E, generator=g, dtype=torch.float64) for shape in ((), (B,), (B,)))
    decay, d = (torch.rand(*shape, E, generator=g, dtype=torch.float64) for shape in ((), (B,)))
    return [size * k, v, rate * decay + 0.01, bonus, torch.stack([n, 1 + d, p], dim=1)[:, None]]


def value(s: Tensor) -> Tensor:
    """What a state stands for: numerator and denominator."""
    return s[:, :, :2] * s[:, :, 2:].exp()


RULE = rules.Rule(wkv, naive.wkv, draw, (True, True, False, False), value)


@every_run
@pytest.mark.parametrize("rate", [0.1, 30.0])
def test_float32(form: str, backend: str, rate: float) -> None:
    """Two chunks of the usual size, with slow forgetting, and with factors down to e^-30."""
    rules.check_equation(
        RULE._replace(draw=lambda n: draw(n, rate, size=1.0)), form, 70, torch.float32, backend=backend
    )


@every_run
def test_keys_too_large_for_any_exponential(form: str, backend: str) -> None:
    """Added to all keys, 1000 changes no weight; the state says so in its exponent."""
    k, v, decay, bonus, _ = (x.float() for x in draw(20))
    out, end = wkv(k, v, decay, bonus, output_final_state=True, form=form, backend=backend)
    moved, later = wkv(k + 1000, v, decay, bonus, output_final_state=True, form=form, backend=backend)
    assert end is not None
    assert later is not None
    rules.assert_close([moved, later.s[:, :, :2]], [out, end.s[:, :, :2]], 1e-3)  # k + 1000 has lost its last digits
    rules.assert_close([later.s[:, :, 2]], [end.s[:, :, 2] + 1000], 1e-6)


@every_run
def test_splits_padding_and_causality(form: str, backend: str) -> None:
    rule = rules.single(RULE) if backend == "native" else RULE
    for check in (rules.check_splits, rules.check_padding, rules.check_only_padding, rules.check_causality):
        check(rule, form, backend=backend)


@pytest.mark.parametrize("backend", ["torch", pytest.param("native", marks=needs_library)])
def test_second_derivatives(backend: str) -> None:
    rules.check_second_derivatives(rules.single(RULE) if backend == "native" else RULE, backend=backend)


def test_the_first_token_is_its_own_average() -> None:
    k, v, decay, bonus, _ = draw(3)
    assert torch.equal(wkv(k, v, decay, bonus)[0][:, 0], v[:, 0])


def test_weights_are_those_of_the_average() -> None:
    k, v, decay, bonus, _ = draw(9)
    weights = wkv_weights(k, decay, bonus)  # [B,E,T,T]
    rules.assert_close([torch.einsum("betj,bje->bte", weights, v)], [wkv(k, v, decay, bonus)[0]])
    rules.assert_close([weights.sum(-1)], [torch.ones(B, E, 9)])
    assert not weights.triu(1).any()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"decay": torch.ones(E + 1)}, r"decay \[6\].* accepted: k, v \[batch, time, channels\]"),
        ({"k": [1.0]}, "k is a list"),
        ({"form": "fast"}, "unknown form 'fast'"),
        ({"chunk_size": True}, "chunk_size is True"),
        ({"mask": torch.ones(B, 5)}, "mask has dtype torch.float32"),
        ({"initial_state": MatrixState(torch.zeros(B, 1, E, 3))}, r"s has shape \[2, 1, 5, 3\].*= \[2, 1, 3, 5\]"),
    ],
)
def test_bad_input_is_named(change: dict[str, Any], sentence: str) -> None:
    given = dict(zip(("k", "v", "decay", "bonus"), draw(5), strict=False)) | change
    with pytest.raises(StateError if "initial_state" in change else ValueError, match=sentence):
        wkv(**given)
