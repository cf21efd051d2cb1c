"""The rule of RWKV-7 against its equation in float64: outputs, states, gradients, splits, padding, strong decays."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from linnet.errors import StateError
from linnet.ops.gated import naive
from linnet.ops.gated.delta import delta_rule
from linnet.ops.gated.wkv7 import wkv7
from linnet.ops.state import MatrixState
from tests.ops import rules

B, H, D, V = 2, 2, 4, 3
every_form = pytest.mark.parametrize("form", rules.FORMS)


def draw(length: int, strength: float = 0.6) -> list[Tensor]:
    """r, decay, k, v, remove, rate, s; most decays are weak, some as strong as -strength."""
    g = torch.Generator().manual_seed(length)
    r, k, v, c = (torch.randn(B, length, H, n, generator=g, dtype=torch.float64) for n in (D, D, V, D))
    decay, rate = (torch.rand(B, length, H, D, generator=g, dtype=torch.float64) for _ in range(2))
    s = torch.randn(B, H, D, V, generator=g, dtype=torch.float64)
    return [r, -strength * decay**4, k, v, normalize(c, dim=-1), rate, s]


RULE = rules.Rule(wkv7, naive.wkv7, draw, (True,) * 6)


@every_form
@pytest.mark.parametrize("strength", [0.6, 30.0])
def test_float32(form: str, strength: float) -> None:
    """Two chunks of the usual size; decays of the layer, and down to e^-30 at one token."""
    rules.check_equation(RULE._replace(draw=lambda n: draw(n, strength)), form, 40, torch.float32)


@every_form
def test_weak_decays_after_strong_ones_keep_their_digits(form: str) -> None:
    """G near -4000 when the weak ones begin: in float32 its differences would have three digits left."""
    *inputs, s = draw(100, 0.1)
    inputs[1][:, :64] -= 60
    want = RULE.run(inputs, s, form="recurrent")
    got = RULE.run([x.float() for x in inputs], s.float(), form=form, chunk_size=128)
    rules.assert_close(got, want, rules.SINGLE)


@every_form
def test_splits_padding_and_causality(form: str) -> None:
    rules.check_splits(RULE, form)
    rules.check_padding(RULE, form)
    rules.check_only_padding(RULE, form)
    rules.check_causality(RULE, form)


def test_second_derivatives() -> None:
    rules.check_second_derivatives(RULE)


@every_form
def test_without_decay_it_is_the_delta_rule(form: str) -> None:
    """One rate b for all channels, and b k added where k is removed."""
    r, _, k, v, _, rate, s = draw(9)
    k, beta = normalize(k, dim=-1), rate[..., 0]
    same = beta[..., None].expand_as(k)
    got = RULE.run([r, torch.zeros_like(k), same * k, v, k, same], s, form=form)
    want = RULE._replace(op=delta_rule).run([r, k, v, beta], s, form="recurrent")
    rules.assert_close(got, want)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"rate": torch.ones(B, 5, H, 1)}, r"rate \[2, 5, 2, 1\].*one width for all but v"),
        ({"v": torch.zeros(B, 5, H, V, dtype=torch.int64)}, r"use v.float\(\)"),
        ({"form": "fast"}, "unknown form 'fast'"),
        ({"chunk_size": 2.5}, "chunk_size is 2.5"),
        ({"mask": torch.ones(B, 6, dtype=torch.bool)}, r"mask has shape \[2, 6\]"),
        ({"initial_state": MatrixState(torch.zeros(B, H, V, D))}, r"s has shape \[2, 2, 3, 4\].*= \[2, 2, 4, 3\]"),
    ],
)
def test_bad_input_is_named(change: dict[str, Any], sentence: str) -> None:
    names = ("r", "decay", "k", "v", "remove", "rate")
    given = dict(zip(names, draw(5), strict=False)) | change
    with pytest.raises(StateError if "initial_state" in change else ValueError, match=sentence):
        wkv7(**given)
